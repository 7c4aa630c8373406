"""`stowplan calendar`: the list, what excludes one another, JSON, the picture and iCalendar."""

import json
from pathlib import Path
from typing import Any

import icalendar
import pytest
from typer.testing import CliRunner, Result

from api.cli.exit_codes import ExitCode
from api.cli.main import app
from tests.api.requests import Json, changed, sia_request

REQUEST = changed(sia_request(), "/snapshot/taken_at", "2026-12-01T00:00:00Z")
ENTRIES: list[Json] = [
    {"name": "175b", "kind": "reservation", "nodes": ["n0"], "from_time": "2026-12-07T09:00:00+01:00", "owner": "llm"},
    {
        "name": "students",
        "kind": "reservation",
        "shape": {"num_nodes": 1, "gpu_type": "a"},
        "from_time": "2026-11-30T00:00:00Z",
        "until_time": "2026-12-24T00:00:00Z",
        "hard": False,
    },
]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["calendar", *(str(argument) for argument in arguments)])


def written(path: Path, *entries: Json, **fields: Any) -> Path:
    document = changed(REQUEST, "/snapshot/calendar", list(entries))
    path.write_text(json.dumps({**document["snapshot"], **fields}))
    return path


def test_entries_are_listed(tmp_path: Path) -> None:
    result = run(written(tmp_path / "snapshot.json", *ENTRIES))
    assert result.exit_code == ExitCode.PLANNED, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "175b reservation 2026-12-07 08:00 1 node: n0 llm ahead" in lines
    assert "students reservation, soft 2026-11-30 00:00 2026-12-24 00:00 1 node of a now" in lines


def test_json_names_the_nodes_of_shapes(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps(changed(REQUEST, "/snapshot/calendar", ENTRIES)))
    document = json.loads(run(request, "--json").stdout)
    # A soft one leaves the node of the hard one alone.
    assert [entry["nodes"] for entry in document["entries"]] == [["n0"], ["n1"]]
    assert [entry["status"] for entry in document["entries"]] == ["ahead", "now"]
    assert document["issues"] == []


def test_what_excludes_one_another_is_listed(tmp_path: Path) -> None:
    other = {**ENTRIES[0], "name": "other"}
    past = {**ENTRIES[1], "name": "past", "until_time": "2026-11-30T12:00:00Z"}
    figure = tmp_path / "calendar.svg"
    result = run(written(tmp_path / "snapshot.json", ENTRIES[0], other, past), "--figure", figure)
    assert result.exit_code == ExitCode.ILLEGAL
    assert (
        "conflict: /calendar/1: hard reservations 'other' and '175b' overlap: both reserve node 'n0'" in result.stdout
    )
    assert "warning: /calendar/2: 'past' is over" in result.stderr
    assert not figure.exists()
    result = run(written(tmp_path / "snapshot.json", {**ENTRIES[0], "nodes": ["n7"]}), "--json")
    assert result.exit_code == ExitCode.ILLEGAL
    assert [issue["code"] for issue in json.loads(result.stdout)["issues"]] == ["unknown_node"]


def test_a_snapshot_without_entries_has_an_empty_calendar(tmp_path: Path) -> None:
    result = run(written(tmp_path / "snapshot.json", taken_at=None))
    assert (result.exit_code, result.stdout) == (ExitCode.PLANNED, "no entries\n")


@pytest.mark.slow
def test_the_picture_and_icalendar_are_written(tmp_path: Path) -> None:
    figure, ics = tmp_path / "calendar.svg", tmp_path / "calendar.ics"
    result = run(written(tmp_path / "main.json", *ENTRIES), "--figure", figure, "--ics", ics)
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert "Calendar of main" in figure.read_text()
    events = icalendar.Calendar.from_ical(ics.read_bytes()).walk("VEVENT")
    assert [str(event["SUMMARY"]) for event in events] == ["reservation 175b", "reservation students"]


@pytest.mark.parametrize(
    ("arguments", "fields", "says"),
    [
        (("--figure", "calendar.pdf"), {}, "must end in .svg or .png"),
        ((), {"taken_at": None}, "a calendar needs the moment of the snapshot"),
        ((), {"taken_at": "2026-12-01T00:00:00"}, "another moment in every time zone"),
        ((), {"calendar": {"cluster": "main"}}, "give the entries here"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[str, ...], fields: Json, says: str, tmp_path: Path) -> None:
    result = run(written(tmp_path / "snapshot.json", *ENTRIES, **fields), *arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert says in result.stderr
