"""The smoke suite from the command line: runs, tables, figures and comparison, as a person would call them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.suite.record import Status, phases_of, read_result
from benchmarks.suite.registry import all_cases, answers_heuristically, find_case, solvers_for, suite_cases
from benchmarks.suite.summary import by_case
from benchmarks.suite.task import RunOrder, measure_task
from models.policies import POLICIES
from solver.monitor import SolveMonitor

# From the command line, each run in a process of its own; the rest of the suite is measured in this one.
IN_PROCESSES = ("sia/waiting/64x20x3", "arnold/table1/ii-scarce")
# Seeds take turns.
OTHERS = [
    ("sia/waiting/64x20x3", "decomposition", 0),
    *(
        (case.name, solvers_for(case.problem, ["highs"])[0], k % 2)
        for k, case in enumerate(suite_cases("smoke"))
        if case.name not in IN_PROCESSES
    ),
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("smoke") / "smoke.json"
    arguments = [
        "run",
        "--cases",
        ",".join(IN_PROCESSES),
        "--solvers",
        "exact,highs",
        "--runs",
        "1",
        "--limit",
        "20",
    ]
    with pytest.MonkeyPatch.context() as patch:
        # A process loads what its case needs, and not what all policies need.
        patch.setattr("benchmarks.suite.run._PRELOAD", ())
        answer = CliRunner().invoke(app, [*arguments, "--output", str(path)])
    assert answer.exit_code == 0, answer.output
    assert "sia/waiting/64x20x3" in answer.output
    return path


def test_every_row_is_proven_checked_and_complete(smoke: Path) -> None:
    result = read_result(smoke)
    assert {(run.case.partition("/")[0], run.solver) for run in result.runs} == {
        ("sia", "highs"),
        ("arnold", "exact"),
        ("arnold", "highs"),
    }
    for run in result.runs:
        assert run.is_proven, run
        assert run.message == ""
        assert {"performance", "build", "solve", "place", "verify"} <= set(phases_of(run))
        assert set(run.wall_s) == set(run.cpu_s)
        assert run.total_cpu_s is not None
        assert run.total_cpu_s == pytest.approx(sum(run.cpu_s.values()))
        assert run.first_incumbent_s is not None
        assert run.trajectory
        assert run.peak_memory_bytes is None or run.peak_memory_bytes > 2**20
        assert (run.solver == "highs") == (set(run.modelling_cpu_s) == {"declare", "compile"})
    for of_case in by_case(result):
        objectives = [summary.runs[0].objective for summary in of_case.values()]
        assert objectives == pytest.approx([objectives[0]] * len(objectives), rel=2e-4)


def test_the_smoke_suite_has_a_case_of_every_policy_and_planner() -> None:
    problems = {case.problem for case in suite_cases("smoke")}
    assert problems == {*POLICIES, "grid", "exhaustive", "incremental"}
    assert {case.problem for case in all_cases().values()} == problems


@pytest.mark.parametrize(("name", "solver", "seed"), OTHERS)
def test_every_other_case_is_checked_and_bounded(name: str, solver: str, seed: int) -> None:
    case = find_case(name)
    order = RunOrder(case=name, seed=seed, run=0, solver=solver, limit_s=20.0, relative_gap=1e-3, modelling=False)
    run = measure_task(order, SolveMonitor())
    assert run.status is Status.ANSWERED, run.message
    assert run.checked is True
    assert run.objective is not None
    assert run.bound is not None
    assert run.relative_gap is not None
    assert run.is_proven or answers_heuristically(case.problem)
    # Of gang's jobs only the size is known: there is no model to be asked, but a queue to be served.
    first = "decide" if case.problem.startswith("gang") else "performance"
    expected = {first, "build", "solve", "place", "verify"} if case.problem in POLICIES else {"build", "solve"}
    assert expected <= set(phases_of(run))
    assert "bound" not in phases_of(run)
    assert run.total_cpu_s is not None


def test_figures(smoke: Path, tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["figures", str(smoke), "--output", str(tmp_path / "pictures")])
    assert answer.exit_code == 0, answer.output
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert {"phases-sia.png", "gap-arnold.svg", "cases-sia.png"} <= names
    assert all(path.stat().st_size > 1000 for path in (tmp_path / "pictures").iterdir())


def test_report(smoke: Path) -> None:
    answer = CliRunner().invoke(app, ["report", str(smoke)])
    assert answer.exit_code == 0, answer.output
    assert "| arnold/table1/ii-scarce | exact | 1/1 | optimal |" in answer.output
    assert "not measured" in answer.output


def test_a_result_does_not_differ_from_itself(smoke: Path) -> None:
    answer = CliRunner().invoke(app, ["compare", str(smoke), str(smoke), "--fail"])
    assert answer.exit_code == 0, answer.output
    assert "nothing changed beyond the noise in 3 pairs" in answer.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--suite", "no-such-suite"],
        ["run", "--cases", "no/such/case"],
        ["run", "--solvers", "simplex"],
        ["figures", "no-such-file.json"],
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(arguments: list[str]) -> None:
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 2
    assert "error: " in answer.output
