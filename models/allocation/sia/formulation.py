r"""Sia's allocation as an integer linear program (Sia section 3.4, Eqs. 2-5), declared in CVXPY.

Sets
  i          jobs that are planned (all but the pinned ones)
  j          configurations (n_j nodes, m_j GPUs, type) of section 3.3
  P          pairs (i, j) that are offered, see `models.allocation.sia.utility`
Data
  u_ij       w_i (r_i G_ij)^p, weighted utility: normalised goodput after the restart factor, to the fairness power.
             Goodput is that of n_j nodes which spread over the tiers of the cluster as little as so many can, whatever
             is free: with it, synchronisation across nodes has that share of the bandwidth (the paper knows none)
  lambda_i   what job i costs when it gets nothing: w_i lambda, the queue penalty; more with `price_suspension`
Variables
  x_ij in {0,1} for (i, j) in P: job i runs in configuration j. Only feasible pairs have one.

p > 0:  max  sum_P u_ij x_ij - sum_i lambda_i (1 - sum_j x_ij)
p < 0:  min  sum_P u_ij x_ij + sum_i lambda_i (1 - sum_j x_ij)

  one_configuration[i]   sum_j x_ij <= 1                     jobs with more than one pair
  reserved[i]            sum_j x_ij  = 1                     P holds only the reserved configuration of such a job
  capacity[type], blocks[type,2^k], whole_nodes[type]        what makes every solution placeable on nodes, see
                                                             `models.placement.placeability`

Sign of the penalty: Eqs. 2 and 4 print + lambda (1 - |A_i|) under a maximisation, which would reward leaving jobs
out; the text says "a constant penalty -lambda otherwise". We take the text. For p < 0 the paper flips the sense, and
+ lambda is right as printed; the recorded inputs of the released code (p = -0.5) are of this form.

Elastic, strong-scaling and rigid jobs share the model: they differ in their goodput (fixed batch: throughput) and in
the pairs that they have (Eq. 5 is Eq. 4 with one count per type); so do hybrid-parallel jobs, whose goodput is 0 where
P does not divide the GPUs.

Non-preemptible running jobs are pinned: they are data, not decisions. Their GPUs are not in the capacity, and their
utility is a constant of the objective (0 when their shape is no configuration, or their goodput is not known).

`completion_time`: u_ij and lambda_i are those of `models.allocation.sia.completion`; maximised.

`given_costs`: u_ij = w_i times the cost in the job's goodput table; minimised.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from models.allocation.degrees import degree_violations
from models.allocation.parallel_plan_check import parallel_plan_violations
from models.allocation.sia.assembly import assemble, capacity_names, row_names, tell_choice
from models.allocation.sia.check import allocation_violations
from models.allocation.sia.extraction import extract_plan, long_waits, slower_jobs
from models.allocation.sia.goodput_check import goodput_violations
from models.allocation.sia.instance import SiaInstance, sia_instance
from models.allocation.sia.parameters import SiaParameters
from models.allocation.sia.start import greedy_start
from models.allocation.sia.ties import for_declared, objective_step, toward_present
from models.allocation.sia.unplaced import overbooked
from models.allocation.spread_check import spread_audit, spread_violations
from models.clock import PhaseClock
from models.formulation import Formulation
from models.placement.check import placement_violations
from models.plan import Plan, UnplacedJob
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import SolveResult
from solver.solve import solve
from stowplan.arrays import FloatVector, IntVector
from stowplan.errors import Issue
from stowplan.slots import copier

# A boolean variable above this is chosen; incumbents are integers up to the solver's tolerance.
_CHOSEN = 0.5
_beginning = copier(SolveOptions, "prices", "warm_start")


class SiaFormulation(Formulation):
    """The integer program of one instance, and the way back to a plan."""

    def __init__(self, instance: SiaInstance) -> None:
        self.instance = instance
        self.problem: MatrixProblem = assemble(instance)
        self.warm_start: FloatVector | None = greedy_start(instance)
        self.warnings = instance.warnings

    def named(self) -> MatrixProblem:
        """The same problem with names, as declared."""
        # CVXPY takes a second to load; a plan needs the declaration only to be exported or explained.
        from models.allocation.sia.declaration import compiled

        return compiled(self.instance)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve; among plans of equal value the one that changes least is taken where costs have a step."""
        start = options.warm_start if options.warm_start is not None else self.warm_start
        options = _beginning(options, self._known_prices(), start)
        step = objective_step(self.problem.objective, self.instance.pair_jobs, options.relative_gap)
        if step is None or not self.problem.num_columns:
            tell_choice(self.instance, self.problem)
            return super().solve(options, monitor)
        changed = toward_present(self.problem, self.instance, step)
        tell_choice(self.instance, changed)
        result = solve(changed, options, monitor)
        return for_declared(result, self.problem, step, options.relative_gap)

    def unplaced(self) -> tuple[UnplacedJob, ...]:
        """The jobs that reserve more than is free."""
        return overbooked(self.instance)

    def prices(self, result: SolveResult) -> Mapping[str, float]:
        """What one more unit of each scarce row is worth, in the objective."""
        if result.prices is None:
            return {}
        scarce = np.flatnonzero(result.prices > 0)
        names = self._scarce_names
        first = self.problem.num_rows - len(names)
        if (scarce < first).any():
            names, first = row_names(self.instance, self.problem), 0
        return {names[k - first]: float(result.prices[k]) for k in scarce.tolist()}

    @cached_property
    def _scarce_names(self) -> tuple[str, ...]:
        return capacity_names(self.instance, self.problem)

    def _known_prices(self) -> FloatVector | None:
        known = self.instance.parameters.prices
        if not known:
            return None
        names = self._scarce_names
        if not known.keys() <= set(names):
            names = row_names(self.instance, self.problem)
        prices = np.zeros(self.problem.num_rows)
        prices[self.problem.num_rows - len(names) :] = [known.get(name, 0.0) for name in names]
        return prices

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Place the chosen configurations on GPUs, explain what is left out, and warn of what the placement costs."""
        with clock.phase("place"):
            chosen = chosen_configurations(self.instance, incumbent)
            plan = extract_plan(self.instance, chosen)
            self.warnings = (
                *self.instance.warnings,
                *slower_jobs(self.instance, chosen, plan),
                *long_waits(self.instance, chosen),
            )
            return plan

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Faults of the placement, of the allocation, of the objective, and of what jobs are said to reach."""
        it = self.instance
        audit = spread_audit(it.snapshot.cluster)
        return [
            *placement_violations(it.snapshot, plan.allocations),
            *allocation_violations(it.snapshot, it.parameters, it.configurations, it.matrix, plan, objective),
            *spread_violations(it.configurations, plan, audit),
            *goodput_violations(it.snapshot, it.configurations, it.matrix, plan, audit),
            *parallel_plan_violations(it.snapshot, plan),
            *degree_violations(it.snapshot, plan),
        ]


def formulate_sia(snapshot: Snapshot, parameters: SiaParameters, clock: PhaseClock) -> SiaFormulation:
    """Declare and compile the program for a snapshot that passed `policy_issues`.

    Raises
    ------
    InputError
        When a goodput is not finite, or the fairness power makes utilities too large to be told apart.
    """
    instance = sia_instance(snapshot, parameters, clock)
    with clock.phase("build"):
        return SiaFormulation(instance)


def chosen_configurations(instance: SiaInstance, incumbent: FloatVector) -> IntVector:
    """Configuration (J,) that the point `incumbent` (P,) gives to each job, -1 for none."""
    chosen = np.full(len(instance.jobs), -1, dtype=np.int64)
    selected = incumbent > _CHOSEN
    chosen[instance.pair_jobs[selected]] = instance.pair_configurations[selected]
    return chosen
