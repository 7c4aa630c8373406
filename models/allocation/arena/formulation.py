r"""Arena's allocation as an integer linear program (Arena section 3.5, Eqs. 5-7), declared in CVXPY.

Sets
  i          jobs that are planned (all but the pinned ones)
  j          buddy blocks: 2^k GPUs of one node, or n whole nodes with n a power of two, of one GPU type
  P          pairs (i, j) that are offered, see `models.allocation.arena.utility`; Eq. 6 is settled there, pair by pair
  L          launched jobs: they run, and are never suspended
Data
  v_ij       worth of a pair: throughput after the restart, weighted (for the completion time by the time left, too);
             for Eq. 7 a finish time, weighted
  b_i        for Eq. 7: cost of a job that is left out; 0 for jobs that cannot be
  a_i, M     for Eq. 6: points of a job with a deadline, integers in proportion to its weight, and what a point is
             worth, more than all throughput together, see `models.allocation.admission`; v_ij of a pair that
             meets the deadline holds M a_i
  K          for Eq. 7: number of jobs that have a pair or must run; mu: weight of the mean
Variables
  x_ij in {0,1} for (i, j) in P: A_i[m, n] of the paper, with j = (m, n)
  theta >= 0    for Eq. 7: the largest cost

Eqs. 5 and 6, completion time:  max  sum_P v_ij x_ij   (Eq. 6: M sum_(i meets its deadline) a_i + throughput)
Eq. 7:         min  theta + mu/K sum_i c_i,     c_i = b_i + sum_j (v_ij - b_i) x_ij

  one_configuration[i]   sum_j x_ij <= 1            jobs with more than one pair
  launched[i]            sum_j x_ij  = 1            i in L
  reserved[i]            sum_j x_ij  = 1            P holds only the reserved block of such a job
  capacity[type], blocks[type,2^k], whole_nodes[type]   what makes every solution placeable on nodes, see
                                                    `models.placement.placeability`: the constraints that the paper
                                                    leaves out "due to space limits"
  finish_time[i]         c_i <= theta               Eq. 7, jobs counted in K

Where the paper leaves room
- Eq. 6 as printed is a constraint that A_i = 0 satisfies: a job that is left out has no finish time. Maximising Eq. 5
  under it may leave out any number of jobs that could meet their deadlines, and prove that to be optimal. The text says
  what is meant: deadlines are ensured, only jobs that cannot meet theirs are dropped, and what is measured is the share
  of jobs that meet theirs (section 5.6; Crius section 8.5). So admission comes first, throughput second: a
  lexicographic objective in one sum, whose weight M provably dominates. A job without a deadline counts by its
  throughput alone. Jobs count by their finish when started now: one that could wait counts like one that could not.
- Eq. 7 is printed with N_i T_i^mn / (A_i[m, n] Q^mn), infinite for every block that is not given. We read A_i as a
  factor, Q^mn as the GPUs of the block, and say in `worth` what a waiting job counts. The maximum alone would leave
  all jobs but the worst one to chance: hence the mean beside it.
- Priorities order queues in Algorithm 1, and say nothing in Eqs. 5-7; here they are weights.
- A launched job may be moved, resized and put on another GPU type at the price of its restart, but it runs on. So the
  problem has no solution only where launched jobs lost nodes, or reservations ask for more than there is.

Running jobs that are not preemptible, or that have no pair, are pinned: they are data. Their throughput is a constant
of the objective.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from models.allocation.arena.assembly import (
    assemble,
    baseline,
    has_theta,
    row_names,
)
from models.allocation.arena.bottleneck import with_theta_bound
from models.allocation.arena.check import allocation_violations
from models.allocation.arena.extraction import extract_plan, settled_configurations
from models.allocation.arena.instance import ArenaInstance
from models.allocation.arena.theta_search import ThetaSearch
from models.allocation.arena.warnings import long_waits, missed_deadlines, plan_warnings, slower_jobs
from models.allocation.parallel_plan_check import parallel_plan_violations
from models.allocation.spread_check import spread_audit, spread_violations
from models.clock import PhaseClock
from models.formulation import Formulation
from models.placement.check import placement_violations
from models.plan import Plan
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.registry import AUTO
from solver.result import SolveResult
from solver.solve import solve
from stowplan.arrays import FloatVector, IntVector, Mask
from stowplan.errors import Issue

# A boolean variable above this is chosen; incumbents are integers up to the solver's tolerance.
_CHOSEN = 0.5
# Solvers that may take programs apart, and say prices of what couples them.
_PRICING = (AUTO, "decomposition")
_Told = TypeVar("_Told", Progress, SolveResult)
_LEAST_TIME_S = 1e-3


class ArenaIlpFormulation(Formulation):
    """The integer program of one instance, and the way back to a plan.

    untried: bool (J,), for an answer of Algorithm 1 the jobs that it came to no more; None for one of the program.
    """

    untried: Mask | None = None

    def __init__(self, instance: ArenaInstance) -> None:
        self.instance = instance
        self.problem: MatrixProblem = assemble(instance)
        self.warm_start = present_point(instance)
        self.warnings = plan_warnings(instance)

    def named(self) -> MatrixProblem:
        """The same problem with names, as declared."""
        # CVXPY takes a second to load; a plan needs the declaration only to be exported or explained.
        from models.allocation.arena.declaration import compiled

        return compiled(self.instance)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve: with theta by what it may be where the solver prices programs, or after a lower bound for it."""
        options = self.strict(options)
        if not has_theta(self.instance):
            return super().solve(options, monitor)
        started = time.perf_counter()
        start = self.warm_start if options.warm_start is None else options.warm_start
        options = replace(options, warm_start=start)
        if options.solver in _PRICING:
            search = ThetaSearch(self.instance, self.problem, options, monitor)
            found = search.run()
            if found is not None:
                return found
            options = replace(options, warm_start=start if search.point is None else search.point)

        def remaining_s() -> float:
            return 0.0 if monitor.canceled.is_set() else options.time_limit_s - (time.perf_counter() - started)

        bounded = with_theta_bound(self.instance, self.problem, remaining_s)
        options = replace(options, time_limit_s=max(_LEAST_TIME_S, remaining_s()))
        forward = replace(monitor, on_progress=lambda progress: monitor.on_progress(self._tight(progress)))
        return self._tight(solve(bounded, options, forward))

    def strict(self, options: SolveOptions) -> SolveOptions:
        """The options with the relative gap for points: what is asked is meant of the throughput, beside which the
        points are large; no gap below 1 leaves a point open."""
        utility = self.instance.utility
        points = float(utility.reward.sum())
        if not points:
            return options
        return replace(
            options, relative_gap=options.relative_gap * utility.most_throughput / (utility.most_throughput + points)
        )

    def _tight(self, told: _Told) -> _Told:
        """The same with theta at the largest cost: solvers may leave it above."""
        if told.incumbent is None:
            return told
        point = point_of(self.instance, chosen_configurations(self.instance, told.incumbent))
        value = self.problem.value(point)
        # A bound that rounding puts beyond the point is the point's own value.
        return replace(told, incumbent=point, objective=value, bound=told.bound and min(told.bound, value))

    def prices(self, result: SolveResult) -> Mapping[str, float]:
        """What one more unit of each scarce row is worth, in the objective."""
        if result.prices is None:
            return {}
        names = row_names(self.instance)
        return {names[k]: float(result.prices[k]) for k in np.flatnonzero(result.prices > 0)}

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Place the chosen blocks on GPUs, explain what is left out, and warn of deadlines that are missed, of waits
        that are too long, and of jobs that are slower where they are than their blocks promise."""
        instance, chosen = self.instance, chosen_configurations(self.instance, incumbent)
        settled = settled_configurations(instance, chosen)
        late = (*missed_deadlines(instance, settled), *long_waits(instance, settled))
        with clock.phase("place"):
            plan = extract_plan(instance, chosen, self.untried)
        self.warnings = (*plan_warnings(instance), *late, *slower_jobs(instance, settled, plan))
        return plan

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Faults of the placement, of the allocation, of the objective, and of what plans are said to reach."""
        it = self.instance
        return [
            *placement_violations(it.snapshot, plan.allocations),
            *allocation_violations(
                it.snapshot, it.parameters, it.configurations, it.throughputs.samples_per_s, plan, objective
            ),
            *spread_violations(it.configurations, plan, spread_audit(it.snapshot.cluster)),
            *parallel_plan_violations(it.snapshot, plan),
        ]


def chosen_configurations(instance: ArenaInstance, incumbent: FloatVector) -> IntVector:
    """Configuration (J,) that the point `incumbent` (n,) gives to each job, -1 for none."""
    chosen = np.full(len(instance.jobs), -1, dtype=np.int64)
    selected = incumbent[: instance.pair_jobs.size] > _CHOSEN
    chosen[instance.pair_jobs[selected]] = instance.pair_configurations[selected]
    return chosen


def present_point(instance: ArenaInstance) -> FloatVector | None:
    """The point in which all launched jobs stay as they are and nobody else runs; None where that cannot be."""
    current = instance.utility.current
    stays = instance.launched & (current >= 0)
    stays[stays] = instance.utility.offered[stays, current[stays]]
    return None if (instance.required & ~stays).any() else point_of(instance, np.where(stays, current, -1))


def point_of(instance: ArenaInstance, chosen: IntVector) -> FloatVector:
    """The point (n,) in which job i gets configuration `chosen[i]` (J,), -1 for none; theta as small as it can be."""
    x: FloatVector = (chosen[instance.pair_jobs] == instance.pair_configurations).astype(np.float64)
    if not has_theta(instance):
        return x
    base = baseline(instance)
    costs = base.copy()
    np.add.at(costs, instance.pair_jobs, x * (instance.pair_values - base[instance.pair_jobs]))
    return np.concatenate([x, [costs.max(initial=0.0, where=instance.counted)]])
