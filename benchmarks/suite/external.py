"""GLPK and CBC, which the authors of Sia used, as executables on the path: same instance, same limit, same check.

The problem goes to them as an MPS file, minimised, its constant as the cost of a column that is fixed to 1, so that a
relative gap means the same to everybody. What they say about themselves is read from their files and output; the point
is rounded, its objective computed here, and the plan placed and checked as that of any other solver. A proof is
believed as far as the bound goes that they print; CBC prints six digits of it.
"""

import math
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from scipy import sparse

from models.clock import PhaseClock
from models.comparison import HistoryPoint, RunFailure, SolverRun
from models.formulation import Formulation
from models.plan import PlanOutcome, PlanRequest
from models.planning import formulate
from solver.export import write_mps
from solver.feasibility import violations
from solver.monitor import SolveMonitor
from solver.problem import MatrixProblem
from solver.result import Limit, SolveStatistics, TerminationReason
from solver.sense import Sense
from stowplan.arrays import FloatVector
from stowplan.errors import UnverifiedPlanError

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
# Wall-clock seconds beyond the limit before a process that does not stop is killed.
_GRACE_S = 5.0
_POLL_S = 0.01
_SAMPLED_S = 0.1
_BYTES_PER_KIB = 1024
# Printed bounds are rounded to six digits.
_PRINTED = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAnswer:
    """What an executable says. x: point (n + 1,) with the fixed column last, None without one."""

    x: FloatVector | None
    bound: float | None
    is_infeasible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSolver:
    """How to call an executable, and how to read its answer from its output and solution file."""

    program: str
    command: Callable[[Path, Path, float, float], list[str]]
    read: Callable[[str, str, int], ExternalAnswer]


def plan_externally(request: PlanRequest, monitor: SolveMonitor) -> SolverRun:  # noqa: ARG001 - as `traced_task`
    """Plan with the external solver that the options name."""
    name, options = request.options.solver, request.options
    program = shutil.which(EXTERNAL_SOLVERS[name].program)
    if program is None:
        detail = f"{EXTERNAL_SOLVERS[name].program} is not on the path"
        return SolverRun(solver=name, outcome=None, failure=RunFailure(code="not_installed", detail=detail), history=())
    clock = PhaseClock()
    formulation = formulate(request, clock)
    with clock.phase("load"):
        problem = formulation.problem
    with tempfile.TemporaryDirectory() as folder:
        model, solution = Path(folder, "model.mps"), Path(folder, "solution")
        with clock.phase("export"):
            model.write_text(write_mps(for_export(problem)), encoding="utf-8")
        arguments = EXTERNAL_SOLVERS[name].command(model, solution, options.time_limit_s, options.relative_gap)
        ended = _run([program, *arguments], options.time_limit_s + _GRACE_S)
        written = solution.read_text(encoding="utf-8") if solution.is_file() else ""
    answer = EXTERNAL_SOLVERS[name].read(ended.output, written, problem.num_columns + 1)
    outcome = _outcome(name, request, formulation, answer, ended, clock)
    end = HistoryPoint(elapsed_s=ended.wall_s, objective=outcome.objective, bound=outcome.bound)
    return SolverRun(solver=name, outcome=outcome, failure=None, history=(end,))


def for_export(problem: MatrixProblem) -> MatrixProblem:
    """The problem (n columns), minimised, without names, its constant as the cost of column n + 1, fixed to 1."""
    last = np.ones(1)
    return replace(
        problem,
        sense=Sense.MINIMIZE,
        objective=problem.sense.sign * np.concatenate([problem.objective, [problem.offset]]),
        offset=0.0,
        matrix=sparse.csc_array(sparse.hstack([problem.matrix, sparse.csc_array((problem.num_rows, 1))])),
        lower=np.concatenate([problem.lower, last]),
        upper=np.concatenate([problem.upper, last]),
        integrality=np.concatenate([problem.integrality, [False]]),
        column_names=(),
        row_names=(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How a process ended. `peak_memory_bytes`: sampled, so at most a little too low; None where it was too short."""

    output: str
    wall_s: float
    cpu_s: float
    peak_memory_bytes: int | None
    killed: bool


def _run(command: list[str], deadline_s: float) -> _Ended:
    """Run to the end or the deadline, whatever comes first."""
    start_s = time.perf_counter()
    peak, killed = None, False
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as process:
            while True:
                peak = _peak_bytes(process.pid) or peak
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    break
                if time.perf_counter() - start_s > deadline_s and not killed:
                    process.kill()
                    killed = True
                time.sleep(_POLL_S)
        wall_s = time.perf_counter() - start_s
        output.seek(0)
        return _Ended(
            output=output.read(),
            wall_s=wall_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_memory_bytes=peak if wall_s > _SAMPLED_S else None,
            killed=killed,
        )


def _peak_bytes(pid: int) -> int | None:
    """Largest resident set of another process so far."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * _BYTES_PER_KIB
    return None


def _outcome(
    name: str,
    request: PlanRequest,
    formulation: Formulation,
    answer: ExternalAnswer,
    ended: _Ended,
    clock: PhaseClock,
) -> PlanOutcome:
    """Believe the point as far as it holds, and the bound as far as it was printed."""
    problem, plan = formulation.problem, None
    point = None if answer.x is None else np.where(problem.integrality, np.rint(answer.x[:-1]), answer.x[:-1])
    if point is not None and violations(problem, point):
        raise UnverifiedPlanError(f"{name} returned an infeasible point", [])
    objective = None if point is None else problem.value(point)
    bound = None if answer.bound is None else problem.sense.sign * answer.bound
    gap = _gap(problem.sense, objective, bound)
    reason = TerminationReason.INFEASIBLE if answer.is_infeasible else TerminationReason.NO_SOLUTION_FOUND
    if objective is not None and point is not None:
        proven = gap is not None and gap <= request.options.relative_gap + _PRINTED
        reason = TerminationReason.OPTIMAL if proven else TerminationReason.FEASIBLE
        plan = formulation.extract(point, clock)
        with clock.phase("verify"):
            found = formulation.violations(plan, objective)
        if found:
            raise UnverifiedPlanError(f"the plan of {name} failed {len(found)} checks", found)
    early = reason in (TerminationReason.FEASIBLE, TerminationReason.NO_SOLUTION_FOUND)
    times = clock.times()
    return PlanOutcome(
        termination=reason,
        limit=(Limit.DEADLINE if ended.killed else Limit.TIME) if early else None,
        sense=problem.sense.value,
        objective=objective,
        bound=bound,
        relative_gap=gap,
        plan=plan,
        conflicts=(),
        warnings=(),
        times=replace(
            times,
            wall_s=_inserted(times.wall_s, ended.wall_s),
            phase_cpu_s=_inserted(times.phase_cpu_s, ended.cpu_s),
            peak_memory_bytes=ended.peak_memory_bytes,
        ),
        statistics=SolveStatistics(
            num_columns=problem.num_columns, num_rows=problem.num_rows, num_nonzeros=int(problem.matrix.nnz)
        ),
        solver=name,
        solver_version="",
        certificate=f"as printed by {name}",
    )


def _inserted(phases: Mapping[str, float], solve_s: float) -> dict[str, float]:
    """The phases with the external solve after the export."""
    ordered: dict[str, float] = {}
    for phase, seconds in phases.items():
        ordered[phase] = seconds
        if phase == "export":
            ordered["solve"] = solve_s
    return ordered


def _gap(sense: Sense, objective: float | None, bound: float | None) -> float | None:
    if objective is None or bound is None:
        return None
    return max(0.0, sense.sign * (objective - bound)) / max(abs(objective), 1e-10)


def _glpk_command(model: Path, solution: Path, limit_s: float, gap: float) -> list[str]:
    limit = ["--tmlim", str(max(1, math.ceil(limit_s)))]
    return ["--freemps", str(model), *limit, "--mipgap", str(gap), "--write", str(solution)]


def read_glpk(output: str, solution: str, num_columns: int) -> ExternalAnswer:
    """Read `glpsol --write`: `s mip rows columns status objective`, then `j column value`."""
    lines = [line.split() for line in solution.splitlines()]
    status = next((line[4] for line in lines if line[:2] == ["s", "mip"]), "u")
    if status == "n" or "PROBLEM HAS NO PRIMAL FEASIBLE SOLUTION" in output:
        return ExternalAnswer(x=None, bound=None, is_infeasible=True)
    bounds = re.findall(rf"(?:mip|>>>>>).*?>=\s+({_NUMBER}|tree is empty)", output)
    last = next((text for text in reversed(bounds) if text != "tree is empty"), None)
    if status not in ("o", "f"):
        return ExternalAnswer(x=None, bound=None if last is None else float(last))
    x = np.zeros(num_columns)
    for line in lines:
        if line[:1] == ["j"]:
            x[int(line[1]) - 1] = float(line[2])
    objective = float(next(line[5] for line in lines if line[:2] == ["s", "mip"]))
    if status == "o" or (bounds and bounds[-1] == "tree is empty"):
        return ExternalAnswer(x=x, bound=objective)
    return ExternalAnswer(x=x, bound=None if last is None else float(last))


def _cbc_command(model: Path, solution: Path, limit_s: float, gap: float) -> list[str]:
    limit = ["-timeMode", "elapsed", "-sec", str(limit_s)]
    return [str(model), *limit, "-ratioGap", str(gap), "-solve", "-solution", str(solution)]


def read_cbc(output: str, solution: str, num_columns: int) -> ExternalAnswer:
    """Read `cbc -solution`: a line about the status, then `index name value reduced cost` of what is not 0."""
    result = re.search(r"Result - (.*)", output)
    words = "" if result is None else result[1]
    if "infeasible" in words.lower():
        return ExternalAnswer(x=None, bound=None, is_infeasible=True)
    printed = re.search(rf"Lower bound:\s+({_NUMBER})", output)
    found = re.search(rf"Objective value:\s+({_NUMBER})", output)
    bound = None if printed is None else float(printed[1]) - _PRINTED * abs(float(printed[1]))
    head, *lines = solution.splitlines() or [""]
    if found is None or not lines or "nfeasible" in head:
        return ExternalAnswer(x=None, bound=bound)
    x = np.zeros(num_columns)
    for line in lines:
        index, _, value, _ = line.split()[-4:]
        x[int(index)] = float(value)
    if words.startswith("Optimal solution found") and bound is None:
        bound = float(found[1]) - _PRINTED * abs(float(found[1]))
    return ExternalAnswer(x=x, bound=bound)


EXTERNAL_SOLVERS: Mapping[str, ExternalSolver] = MappingProxyType(
    {
        "glpk": ExternalSolver(program="glpsol", command=_glpk_command, read=read_glpk),
        "cbc": ExternalSolver(program="cbc", command=_cbc_command, read=read_cbc),
    }
)
