"""Arena as policies: `arena` runs Algorithm 1 beside the integer program, which bounds it, `arena-ilp` solves that.

The program that gives the bound often has a better point than Algorithm 1. Unless told otherwise, `arena` answers with
that one, but does not let a job wait for it for ever: one that is older than the longest wait, and that Algorithm 1
launches, must be in it. Queues are weights in the program; who wants Algorithm 1's order of queues asks for its answer.
"""

import time
from dataclasses import replace

import numpy as np

from models.allocation.arena.formulation import ArenaIlpFormulation, chosen_configurations, point_of
from models.allocation.arena.heuristic import Schedule, schedule
from models.allocation.arena.instance import ArenaInstance, arena_instance
from models.allocation.arena.parameters import ArenaAnswer, ArenaMethod, ArenaParameters
from models.clock import PhaseClock
from models.formulation import Formulation
from models.wording import counted
from models.workload import Snapshot
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult, TerminationReason
from stowplan import __version__
from stowplan.arrays import FloatVector

ALGORITHM = "algorithm 1"
_LEAST_TIME_S = 1e-3
# A better point is better by more than rounding.
_LEAST_GAIN = 1e-9


class ArenaFormulation(ArenaIlpFormulation):
    """The better of Algorithm 1 and what the integer program finds, with what that proves.

    Should what must run find no place, or not within the limit, the answer is the integer program's.
    """

    def __init__(self, instance: ArenaInstance) -> None:
        super().__init__(instance)
        self.untried = np.zeros(len(instance.jobs), dtype=np.bool_)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Run Algorithm 1, then bound the same problem in the time that is left."""
        started, started_cpu = time.perf_counter(), time.process_time()

        def must_stop() -> bool:
            return monitor.canceled.is_set() or time.perf_counter() - started > options.time_limit_s

        found = schedule(self.instance, must_stop)
        self.untried = None if found is None else found.untried
        elapsed_s = time.perf_counter() - started
        left = replace(options, time_limit_s=max(_LEAST_TIME_S, options.time_limit_s - elapsed_s))
        if found is None:
            in_time = ", in the time that it had," if must_stop() else ""
            note = f"Algorithm 1 found{in_time} no place for all that must run; this is the integer program's answer"
            result = super().solve(left, monitor)
            return replace(result, message=f"{note}. {result.message}")
        point = point_of(self.instance, found.chosen)
        monitor.on_progress(Progress(elapsed_s=elapsed_s, objective=self.problem.value(point), incumbent=point))
        # Whoever watches sees the heuristic's incumbent, and of the integer program only the bound.
        left = replace(left, warm_start=point)
        proof = super().solve(left, replace(monitor, on_progress=lambda progress: _tell(monitor, progress, elapsed_s)))
        objective = self.problem.value(point)
        if self._prefers(proof, objective, found):
            self.untried = None
            result = replace(proof, message=f"better than Algorithm 1, which has {objective:.6g}. {proof.message}")
        else:
            result = _answer(objective, point, proof, self.strict(options), found)
        statistics = replace(
            proof.statistics,
            solve_s=time.perf_counter() - started,
            solve_cpu_s=time.process_time() - started_cpu,
            first_incumbent_s=elapsed_s,
        )
        return replace(result, statistics=statistics)

    def _prefers(self, proof: SolveResult, objective: float, found: Schedule) -> bool:
        """Whether the program's point is answered with: it is better, and keeps no job waiting for too long."""
        parameters = self.instance.parameters
        if parameters.answer is ArenaAnswer.ALGORITHM or proof.incumbent is None or proof.objective is None:
            return False
        gain = proof.sense.sign * (objective - proof.objective)
        if gain <= _LEAST_GAIN * abs(objective):
            return False
        if parameters.longest_wait_s is None:
            return True
        left_out = (found.chosen >= 0) & (chosen_configurations(self.instance, proof.incumbent) < 0)
        return all(self.instance.jobs[i].age_s < parameters.longest_wait_s for i in np.flatnonzero(left_out).tolist())


def formulate_arena(snapshot: Snapshot, parameters: ArenaParameters, clock: PhaseClock) -> Formulation:
    """Build the program for a snapshot that passed `policy_issues`.

    Raises
    ------
    InputError
        When a throughput is not finite, or utilities are too large to be told apart.
    """
    instance = arena_instance(snapshot, parameters, clock)
    with clock.phase("build"):
        is_heuristic = parameters.method is ArenaMethod.HEURISTIC
        return ArenaFormulation(instance) if is_heuristic else ArenaIlpFormulation(instance)


def _tell(monitor: SolveMonitor, progress: Progress, elapsed_s: float) -> None:
    monitor.on_progress(Progress(elapsed_s=elapsed_s + progress.elapsed_s, bound=progress.bound))


def _answer(
    objective: float, point: FloatVector, proof: SolveResult, options: SolveOptions, found: Schedule
) -> SolveResult:
    """The heuristic's point with the bound of the proof."""
    sign = proof.sense.sign
    bound = proof.bound
    if proof.termination is TerminationReason.OPTIMAL and bound is None:
        bound = proof.objective
    if bound is not None:
        # A bound that rounding puts beyond the point is the point's own value.
        bound = sign * min(sign * bound, sign * objective)
    is_optimal = bound is not None and sign * (objective - bound) <= options.relative_gap * abs(objective)
    message = (
        f"{found.num_launched} launched, {found.num_scaled_up} scaled up, "
        f"{counted(found.num_scaled_down, 'change')} of others to make room"
        f"{'' if found.complete else ', stopped early'}; "
        f"bound by {proof.solver} ({proof.solver_version}): {proof.message}"
    )
    return replace(
        proof,
        termination=TerminationReason.OPTIMAL if is_optimal else TerminationReason.FEASIBLE,
        limit=None if is_optimal else proof.limit,
        incumbent=point,
        objective=objective,
        bound=bound,
        solver=ALGORITHM,
        solver_version=__version__,
        message=message,
    )
