"""How an algorithm answers beside the program that bounds it."""

import time
from collections.abc import Callable
from dataclasses import replace

from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import SolveResult, TerminationReason
from stowplan import __version__
from stowplan.arrays import FloatVector

_LEAST_TIME_S = 1e-3


def answer_beside_bound(
    problem: MatrixProblem,
    point: FloatVector,
    options: SolveOptions,
    monitor: SolveMonitor,
    *,
    prove: Callable[[SolveOptions, SolveMonitor], SolveResult],
    message: str,
) -> SolveResult:
    """The algorithm's `point` (n,) of a maximisation, and the bound that solving it gives, within the options.

    Parameters
    ----------
    prove
        Solves the problem.
    message
        What the algorithm did.
    """
    started = time.perf_counter()
    objective = problem.value(point)
    monitor.on_progress(Progress(elapsed_s=0.0, objective=objective, incumbent=point))

    def tell(progress: Progress) -> None:
        # Whoever watches sees the algorithm's incumbent, and of the program only the bound.
        monitor.on_progress(replace(progress, objective=objective, incumbent=None))

    left_s = max(_LEAST_TIME_S, options.time_limit_s - (time.perf_counter() - started))
    proof = prove(replace(options, time_limit_s=left_s), replace(monitor, on_progress=tell))
    # A bound that rounding puts below the point is the point's own value.
    bound = None if proof.bound is None else max(proof.bound, objective)
    is_proven = bound is not None and bound - objective <= options.relative_gap * abs(objective)
    return replace(
        proof,
        termination=TerminationReason.OPTIMAL if is_proven else TerminationReason.FEASIBLE,
        limit=None if is_proven else proof.limit,
        incumbent=point,
        objective=objective,
        bound=bound,
        statistics=replace(proof.statistics, first_incumbent_s=0.0),
        solver="heuristic",
        solver_version=__version__,
        message=f"{message}; bound by {proof.solver} ({proof.solver_version}): {proof.message}",
    )
