"""HiGHS: one passModel of the whole matrix, callbacks for incumbents, bounds and cancellation.

Traps that this file steps around (each has a test):
- the thread count is fixed at the first run of an operating-system thread; another one makes `run` fail without
  a word (kNotset). `resetGlobalScheduler` drops the calling thread's scheduler only, so it is safe before every run;
- a limit without a solution leaves numbers in the solution vector: `primal_solution_status` decides;
- `mip_dual_bound` is 0 for linear programs and infinite for infeasible ones;
- gaps count absolutely as well unless told otherwise.
"""

import time
from functools import cached_property

import highspy
import numpy as np

from solver.backends.base import NativeOutcome, ProgressFeed, conclude
from solver.feasibility import violations
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.sense import Sense
from stowplan.arrays import FloatVector
from stowplan.errors import BackendError

_Status = highspy.HighsModelStatus
_FEASIBILITY_JUMP = "mip_heuristic_run_feasibility_jump"
# What solves programs of its own within a branch and bound, or begins it anew.
_SUB_PROGRAMS = (
    "mip_heuristic_run_rins",
    "mip_heuristic_run_rens",
    "mip_heuristic_run_root_reduced_cost",
    _FEASIBILITY_JUMP,
    "mip_allow_restart",
)

# Parallel columns: HiGHS takes those of nearly the same cost for equal, and fixes the wrong one of an optimum (1.15.1).
_UNSOUND_PRESOLVE = 1 << 13

ENDINGS: dict[highspy.HighsModelStatus, TerminationReason | Limit] = {
    _Status.kNotset: TerminationReason.OTHER_ERROR,
    _Status.kLoadError: TerminationReason.OTHER_ERROR,
    _Status.kModelError: TerminationReason.OTHER_ERROR,
    _Status.kPresolveError: TerminationReason.OTHER_ERROR,
    _Status.kSolveError: TerminationReason.NUMERICAL_ERROR,
    _Status.kPostsolveError: TerminationReason.NUMERICAL_ERROR,
    # Problems without columns never get here.
    _Status.kModelEmpty: TerminationReason.OTHER_ERROR,
    _Status.kOptimal: TerminationReason.OPTIMAL,
    _Status.kInfeasible: TerminationReason.INFEASIBLE,
    _Status.kUnboundedOrInfeasible: TerminationReason.INFEASIBLE_OR_UNBOUNDED,
    _Status.kUnbounded: TerminationReason.UNBOUNDED,
    _Status.kObjectiveBound: Limit.OBJECTIVE,
    _Status.kObjectiveTarget: Limit.OBJECTIVE,
    _Status.kTimeLimit: Limit.TIME,
    _Status.kIterationLimit: Limit.ITERATION,
    _Status.kUnknown: TerminationReason.NUMERICAL_ERROR,
    _Status.kSolutionLimit: Limit.SOLUTION,
    _Status.kInterrupt: Limit.INTERRUPTED,
    _Status.kMemoryLimit: Limit.MEMORY,
    _Status.kHighsInterrupt: Limit.OTHER,  # type: ignore[attr-defined]  # missing in HiGHS's stub
}


class HighsBackend:
    """The HiGHS branch-and-cut and simplex codes."""

    name = "highs"

    @cached_property
    def version(self) -> str:
        """Version of the HiGHS library."""
        return str(highspy.Highs().version())

    def solve(
        self, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor, target: float | None = None
    ) -> SolveResult:
        """Solve `problem`; see the protocol. A solution that is as good as `target` ends the solve."""
        feed = ProgressFeed(monitor=monitor)
        highs = load(problem)
        _set_options(highs, options)
        if target is not None:
            _check(highs.setOptionValue("objective_target", target), "option objective_target")
        _set_start(highs, problem, options.warm_start)
        _subscribe(highs, feed, monitor, is_mip=bool(problem.integrality.any()))
        load_s, cpu_s = feed.elapsed_s(), time.process_time()
        _check(highs.setOptionValue("time_limit", max(0.0, options.time_limit_s - load_s)), "option time_limit")
        highspy.Highs.resetGlobalScheduler(True)
        status = highs.run()
        info = highs.getInfo()
        statistics = SolveStatistics(
            load_s=load_s,
            solve_s=feed.elapsed_s() - load_s,
            solve_cpu_s=time.process_time() - cpu_s,
            first_incumbent_s=feed.first_incumbent_s,
            num_nodes=int(info.mip_node_count) if info.mip_node_count >= 0 else None,
        )
        return conclude(self, problem, _outcome(highs, status, problem), statistics)


def load(problem: MatrixProblem) -> highspy.Highs:
    """Give HiGHS the whole matrix at once; silent.

    Raises
    ------
    BackendError
        When HiGHS refuses it.
    """
    highs = highspy.Highs()
    highs.silent()
    matrix = problem.matrix
    _check(
        highs.passModel(
            problem.num_columns,
            problem.num_rows,
            matrix.nnz,
            int(highspy.MatrixFormat.kColwise),
            int(highspy.ObjSense.kMinimize if problem.sense is Sense.MINIMIZE else highspy.ObjSense.kMaximize),
            problem.offset,
            problem.objective,
            problem.lower,
            problem.upper,
            problem.row_lower,
            problem.row_upper,
            matrix.indptr.astype(np.int32),
            matrix.indices.astype(np.int32),
            matrix.data,
            problem.integrality.astype(np.int32),
        ),
        f"problem {problem.name}",
    )
    return highs


def _check(status: highspy.HighsStatus, what: str) -> None:
    if status == highspy.HighsStatus.kError:
        raise BackendError(f"HiGHS refused {what}")


def _set_options(highs: highspy.Highs, options: SolveOptions) -> None:
    values: dict[str, object] = {
        "threads": options.threads,
        "random_seed": options.seed,
        "mip_rel_gap": options.relative_gap,
        "mip_abs_gap": 0.0,
        "presolve_rule_off": _UNSOUND_PRESOLVE,
    }
    if not options.sub_programs:
        values |= dict.fromkeys(_SUB_PROGRAMS, False)
    if options.log is not None:
        values |= {"log_file": str(options.log), "log_to_console": False, "output_flag": True}
    for name, value in values.items():
        _check(highs.setOptionValue(name, value), f"option {name} = {value!r}")


def _set_start(highs: highspy.Highs, problem: MatrixProblem, start: FloatVector | None) -> None:
    """Give what is known of the start. HiGHS completes it, or drops it when it is of no use."""
    if start is None:
        return
    known = np.flatnonzero(np.isfinite(start))
    if known.size == start.size:
        solution = highspy.HighsSolution()
        solution.col_value = start.tolist()
        highs.setSolution(solution)
        if not violations(problem, start):
            # It looks for a first point, in steps whose number has a floor: most of the time of a small problem.
            _check(highs.setOptionValue(_FEASIBILITY_JUMP, False), f"option {_FEASIBILITY_JUMP}")
    elif known.size:
        highs.setSolution(known.size, known.astype(np.int32), start[known])


def _subscribe(highs: highspy.Highs, feed: ProgressFeed, monitor: SolveMonitor, *, is_mip: bool) -> None:
    def on_interrupt(event: highspy.highs.HighsCallbackEvent) -> None:
        if monitor.canceled.is_set():
            event.interrupt()
        if is_mip:
            feed.bound(event.data_out.mip_dual_bound, int(event.data_out.mip_node_count))

    def on_solution(event: highspy.highs.HighsCallbackEvent) -> None:
        data = event.data_out
        point = np.array(data.mip_solution, dtype=np.float64)
        feed.incumbent(point, data.objective_function_value, data.mip_dual_bound, int(data.mip_node_count))

    for interrupt in (highs.cbMipInterrupt, highs.cbSimplexInterrupt, highs.cbIpmInterrupt):
        interrupt.subscribe(on_interrupt)
    highs.cbMipImprovingSolution.subscribe(on_solution)


def _outcome(highs: highspy.Highs, status: highspy.HighsStatus, problem: MatrixProblem) -> NativeOutcome:
    info = highs.getInfo()
    native = highs.getModelStatus()
    message = f"HiGHS: {highs.modelStatusToString(native)}"
    ending = ENDINGS[native]
    if status == highspy.HighsStatus.kError:
        failure = ending if ending is TerminationReason.NUMERICAL_ERROR else TerminationReason.OTHER_ERROR
        return NativeOutcome(ending=failure, message=f"{message}, run failed")
    feasible = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    return NativeOutcome(
        ending=ending,
        point=np.array(highs.getSolution().col_value) if feasible else None,
        bound=float(info.mip_dual_bound) if problem.integrality.any() else None,
        message=message,
    )
