"""`stowplan replay`: figures of policies side by side, JSON, going on from a file."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli.exit_codes import ExitCode
from api.cli.main import app
from tests.workloads.profiles import write_profiles

# a runs, b needs the whole node, c ends before b can start, d does not.
TRACE = "id,submit_s,num_gpus,duration_s\na,0,4,100\nb,10,8,50\nc,20,4,30\nd,25,4,200\ne,26,0,1\n"
NODE = ("--cluster", "a100=a100:1x8")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["replay", *(str(argument) for argument in arguments)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "four.csv"
    path.write_text(TRACE)
    return path


def test_policies_stand_beside_each_other(trace: Path) -> None:
    picture = trace.with_name("replays.svg")
    result = run(trace, *NODE, "--policies", "gang,gang-ilp", "--processes", 1, "--figure", picture)
    assert result.exit_code == ExitCode.PLANNED, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["four", "on", "8", "GPUs"] in lines
    assert ["gang", "gang-ilp"] in lines
    assert ["makespan", "5.8", "min", "5.8", "min"] in lines
    assert ["jobs", "that", "ended", "4", "of", "4", "4", "of", "4"] in lines
    assert ">gang-ilp<" in picture.read_text()
    assert "left out: 1 jobs of which it is not known how long they run" in result.stdout


def test_parameters_choose_what_is_done(trace: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "replay.json"
    result = run(trace, *NODE, "--backfill", "none", "--json", "-o", output)
    assert result.exit_code == ExitCode.PLANNED, result.output
    document = json.loads(result.stdout)
    assert json.loads(output.read_text()) == document
    (replay,) = document["replays"]
    assert {job["id"]: job["ended_s"] for job in replay["jobs"]} == {"a": 100, "b": 150, "c": 180, "d": 350}
    assert (replay["policy"], replay["num_gpus"], replay["completion_s"]["mean"]) == ("gang", 8, 181.25)


def test_seeds_and_policies_with_parameters_run_side_by_side(trace: Path) -> None:
    """The answer is that of one after another, whatever comes to its end first."""
    chosen = ("--policies", "gang", "--policy", 'gang:{"backfill": "none"}', "--seeds", 2, "--noise", 0.5)
    result = run(trace, *NODE, *chosen, "--processes", 2)
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert "That was seed 0. Of 2 seeds, mean (least to most):" in result.stdout
    assert ["gang", "backfill", "none"] in [line.split() for line in result.stdout.splitlines()]
    apart, alone = (
        json.loads(run(trace, *NODE, *chosen, "--processes", n, "--json").stdout)["replays"] for n in (2, 1)
    )
    assert [(one["parameters"], one["seed"], one["jobs"]) for one in apart] == [
        (one["parameters"], one["seed"], one["jobs"]) for one in alone
    ]
    assert [one["parameters"] for one in alone] == [{}, {}, {"backfill": "none"}, {"backfill": "none"}]


def test_a_replay_goes_on_from_a_file(trace: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    first = run(trace, *NODE, "--state", state, "--json")
    kept = json.loads(state.read_text())
    assert kept["simulation"]["num_submitted"] == 4
    again = run(trace, *NODE, "--state", state, "--json")
    jobs = [json.loads(result.stdout)["replays"][0]["jobs"] for result in (first, again)]
    assert jobs[0] == jobs[1]
    other = run(trace, *NODE, "--state", state, "--seed", 1)
    assert (other.exit_code, "the state is of another replay" in other.stderr) == (ExitCode.BAD_INPUT, True)


def test_what_did_not_end_is_told(trace: Path) -> None:
    result = run(trace, *NODE, "--horizon", 0.05, "--window", "0,1")
    assert "gang: 1 jobs did not end" in result.stdout


RESERVATION = {
    "name": "for d",
    "kind": "reservation",
    "from_time": "2026-12-07T09:00:10Z",
    "until_time": "2026-12-07T09:03:00Z",
    "nodes": ["a100-0"],
}
ORIGIN = ("--origin", "2026-12-07T09:00:00Z")


@pytest.mark.parametrize(
    "document", [[RESERVATION], {"entries": [], "reservations": [{"entry": RESERVATION}]}, {"calendar": [RESERVATION]}]
)
def test_calendars_of_files(trace: Path, document: object) -> None:
    """a runs when the calendar becomes known and leaves at 10 s, b and c wait until 180 s; d comes to its own node."""
    file = trace.with_name("calendar.json")
    file.write_text(json.dumps(document))
    result = run(
        trace, *NODE, "--calendar", file, *ORIGIN, "--reserved", "d=for d", "--calendar-known", 0.001, "--json"
    )
    assert result.exit_code == ExitCode.PLANNED, result.output
    (replay,) = json.loads(result.stdout)["replays"]
    jobs = {job["id"]: job for job in replay["jobs"]}
    assert [(span["start_s"], span["end_s"]) for span in jobs["a"]["spans"]][:1] == [(0, 10)]
    assert (jobs["d"]["started_s"], jobs["d"]["ended_s"]) == (25, 225)
    assert min(jobs[name]["started_s"] for name in "bc") >= 180


def test_calendars_that_do_not_go_with_the_replay(trace: Path) -> None:
    file = trace.with_name("calendar.json")
    for entry, arguments, detail in (
        (RESERVATION, (), "give --origin"),
        (RESERVATION | {"nodes": ["n0"]}, ORIGIN, "names node 'n0', which the cluster does not have"),
        (RESERVATION, ("--origin", "2027-01-01T00:00:00Z"), "begins 2027-01-01T00:00:00+00:00"),
        (RESERVATION, (*ORIGIN, "--reserved", "x=for d"), "has no job 'x'"),
        (RESERVATION, (*ORIGIN, "--reserved", "d"), "must be JOB=ENTRY"),
        (RESERVATION, (*ORIGIN, "--reserved", "d=for e"), "no reservation of that name"),
        (RESERVATION | {"until": 3}, ORIGIN, "there is no field 'until'"),
    ):
        file.write_text(json.dumps([entry]))
        result = run(trace, *NODE, "--calendar", file, *arguments)
        assert result.exit_code == ExitCode.BAD_INPUT, result.output
        assert detail in " ".join(result.stderr.split())
    for moment in ("2026-12-07T09:00:00", "monday"):
        result = run(trace, *NODE, "--calendar", file, "--origin", moment)
        assert f"--origin is '{moment}'; must be a moment with its time zone" in result.stderr
    result = run(trace, *NODE, "--calendar", trace, *ORIGIN)
    assert (result.exit_code, result.stderr.count(str(trace))) == (ExitCode.BAD_INPUT, 1)
    file.write_text('{"nodes": []}')
    assert "has no list of entries" in " ".join(run(trace, *NODE, "--calendar", file, *ORIGIN).stderr.split())
    assert "there is no --calendar" in run(trace, *NODE, "--reserved", "d=for d").stderr


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        (
            ("--policies", "sia"),
            "'sia' has to know more of jobs than their sizes; give --performance; choose of gang, gang-ilp",
        ),
        (("--policies", "best"), "'best' is no policy"),
        (("--backfill", "some"), "/backfill"),
        (("--policy", "gang:[]"), "must be a JSON object"),
        (("--policy", 'gang:{"speed": 1}'), "/speed"),
        (("--mtbf", "10"), "failures of nodes are drawn until a horizon"),
        (("--round", "0"), "round_s is 0.0"),
        (("--noise", "-1"), "noise is -1.0"),
        (("--cluster", "abacus:4"), "abacus"),
        (("--cluster", "h100"), "'h100' is none; write GPU:NODES"),
        (("--cluster", "h100:0"), "must have 1 to 100,000 nodes"),
        (("--figure", "replays.pdf"), "must end in .svg or .png"),
        (("--window", "5"), "--window is '5'"),
        (("--policies", "gang,gang"), "'gang' is named twice with the same parameters"),
        (("--policies", "gang", "--policy", 'gang:{"backfill": "easy"}'), "'gang' is named twice"),
        (("--seeds", "2", "--state", "x.json"), "--state is of one replay; there are 2"),
        (("--policies", "gang,gang-ilp", "--state", "x.json"), "--state is of one replay; there are 2"),
    ],
)
def test_what_is_wrong_is_told(trace: Path, arguments: tuple[str, ...], detail: str) -> None:
    result = run(trace, *NODE, *arguments)
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert detail in result.stderr


def test_tables_of_throughputs(tmp_path: Path) -> None:
    trace = tmp_path / "one.csv"
    trace.write_text("id,submit_s,num_gpus,application,global_batch,iterations\nx,0,2,m,10,300\n")
    table = tmp_path / "speeds.csv"
    table.write_text(
        "application,global_batch,gpu_type,num_gpus,num_nodes,samples_per_s\nm,10,a,1,1,10\nm,10,a,4,1,30\n"
    )
    chosen = ("--performance", table, "--policies", "arena,gang,gavel", "--processes", 1, "--json")
    result = run(trace, "--cluster", "a=h100:1x8", *chosen)
    assert result.exit_code == ExitCode.PLANNED, result.output
    ends = {replay["policy"]: replay["jobs"][0]["ended_s"] for replay in json.loads(result.stdout)["replays"]}
    # What comes nearest to 2 GPUs is one.
    assert ends == pytest.approx({"arena": 100, "gang": 300, "gavel": 300})
    elsewhere = run(trace, "--cluster", "h100:1", *chosen)
    assert elsewhere.exit_code == ExitCode.BAD_INPUT
    assert "knows none of the 1 jobs of 'one' on h100; it has m at 10 on a" in elsewhere.stderr
    assert run(trace, *NODE, "--policies", "gang").stderr.startswith("error: none of the 1 jobs of 'one' has GPUs and")
    other = run(trace, "--cluster", "a=h100:1x8", "--performance", table, "--policies", "arena", "--order", "fifo")
    assert "--order is of gang, which is not named" in other.stderr
    suika = run(trace, "--cluster", "a=h100:1x8", "--performance", table, "--policies", "suika")
    assert (
        "'suika' goes by more than throughputs; give --modelled; choose of sia, arena, arena-ilp, gang, gang-ilp"
        in suika.stderr
    )


def test_models_of_the_catalogue(tmp_path: Path) -> None:
    trace = tmp_path / "trainings.csv"
    trace.write_text(
        "id,submit_s,num_gpus,application,global_batch,duration_s\n"
        "a,0,1,gpt2-350m,64,100\nb,10,2,gpt2-350m,64,100\nc,20,2,my-model,64,100\n"
    )
    result = run(trace, "--cluster", "h100:4x1", "--modelled", "--policies", "gang,gavel,suika", "--json")
    assert result.exit_code == 0, result.stderr
    gang, gavel, suika = json.loads(result.stdout)["replays"]
    assert (gang["num_jobs"], gang["num_left_out"]) == (2, 1)
    assert gang["completion_s"]["mean"] == gavel["completion_s"]["mean"] == pytest.approx(100)
    assert suika["completion_s"]["mean"] < 100
    arnold = run(trace, *NODE, "--modelled", "--policies", "arnold")
    assert "'arnold' places single jobs, and does not choose among those that come and go; choose of" in arnold.stderr
    both = run(trace, *NODE, "--modelled", "--performance", trace)
    assert "--performance and --modelled each say how fast jobs are; give one of them" in both.stderr
    assert "'suika' goes by more than throughputs; give --modelled" in run(trace, *NODE, "--policies", "suika").stderr


def test_folders_of_measured_applications(tmp_path: Path) -> None:
    trace = tmp_path / "one.csv"
    trace.write_text("name,time,application,num_replicas,batch_size\nx,0,m,2,20\n")
    folder = tmp_path / "profiles"
    folder.mkdir()
    write_profiles(folder)
    chosen = ("--cluster", "a=h100:2x4", "--performance", folder, "--processes", 1)
    result = run(trace, *chosen, "--policies", "sia,gang", "--round", 60, "--settle", "--told", "released", "--json")
    assert result.exit_code == ExitCode.PLANNED, result.output
    replays = {replay["policy"]: replay for replay in json.loads(result.stdout)["replays"]}
    assert [replay["num_finished"] for replay in replays.values()] == [1, 1]
    assert replays["gang"]["jobs"][0]["ended_s"] == pytest.approx(60 + 100 / (4 / 3 / 1.1) + 98 / (1.6 / 1.1))
    arena = run(trace, *chosen, "--policies", "arena")
    assert "'arena' does not go by goodput; give --modelled; choose of sia, gang, gang-ilp" in arena.stderr
    nameless = tmp_path / "nameless.csv"
    nameless.write_text("id,submit_s,num_gpus,duration_s\nx,0,2,20\n")
    unknown = run(nameless, *chosen, "--policies", "sia")
    assert "no job of 'nameless' says which application it is, by which" in unknown.stderr
    elsewhere = run(trace, "--cluster", "h100:1", "--performance", folder, "--policies", "sia")
    assert "has no placements of m on h100; there should be files APPLICATION/placements-TYPE.csv" in elsewhere.stderr
