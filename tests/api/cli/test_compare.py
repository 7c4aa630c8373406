"""`stowplan compare-solvers`: answers, picture, messages and exit codes. Every solver costs a worker, so few run."""

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import api.comparisons.race
from api.cli.compare import compare_locally
from api.cli.exit_codes import ExitCode
from api.cli.files import load_request
from api.cli.local_worker import Watcher
from api.cli.main import app
from api.convert.comparison import result_document
from api.schemas.comparison import ComparisonResultDoc
from models.comparison import SolverRun
from solver.monitor import Progress
from solver.pool import WorkerPool
from solver.registry import SOLVER_NAMES
from solver.result import Limit
from tests.api import comparison_tasks
from tests.api.requests import sia_request
from tests.api.warm import WarmPool

pytestmark = pytest.mark.slow


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare-solvers", *(str(argument) for argument in arguments)])


@pytest.fixture
def warm(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solvers share workers that are there."""
    monkeypatch.setattr(api.comparisons.race, "WorkerPool", lambda **_: WarmPool(pool))


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(sia_request(options={"solver": "portfolio", "seed": 3})))
    return path


def test_json_and_picture(request_file: Path, tmp_path: Path) -> None:
    figure = tmp_path / "deep" / "comparison.png"
    result = run(request_file, "--solvers", "highs, scip", "--gap", "0", "--json", "--figure", figure)
    assert result.exit_code == ExitCode.PLANNED, result.output
    document = ComparisonResultDoc.model_validate_json(result.stdout)
    # The solver that the file names gives way.
    assert [row.solver for row in document.runs] == ["highs", "scip"]
    assert (document.options.seed, document.options.relative_gap) == (3, 0.0)
    assert document.agreement is not None
    assert document.agreement.agree
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["highs", "scip"]
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("warm")
def test_tables_and_what_failed(request_file: Path) -> None:
    result = run(request_file, "--solvers", "exact,highs", "--parameters", '{"fairness_power": 1}')
    assert result.exit_code == ExitCode.PLANNED, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert any(line[:2] == ["highs", "highs"] and line[3:4] == ["optimal"] and line[-1] == "yes" for line in lines)
    assert any(line[:2] == ["solver", "validate"] and "peak" in line for line in lines)
    assert "exact failed: the solver is 'exact', which is an algorithm of arnold" in result.stdout
    assert "only highs proved its answer" in result.stdout


@pytest.mark.usefixtures("warm")
def test_contradicting_answers_are_our_fault(request_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = f"{comparison_tasks.__name__}:{comparison_tasks.lying_task.__name__}"
    monkeypatch.setattr(api.comparisons.race, "RUN_TASK", task)
    result = run(request_file, "--solvers", "highs,scip")
    assert result.exit_code == ExitCode.OUR_FAULT
    assert "NOT ALL ANSWERS CAN BE RIGHT" in result.stdout
    assert "scip proved the bound 99, but highs has the objective" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--solvers", "highs,gurobi"], "--solvers names 'gurobi'; the solvers are " + ", ".join(SOLVER_NAMES)),
        (["--solvers", ","], "--solvers names no solver; the solvers are auto"),
        (["--solvers", "highs,highs"], "list each solver once"),
        (["--policy", "arnold"], "is a request for policy 'sia', not 'arnold'"),
        (["--threads", "0"], "/options/threads: is 0"),
        (["--figure", "x.pdf"], "must end in .svg or .png"),
    ],
)
def test_bad_input(arguments: list[str], message: str, request_file: Path) -> None:
    result = run(request_file, *arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.usefixtures("warm")
def test_ctrl_c_stops_the_one_that_runs_and_leaves_out_the_rest(
    request_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = f"{comparison_tasks.__name__}:{comparison_tasks.patient_task.__name__}"
    monkeypatch.setattr(api.comparisons.race, "RUN_TASK", task)
    request = load_request(request_file).request
    seen: list[str] = []

    def interrupt_once(progress: Progress | None, _: float) -> None:
        if progress is not None and progress.objective is not None and not seen:
            seen.append("interrupted")
            raise KeyboardInterrupt

    def watching(_: str) -> AbstractContextManager[Watcher]:
        return nullcontext(Watcher(on_progress=interrupt_once, on_stop=lambda: seen.append("stopping")))

    def note(run_: SolverRun) -> None:
        seen.append(run_.solver)

    scip, highs = compare_locally(request, ("scip", "highs"), watching, note)
    assert seen == ["interrupted", "stopping", "scip", "highs"]
    assert scip.outcome is not None
    assert scip.outcome.limit is Limit.INTERRUPTED
    assert highs.failure is not None
    assert highs.failure.code == "canceled"
    judged: Any = result_document(request, ("scip", "highs"), [scip, highs]).agreement
    assert judged.agree is None
