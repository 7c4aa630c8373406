"""`stowplan forecast`: training with report and picture, showing, predicting, and what is refused."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli.exit_codes import ExitCode
from api.cli.forecast import FORECAST_COMMANDS
from api.cli.main import app
from models.forecast import extra
from tests.api.requests import Json, sia_request
from tests.models.forecast.histories import made_history
from workloads.writer import write_csv


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["forecast", *(str(argument) for argument in arguments)])


def written(folder: Path, document: object) -> Path:
    path = folder / "jobs.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "site.csv"
    write_csv(made_history(), path)
    return path


@pytest.fixture(scope="module")
def forecaster(history: Path) -> Path:
    path = history.with_name("forecaster.json")
    result = run("train", history, "-o", path, "--threads", 1)
    assert result.exit_code == ExitCode.PLANNED, result.output
    return path


@pytest.mark.parametrize("name", FORECAST_COMMANDS)
def test_the_help_says_of_a_command_what_it_says_itself(name: str) -> None:
    command = FORECAST_COMMANDS[name].load()
    assert (command.name, (command.help or "").splitlines()[0]) == (name, FORECAST_COMMANDS[name].summary)


def test_the_report_is_printed_and_the_same_when_it_is_shown(history: Path, forecaster: Path, tmp_path: Path) -> None:
    trained = run("train", history, "-o", tmp_path / "f.json", "--threads", 1)
    assert trained.stdout == run("show", forecaster).stdout
    assert (tmp_path / "f.json").read_bytes() == forecaster.read_bytes()
    lines = [line.split() for line in trained.stdout.splitlines()]
    jobs_line = ["jobs", "that", "ended", "480", "learned", "from,", "60", "calibrate,", "60", "test"]
    assert jobs_line in lines
    assert [line[0] for line in lines if line and line[-1][-3:-2] == "."] == ["forecaster", "history", "same", "last"]
    report = json.loads(run("show", forecaster, "--json").stdout)
    assert [score["predictor"] for score in report["scores"]] == ["forecaster", "history", "same group", "last jobs"]


@pytest.mark.slow
def test_the_report_is_drawn(forecaster: Path, tmp_path: Path) -> None:
    figure = tmp_path / "report.svg"
    result = run("show", forecaster, "--figure", figure)
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert "probability that was said" in figure.read_text()


def test_jobs_are_told_how_long_they_last(forecaster: Path, tmp_path: Path) -> None:
    jobs = [
        {"id": "short", "num_gpus": 1, "user": "anna"},
        {"id": "long", "num_gpus": 1, "user": "bert"},
        {"id": "endless", "num_gpus": 1, "user": "bert", "age_s": 1e9},
    ]
    path = written(tmp_path, {"jobs": jobs})
    lines = {line.split()[0]: line for line in run("predict", forecaster, path).stdout.splitlines()}
    assert " min " in lines["short"]
    assert " h " in lines["long"] or " min " in lines["long"]
    assert lines["endless"].count("nobody knows") == 4
    document = json.loads(run("predict", forecaster, path, "--json").stdout)
    seconds = {one["id"]: one["lasting"] and one["lasting"]["seconds"] for one in document["forecasts"]}
    assert max(seconds["short"]) < max(seconds["long"])
    assert seconds["short"] == sorted(seconds["short"])
    assert seconds["endless"] is None


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"jobs": []}, "/jobs:"),
        ({"jobs": [{"id": "a", "num_gpus": -1}]}, "/jobs/0/num_gpus:"),
        ({"jobs": [{"id": "a", "num_gpus": 1}, {"id": "a", "num_gpus": 1}]}, "/jobs/1/id:"),
        ({"jobs": [{"id": "a", "num_gpus": 1}], "since": {"name": "s", "jobs": [
            {"id": "b", "num_gpus": 1, "submit_s": 5, "duration_s": -1}]}}, "/since/jobs/0/duration_s:"),
        ({"jobs": [{"id": "a", "num_gpus": 1}], "since": {"name": "s", "origin_s": 0, "jobs": [
            {"id": "b", "num_gpus": 1, "submit_s": 5}, {"id": "c", "num_gpus": 1, "submit_s": 4}]}},
         "/since/jobs/1/submit_s:"),
        ({"jobs": [{"id": "a", "num_gpus": 1}], "since": {"name": "s", "jobs": [
            {"id": "b", "num_gpus": 1, "submit_s": 5}]}}, "/since/origin_s:"),
    ],
)  # fmt: skip
def test_questions_that_are_wrong_say_where(document: object, pointer: str, forecaster: Path, tmp_path: Path) -> None:
    result = run("predict", forecaster, written(tmp_path, document))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert pointer in result.stderr


def test_what_cannot_be_learned_is_refused(tmp_path: Path, forecaster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = tmp_path / "few.csv"
    write_csv(made_history(3), few)
    result = run("train", few, "-o", tmp_path / "none.json")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "3 of 3 jobs ended" in result.stderr
    assert not (tmp_path / "none.json").exists()
    assert run("show", few).exit_code == ExitCode.BAD_INPUT
    monkeypatch.setattr(extra, "find_spec", lambda _: None)
    missing = run("predict", forecaster, written(tmp_path, {"jobs": [{"id": "a", "num_gpus": 1}]}))
    assert missing.exit_code == ExitCode.OUR_FAULT
    assert "pip install -e '.[forecast]'" in missing.stderr


@pytest.mark.slow
def test_a_plan_goes_by_a_forecaster_in_a_file(forecaster: Path, tmp_path: Path) -> None:
    """The node is closed in an hour; jobs of anna take minutes, those of bert hours."""
    entry = {"name": "service", "kind": "maintenance", "from_time": "2024-10-04T11:00:00Z", "nodes": ["n0", "n1"]}
    jobs = [{"id": "short", "user": "anna"}, {"id": "long", "user": "bert"}]
    request = sia_request(jobs, policy="gang", parameters={"epsilon": 0.2})
    request["snapshot"] |= {
        "taken_at": "2024-10-04T10:00:00Z",
        "calendar": [{**entry, "until_time": "2024-10-05T00:00:00Z"}],
    }
    path = written(tmp_path, request)
    assert planned("plan", path, "--json")["allocations"] == []
    plan = planned("plan", path, "--forecaster", forecaster, "--json")
    assert [job["job_id"] for job in plan["allocations"]] == ["short"]
    assert [note["code"] for note in plan["warnings"]][:1] == ["forecast"]
    compared = planned("what-if", path, "--forecaster", forecaster, "--remove-job", "long", "--json")
    assert [
        [job["job_id"] for job in one["allocations"]] for one in (compared["base"], compared["variants"][0]["plan"])
    ] == [
        ["short"],
        ["short"],
    ]
    answer = path.with_name("answer.json")
    answer.write_text(json.dumps(plan))
    legal = planned("verify", path, answer, "--forecaster", forecaster, "--epsilon", 0.2, "--json")
    assert legal == {"legal": True, "violations": []}
    without = CliRunner().invoke(app, ["verify", str(path), str(answer), "--epsilon", "0.2"])
    assert without.exit_code == ExitCode.ILLEGAL
    wrong = CliRunner().invoke(app, ["plan", str(path), "--forecaster", str(path)])
    assert wrong.exit_code == ExitCode.BAD_INPUT
    assert str(path) in wrong.stderr
    named = written(tmp_path, {**request, "snapshot": {**request["snapshot"], "forecaster": "site"}})
    refused = CliRunner().invoke(app, ["plan", str(named)])
    assert refused.exit_code == ExitCode.BAD_INPUT
    assert "--forecaster FILE" in " ".join(refused.stderr.split())


def planned(*arguments: object) -> Json:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == ExitCode.PLANNED, result.output
    document: Json = json.loads(result.stdout)
    return document
