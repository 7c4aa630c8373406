r"""The round that comes next, as an integer linear program over the shares of `shares`, declared in CVXPY.

Sets
  j          jobs that are planned (all but the pinned ones)
  t          GPU types on which a job of its size can run and fits
Data
  g_j        GPUs of the job
  X_jt       share of its time that the job is to have on the type: solved before, and data here
  p_jt       priority: the share that is due over the fraction that was received, see `rounds.priority`
Variables
  z_jt in {0,1}   job j has GPUs of type t in this round

max  sum_jt g_j p_jt z_jt

  time[j]     sum_t z_jt <= 1                                   jobs with more than one type
  capacity[type], blocks[type,2^k], whole_nodes[type]           what makes every solution placeable on nodes, see
                                                                `models.placement.placeability`

The paper has no program for a round: jobs with the highest priority run while GPUs are left (Algorithm 1). With GPUs
times priority as worth, that is the greedy algorithm of this knapsack by worth per GPU, so that heuristic <= optimum
<= bound, and the gap is what a better packing of the round could have brought.

Running jobs that are not preemptible are pinned: they keep their GPUs, and have no part in shares and rounds. A job
whose size is neither a power of two below the GPUs of a node nor a number of whole nodes takes the next larger block of
that kind, in shares too, and the GPUs of it that it does not need stay idle.
"""

from dataclasses import replace

import numpy as np

from models.allocation.answering import answer_beside_bound
from models.allocation.gavel.check import gavel_violations
from models.allocation.gavel.extraction import extract_plan
from models.allocation.gavel.instance import GavelInstance, Pairs, gavel_instance
from models.allocation.gavel.parameters import GavelMethod, GavelObjective, GavelParameters
from models.allocation.gavel.program import Program, common_rows
from models.allocation.gavel.rounds import priority
from models.allocation.gavel.shares import Shares, left_of, shares
from models.allocation.gavel.turns import turns
from models.clock import PhaseClock
from models.formulation import Formulation
from models.placement.check import placement_violations
from models.plan import Plan
from models.wording import counted
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import SolveResult
from stowplan.arrays import FloatVector, IntVector
from stowplan.errors import Issue

# A boolean variable above this is chosen; incumbents are integers up to the solver's tolerance.
_CHOSEN = 0.5


class GavelFormulation(Formulation):
    """The program of one round, what descending priority makes of it, and the way back to a plan."""

    def __init__(self, instance: GavelInstance, known: Shares) -> None:
        self.instance = instance
        self.shares = known
        self.warnings = known.warnings
        self.pairs = _pairs(instance)
        self.priorities = _priorities(instance, known, self.pairs)
        self.program = round_program(instance, self.pairs, self.priorities)
        self.problem: MatrixProblem = self.program.assemble()
        self.warm_start: FloatVector = turns(instance, self.pairs, self.priorities)

    def named(self) -> MatrixProblem:
        """The same problem with names, as declared."""
        # CVXPY takes a second to load; a plan needs the declaration only to be exported or explained.
        from models.allocation.gavel.declaration import compiled

        return compiled(self.program)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve the program, in what the shares left of the time. The heuristic answers with its own point, and takes
        the bound."""
        options = left_of(options, self.shares.spent_s)
        if self.instance.parameters.method is GavelMethod.ILP:
            result = super().solve(options, monitor)
            return replace(result, message=f"{result.message}, {self._fairness()}")
        chosen = counted(int(self.warm_start.sum()), "job")
        return answer_beside_bound(
            self.problem,
            self.warm_start,
            options,
            monitor,
            prove=super().solve,
            message=f"{chosen} by descending priority, {self._fairness()}",
        )

    def _fairness(self) -> str:
        """What the shares promise."""
        level, unit_s = self.shares.level, self.shares.unit_s
        if not level:
            return "without shares"
        if self.instance.parameters.objective is GavelObjective.MAKESPAN and unit_s is not None:
            return f"of shares that end all in {unit_s / level:.4g} s"
        return f"of shares with a least level of {level:.4g}"

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Name the GPUs of the chosen jobs and explain who waits."""
        with clock.phase("place"):
            return extract_plan(self.instance, self.shares, self._chosen(incumbent), self.priorities_by_type())

    def _chosen(self, incumbent: FloatVector) -> IntVector:
        """GPU type (J,) that the point gives to each job, -1 for none."""
        chosen = np.full(len(self.instance.jobs), -1, dtype=np.int64)
        selected = incumbent > _CHOSEN
        chosen[self.pairs.owner[selected]] = self.pairs.gpu_type[selected]
        return chosen

    def priorities_by_type(self) -> FloatVector:
        """p (J, T), 0 where there is no pair."""
        found = np.zeros(self.instance.offered.shape)
        found[self.pairs.owner, self.pairs.gpu_type] = self.priorities
        return found

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Faults of the placement, of the shares, of sizes, and of the objective."""
        it = self.instance
        types = it.configurations.gpu_types
        return [
            *placement_violations(it.snapshot, plan.allocations, whole_nodes=False),
            *gavel_violations(it.snapshot, it.parameters, types, self.shares.of_time, it.speed, plan, objective),
        ]


def formulate_gavel(snapshot: Snapshot, parameters: GavelParameters, clock: PhaseClock) -> GavelFormulation:
    """Solve for the shares and declare the round, for a snapshot that passed `policy_issues`."""
    with clock.phase("performance"):
        instance = gavel_instance(snapshot, parameters)
    with clock.phase("shares"):
        known = shares(instance, clock.limit_s)
    with clock.phase("build"):
        return GavelFormulation(instance, known)


def round_program(instance: GavelInstance, pairs: Pairs, priorities: FloatVector) -> Program:
    """The program of a round with these priorities (P,)."""
    sizes = np.array([job.min_gpus for job in instance.jobs], dtype=np.float64)
    jobs, types = instance.jobs, instance.configurations.gpu_types
    named = list(zip(pairs.owner.tolist(), pairs.gpu_type.tolist(), strict=True))
    return Program(
        name="gavel",
        gain=sizes[pairs.owner] * priorities,
        upper=np.ones(pairs.owner.size),
        is_integer=True,
        groups=tuple(common_rows(instance, pairs, lambda i: jobs[i].id)),
        column_names=lambda: tuple(f"z[{jobs[i].id},{types[t]}]" for i, t in named),
    )


def _pairs(instance: GavelInstance) -> Pairs:
    owner, gpu_type = np.nonzero(instance.offered)
    return Pairs(
        owner=owner,
        gpu_type=gpu_type,
        configuration=instance.configuration[owner, gpu_type],
        size=np.ones(len(instance.jobs), dtype=np.int64),
    )


def _priorities(instance: GavelInstance, known: Shares, pairs: Pairs) -> FloatVector:
    """p (P,) of the pairs."""
    types, round_s = instance.configurations.gpu_types, instance.parameters.round_s
    share = known.of_time[pairs.owner, pairs.gpu_type].tolist()
    named = zip(pairs.owner.tolist(), pairs.gpu_type.tolist(), share, strict=True)
    return np.array([priority(instance.jobs[i], types[t], x, round_s) for i, t, x in named], dtype=np.float64)
