r"""What starts behind the jobs that are next, as an integer linear program over counts, declared in CVXPY.

The order of the queue decides who starts before the first job that has to wait (`admission`), and which nodes are kept
for that job (`promise`); both are data here. What is left to choose is which of the jobs behind it are backfilled, so
that the most valuable GPUs work, and it starts no later: the EASY reservation is a constraint.

Sets
  c          classes of jobs behind, alike in all that follows; n_c jobs, g_c GPUs each
  t          groups of nodes that the class may be backfilled on: of one GPU type, and open to the same jobs beside the
             calendar (`groups`); without a calendar a type is one group. R GPUs of a whole node
  s          sizes of items, 1 to R: a whole node is one of R, see `shapes`
  a          numbers of free GPUs of a node: nodes that have equally many are alike, see `packing`
  k          kinds of nodes: open; held, kept whole for the next job; and one that it shares
Data
  v_c        worth of a job: GPUs x weight, under priorities / ratio^(priority - 1)
  m_cts      items of size s of a job of class c on group t
  T_t        whether class c ends before the next job of the type of t starts: c is in time on t, else late
  N^k_ta     nodes of kind k with a free GPUs beside what runs and what started in order
  b_t, e_t   GPUs of the shared node: free now, and left over when the next job starts
  q_p        GPUs that queue p has left, beside its running, started and next jobs
Variables, integer
  z_ct       jobs of class c that start on group t, at most n_c
  y^k_tas    items of size s that are put on a node of kind k with a free GPUs, which has a - s then
  u_ts, l_ts items of size s on the shared node, of jobs in time and of late ones

max  constant + sum_ct v_c z_ct

  one_shape[c]        sum_t z_ct                                      <= n_c                  several groups
  free_nodes[t,k,a]   sum_s y^k_tas - sum_s y^k_t(a+s)s               <= N^k_ta
  items[t,s]          sum_ka y^k_tas + u_ts + l_ts                     = sum_c m_cts z_ct
  in_time[t,s]        sum_a y^held_tas + u_ts                         <= sum_(c in time) m_cts z_ct
  left_over[t,s]      l_ts                                            <= sum_(c late) m_cts z_ct
  shared_now[t]       sum_s s (u_ts + l_ts)                           <= b_t
  shared_over[t]      sum_s s l_ts                                    <= e_t
  quota[p]            sum_(c of p) g_c z_ct                           <= q_p

Every point has a placement on nodes, and every placement of that kind is a point, since an arc flow says the same as a
packing (`packing`). So the optimum is the best backfill beside the started jobs where they are, with the nodes that are
kept, and with every backfilled job within one group. That gives away what finds room only across groups; jobs that
start in order may be on several.
The size of the program depends on R and on the number of classes, not on jobs and nodes.

The heuristic serves the jobs behind in the order of the queue; it is a point of this program, and heuristic <= optimum
<= bound. `constant` is the worth of what runs and of what started in order.
"""

import numpy as np

from models.allocation.answering import answer_beside_bound
from models.allocation.gang.admission import admit
from models.allocation.gang.assembly import Columns, assemble, columns_of, flows_of
from models.allocation.gang.backfill import backfill
from models.allocation.gang.check import gang_violations
from models.allocation.gang.extraction import extract_plan
from models.allocation.gang.instance import GangInstance, gang_instance
from models.allocation.gang.parameters import GangMethod, GangParameters
from models.clock import PhaseClock
from models.formulation import Formulation
from models.plan import Plan
from models.wording import counted
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import SolveResult
from stowplan.arrays import FloatVector
from stowplan.errors import Issue


class GangFormulation(Formulation):
    """The backfill program of one snapshot, what the heuristic makes of it, and the way back to a plan."""

    def __init__(self, instance: GangInstance) -> None:
        self.instance = instance
        self.columns: Columns = columns_of(instance)
        self.problem: MatrixProblem = assemble(self.columns)
        found = backfill(instance)
        self.warm_start: FloatVector = self.columns.point(found.counts, flows_of(found))

    def named(self) -> MatrixProblem:
        """The same problem with names, as declared."""
        # CVXPY takes a second to load; a plan needs the declaration only to be exported or explained.
        from models.allocation.gang.declaration import compiled

        return compiled(self.columns)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve the program. The heuristic answers with its own point, and takes the bound."""
        if self.instance.admission.parameters.method is GangMethod.ILP:
            return super().solve(options, monitor)
        num_started, num_waiting = len(self.instance.admission.started), len(self.instance.admission.waiting)
        message = f"{counted(num_started, 'job')} started in order, of {num_waiting} others "
        return answer_beside_bound(
            self.problem,
            self.warm_start,
            options,
            monitor,
            prove=super().solve,
            message=f"{message}{round(self._num_backfilled())} backfilled",
        )

    def _num_backfilled(self) -> float:
        return float(self.warm_start[: len(self.instance.pairs)].sum())

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Choose jobs of the classes by the queue, and name their GPUs."""
        with clock.phase("place"):
            return extract_plan(self.columns, np.rint(incumbent).astype(np.int64))

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Faults of the placement, of the order, of quotas, of what was promised, and of the objective."""
        admission = self.instance.admission
        return gang_violations(admission.snapshot, admission.parameters, plan, objective)


def formulate_gang(snapshot: Snapshot, parameters: GangParameters, clock: PhaseClock) -> GangFormulation:
    """Serve the queue and declare the program, for a snapshot that passed `policy_issues`."""
    with clock.phase("decide"):
        admission = admit(snapshot, parameters)
    with clock.phase("build"):
        return GangFormulation(gang_instance(admission))
