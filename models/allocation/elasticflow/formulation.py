r"""ElasticFlow as an integer linear program over slots of time (Gu et al., ASPLOS 2023), declared in CVXPY.

The paper has two algorithms for GPUs of one type: minimum satisfactory shares admit jobs (Algorithm 1, `filling`), the
rest of the present slot goes where it gains most (Algorithm 2, `scaling`). The program is what both of them are after.

Sets
  j          jobs that are planned (all but the pinned ones); D of them have deadlines that they could meet alone
  c          buddy blocks: 2^k GPUs of one node, or 2^k whole nodes, of one GPU type, that the job may have
  k          slots 0..K-1: the present one of `slot_s`, later ones that end at deadlines, see `slots`
  Q          jobs of D that have begun and that Algorithm 1 admits: what they were promised is kept
Data
  p_jck      share of the work of j that block c does in slot k before the deadline, less a restart in slot 0
  v_jc       weight x throughput on c over the job's best x max(0, 1 - S_jc / H), S_jc the restart, H the horizon
  m_j, M     points of a deadline, integers in proportion to weights, and what a point is worth, more than all
             throughput together, see `models.allocation.admission`
Variables
  a_j in {0,1}      the deadline of j in D is guaranteed
  x_jc in {0,1}     j has block c in the present slot
  y_jck in [0,1]    part of the later slot k for which j in D has block c

max  M sum_D m_j a_j + sum_jc v_jc x_jc

  one[j,k]              sum_c x_jc <= 1; sum_c y_jck <= 1
  capacity[type]@k, blocks[type,2^s]@k, whole_nodes[type]@k     what makes the present slot placeable on nodes, see
                        `models.placement.placeability`; of later slots, as averages over their time
  deadline[j]           a_j - sum_c p_jc0 x_jc - sum_ck p_jck y_jck <= 0       j in D
  admitted[j]           sum_c x_jc - a_j <= 0       j in D that has not begun, unless `best_effort`
  a_j = 1               j in Q

The algorithms' answer is a point of the program, so heuristic <= optimum <= bound. The bound beside the heuristic is
that of the linear relaxation: a decision costs no search.

Where the paper leaves room
- GPU types: a job has one at a time. The algorithm keeps to one for all of its reservation, the program need not.
- Slots of the paper are all alike. Ours end at deadlines, of which it takes at most `max_slots`, and shared ones are
  shared in time. So what is reserved does not depend on how slots are cut, as long as there are enough of them.
- A snapshot says nothing of earlier plans. A promise is made with the first GPUs: jobs that run, or have had GPUs
  (`attained_gpu_s`), are admitted before all others, in order of their deadlines. It is broken by what the plan cannot
  know (lost nodes, speeds that are not those of the table, a restart that a job pays for when it was out); a warning
  says so. With `best_effort` who has begun was not always admitted, and one that can be in time again may break it.
- Who has not begun is admitted only if it can end a slot before its deadline, see `filling`: to time before the
  deadline in p_jck belongs a slot less.
- Jobs without a deadline, and those that could not meet theirs alone, are best effort: they get what the guarantees
  leave, in the present slot. The paper drops jobs that it does not admit; here they wait, and when their deadline is
  over they have none any more.
- The paper has no weights; the algorithm goes by deadlines alone, the program's admission by weight.
"""

from dataclasses import replace

import numpy as np

from models.allocation.answering import answer_beside_bound
from models.allocation.elasticflow.check import elastic_violations
from models.allocation.elasticflow.extraction import Schedule, extract_plan
from models.allocation.elasticflow.filling import minimum_satisfactory_shares
from models.allocation.elasticflow.instance import ElasticInstance, elastic_instance
from models.allocation.elasticflow.parameters import ElasticFlowMethod, ElasticFlowParameters
from models.allocation.elasticflow.program import program_of
from models.allocation.elasticflow.scaling import scaled
from models.allocation.elasticflow.unplaced import deadline_warnings
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
from solver.solve import solve
from stowplan.arrays import FloatVector
from stowplan.errors import Issue

# A boolean variable above this is chosen; incumbents are integers up to the solver's tolerance.
_CHOSEN = 0.5


class ElasticFlowFormulation(Formulation):
    """The program of one instance, what the algorithms make of it, and the way back to a plan."""

    def __init__(self, instance: ElasticInstance) -> None:
        self.instance = instance
        filling = minimum_satisfactory_shares(instance)
        self.program = program_of(instance, filling)
        self.problem: MatrixProblem = self.program.assemble()
        self.warm_start: FloatVector = self.program.point(filling, scaled(instance, filling))
        self.schedule = self._read(self.warm_start)

    def named(self) -> MatrixProblem:
        """The same problem with names, as declared."""
        # CVXPY takes a second to load; a plan needs the declaration only to be exported or explained.
        from models.allocation.elasticflow.declaration import compiled

        return compiled(self.program)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve the program. The heuristic answers with its own point, and takes the bound of the relaxation."""
        if self.instance.parameters.method is ElasticFlowMethod.ILP:
            return super().solve(self._strict(options), monitor)
        relaxed = replace(self.problem, integrality=np.zeros_like(self.problem.integrality))
        admitted = int(self.schedule.admitted.sum())
        return answer_beside_bound(
            self.problem,
            self.warm_start,
            options,
            monitor,
            prove=lambda left, told: solve(relaxed, left, told),
            message=f"{counted(admitted, 'deadline')} guaranteed of {int(self.instance.wants.sum())}",
        )

    def _strict(self, options: SolveOptions) -> SolveOptions:
        """The options with a gap that leaves no point open: what is asked is meant of the throughput."""
        points, most = float(self.instance.reward.sum()), sum(job.weight for job in self.instance.jobs)
        return replace(options, relative_gap=options.relative_gap * most / (most + points)) if points else options

    def _read(self, point: FloatVector) -> Schedule:
        """What a point (n,) says."""
        program, num_jobs = self.program, len(self.instance.jobs)
        first = program.admissible.size
        admitted = np.zeros(num_jobs, dtype=np.bool_)
        admitted[program.admissible] = point[:first] > _CHOSEN
        blocks = point[first:]
        now = np.full(num_jobs, -1, dtype=np.int64)
        placed = (program.slot == 0) & (blocks > _CHOSEN)
        now[program.job[placed]] = program.configuration[placed]
        later = np.zeros(self.instance.progress.shape)
        kept = (program.slot > 0) & admitted[program.job]
        later[program.job[kept], program.configuration[kept], program.slot[kept]] = blocks[kept]
        return Schedule(admitted=admitted, now=now, later=np.clip(later, 0.0, 1.0))

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Name the GPUs of the present slot, explain who waits, and warn of deadlines that are not guaranteed."""
        self.schedule = self._read(incumbent)
        self.warnings = tuple(deadline_warnings(self.instance, self.schedule.admitted))
        with clock.phase("place"):
            return extract_plan(self.instance, self.schedule)

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Faults of the placement, of what is promised, and of the objective."""
        it, program = self.instance, self.program
        promised = frozenset(it.jobs[i].id for i in program.admissible[program.promised].tolist())
        return [
            *placement_violations(it.snapshot, plan.allocations),
            *elastic_violations(
                it.snapshot,
                it.parameters,
                it.configurations,
                it.samples_per_s,
                self.schedule.reserved(it),
                promised,
                plan,
                objective,
            ),
        ]


def formulate_elasticflow(
    snapshot: Snapshot, parameters: ElasticFlowParameters, clock: PhaseClock
) -> ElasticFlowFormulation:
    """Run the algorithms and declare the program, for a snapshot that passed `policy_issues`."""
    with clock.phase("performance"):
        instance = elastic_instance(snapshot, parameters)
    with clock.phase("build"):
        return ElasticFlowFormulation(instance)
