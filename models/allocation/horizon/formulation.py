r"""GPU type and count of every job, now and over a horizon, as a mixed-integer program, declared in CVXPY.

A plan of the present alone cannot know whether a change pays, whether it is better to wait for the GPUs of a job that
soon ends, or who should have GPUs first: that depends on what is left of the jobs, and on who will have what later.
Here every job has a schedule to its end; what it has now is decided, the rest is the plan behind it, made anew with
the next decision.

Sets
  i          jobs that are planned (all but the pinned ones)
  c          configurations (nodes, GPUs, type), as Sia has them; where tiers differ in bandwidth and jobs in speed for
             it (`placement_classes`) those of several nodes once for each share that so many nodes can have between
             them: anywhere, within a minipod, within a leaf, see `classes`
  k          intervals 0..K-1 from t_k to t_(k+1); the first is as long as until the next plan, each is longer than the
             one before by the same factor, and the last ends after half an hour, or later, see `horizon_end`, as does
             one alone
  P          pairs (i, c) that may be chosen now: those that Sia offers, but for those with no fewer GPUs of the type
             than another one of the same class or a laxer one in which the job ends no later. With classes a job of
             whole nodes may stay on its nodes, in a configuration of its own, or in the same one be moved
  L_i        configurations that job i may have later: corners of the concave hull of its speed over GPUs of a type, of
             each class and of laxer ones together
  S_i        schedules of job i:
               c          from now to the end, (i, c) in P
               c, c'@k    c from now, c' in L_i from t_k to the end
               c, -@1     c in the first interval, then nothing before the horizon
               c'@k       nothing now, c' in L_i from t_k to the end
               -          nothing before the horizon
             a job with a reservation has those alone that begin with what it reserved
Data
  T_ic       what is left of job i in configuration c: work left / goodput, in seconds
  p_i        what a running job loses with a change or by leaving, P_i max(1, D_i / H_i): P_i is `restart_price` x
             restart cost; D_i, how long the job would be there, is T_ic where it is (where it is fastest, if it may not
             stay), at most until t_K; H_i = max(a_i / (1 + restarts so far), 3 P_i), how long it is taken to hold other
             GPUs, see `changes`. What a waiting job takes to start: restart cost. For so long it holds its GPUs and
             does no work. Nothing where it stays. What is moved to other nodes changes; but parts of a node that make
             way for others are not priced
  e_s        when job i ends under schedule s: after a change at t to c' at t + p_i + (1 - share of work done) T_ic',
             where a job that has not begun at t pays for its start, too, if that is dearer;
             what has nothing before the horizon goes on then, as fast as it goes
  w_i        weight of job i over the weight of all jobs
  f_i        what a second of job i is taken for: F_i^-fairness, 1 on average by w. F_i: seconds that it takes from its
             start with its share of the cluster, as many GPUs as there are for each job: what it has had, and
             min_c T_ic max(1, GPUs of c / share); `interval_s` at least
  d_i, a_i   deadline of job i, from now (without one infinity), and how long ago it was submitted
  q_s        what schedule s does not do within `interval_s` of what could be done where job i is fastest, in seconds
             there
  b_s        with `backlog_efficiency` h: what of job i is left at t_K under s
  B_i        with it: sum of w_l f_l over all planned jobs l with A_l / w_l f_l >= A_i / w_i f_i, times A_i / h, where
             A_i is how long all GPUs take for job i: min_t g_it r_t / sum_t r_t N_t, see `backlog`
  g_it, r_t  the fewest GPU seconds that job i takes on type t; what a GPU of t is worth, the mean of min_t g_it / g_it,
             over all jobs, the pinned ones too; N_t of them are ever open to planned jobs
  v_s        lateness w_i max(0, e_s - d_i) + throughput w_i q_s
  l_i        for a job as old as `longest_wait_s` more than all else is worth, by what is at most: no schedule of i ends
             after t_K + what a start and a change cost + max_c T_ic; else 0
  n_stk      GPUs of type t that schedule s has on average over interval k
  N_tk       GPUs of type t on average over interval k that the calendar leaves to all planned jobs, see
             `openings`; those of pinned jobs are not among them, even when these jobs have ended, and those that jobs
             are expected to need which are still to come (`arrivals_per_h`) neither, see `arrivals`
  R_q        with `quotas`: what the planned jobs J_q of queue q may have together, its quota less what its pinned jobs
             hold, or what is reserved if that is more; no job has more of it in any configuration, and a queue whose
             jobs have no more together whatever each has takes no row, see `quotas`
Variables
  x_ic in {0,1}     job i has configuration c now
  y_s in [0,1]      share of schedule s: what is planned of later intervals is fluid
  g_cv integer      how many of configuration c lie in unit v of its class, see `rooms`
  z, u_i >= 0       where `tail` is above 0: the shortest time in the tail, and how much longer that of job i is

With `backlog_efficiency` w_i f_i min(e_s, t_K) + B_i b_s stands for w_i f_i e_s in the objective, but not in the tail.

min  sum_i sum_(s in S_i) ((1 - tail) w_i f_i e_s + v_s) y_s + sum_i l_i (1 - sum_c x_ic)
     + tail (z + sum_i w_i u_i / (1 - tail_level))

  one_schedule[i]                 sum_(s in S_i) y_s = 1
  now[i,c]                        sum_(s in S_i that begin with c) y_s = x_ic        (i, c) in P
  capacity[type], blocks[type,2^k], whole_nodes[type]    on x, what makes the present placeable on nodes, see
                                  `models.placement.placeability`
  class[c], unit[v]               on x and g, with which jobs can be placed within units of their classes, and where
                                  they stay; rooms[type,tier,k], which follow, strengthen the relaxation, see `rooms`
  quota[q]                        sum_(i in J_q, c) GPUs of c x_ic <= R_q
  capacity[type]@k                sum_s n_stk y_s <= N_tk                            k = 1..K-1
  quota[q]@k                      sum_(i in J_q, s in S_i, t) n_stk y_s <= R_q       k = 1..K-1
  rooms[type,tier,k']@k           sum_s (floor(nodes of c / k') on average over interval k, of each c that s has within
                                  units of the tier) y_s <= sum_v floor(nodes of v / k')     nodes that are ever open
  tail[i]                         f_i (a_i + sum_(s in S_i) e_s y_s) - z <= u_i      all jobs, where `tail` is above 0

The objective is the mean time until jobs end, by weight, from now; with `tail` in part the mean of the longest times
from submission to end, those beyond the part `tail_level` of all weight (conditional value at risk, Rockafellar and
Uryasev, 2000); with `fairness` 1 times are those of finish-time fairness (Themis, NSDI 2020), a job's time over what it
takes on its fair share. With `lateness` what ends after its deadline counts for more, with `throughput` work that could
be done now and is not. The tail is one of jobs: of one with several schedules the mean end counts. Its rows couple jobs
as those of capacity do, and are priced like these. Their columns are in units of the longest that they need be, their
rows in such of their own: with `fairness`, times of jobs of little weight may be taken for 1e12 times those of others.

Times are those of whole schedules, so that what a change loses, and what running slowly costs, is counted where it
arises, and the relaxation is strong: fractional are at most as many jobs as there are rows that couple jobs.

With `backlog_efficiency`, which is 0.5 unless asked otherwise, the horizon is as far as plans last, and what is left
then counts by whom it delays: all GPUs do it, one job after another, the least work by weight first (SRPT). Without
(None) the horizon is when all that is left can be done, and behind it a job goes on as it is then, to its end, whatever
others need: a plan to the end of all jobs, which those that are still to come will change, so that whoever counts on it
changes for gains that will not last.

Later intervals know of units only how many items of k' nodes there is room for, not what breaks them up: jobs of a
laxer class are taken to lie where they are in nobody's way.

Where that errs: a tenth of a later change costs a tenth of its price, which no change made now does, so that the plan
behind the present is too hopeful, and jobs wait for what will not be done when its time comes.

Of a job that does not say how much is left, what it does in its mean residual life is planned, and where that is not
known, either, a guess, see `instance`.

`goodput`: one interval, in which w_i e_s are Sia's utilities and penalties, in its sense: Sia's program, and its plan.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from models.allocation.degrees import degree_violations
from models.allocation.horizon.alignment import aligned
from models.allocation.horizon.assembly import assemble, value
from models.allocation.horizon.check import horizon_violations
from models.allocation.horizon.descriptor import HORIZON
from models.allocation.horizon.extraction import chosen_configurations, extract_plan, settled
from models.allocation.horizon.instance import HorizonInstance, horizon_instance
from models.allocation.horizon.outlook import Outlook
from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.horizon.quotas_check import quota_violations
from models.allocation.horizon.search import Search
from models.allocation.long_waits import wait_warnings
from models.allocation.parallel_plan_check import parallel_plan_violations
from models.allocation.sia.check import allocation_violations
from models.allocation.sia.extraction import slower_jobs
from models.allocation.sia.goodput_check import goodput_violations
from models.allocation.sia.unplaced import overbooked
from models.allocation.spread_check import SpreadAudit, spread_audit, spread_violations
from models.around_formulation import formulate_around
from models.clock import PhaseClock
from models.formulation import Formulation
from models.placement.check import placement_violations
from models.plan import Plan, UnplacedJob
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.registry import AUTO
from solver.result import SolveResult, TerminationReason
from solver.sense import Sense
from stowplan.arrays import FloatVector, IntVector
from stowplan.errors import Issue

# What stands for the search; other solvers get the whole program.
_BY_SCHEDULES = (AUTO, "decomposition")


class HorizonFormulation(Formulation):
    """The program of one instance, and the way back to a plan."""

    def __init__(self, instance: HorizonInstance) -> None:
        self.instance = instance
        self.warnings = instance.sia.warnings
        self.outlook = Outlook(bounds_s=(), open_gpus={}, planned={})
        self._prices: Mapping[str, float] = {}
        self._rent: FloatVector | None = None
        self._is_proven = False

    @cached_property
    def problem(self) -> MatrixProblem:  # type: ignore[override]
        """The whole program: many times what the search looks at."""
        return assemble(self.instance)

    def named(self) -> MatrixProblem:
        """The same problem with names, as declared."""
        # CVXPY takes a second to load; a plan needs the declaration only to be exported or explained.
        from models.allocation.horizon.declaration import compiled

        return compiled(self.instance)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve by schedules, or hand the whole to the backend that the options name."""
        by_time = self.instance.parameters.objective is HorizonObjective.COMPLETION_TIME
        if not by_time or options.solver not in _BY_SCHEDULES or not len(self.instance.schedules):
            result = super().solve(options, monitor)
        else:
            search = Search(self.instance, options, monitor)
            result = search.run()
            self._prices, self._rent = search.prices, search.rent
        self._is_proven = result.termination is TerminationReason.OPTIMAL
        return self._settled(result)

    def _settled(self, result: SolveResult) -> SolveResult:
        """The result with a point of which every schedule begins as is chosen, as plans have it: what tolerances leave
        of waiting for too long would be seen in the objective."""
        if result.incumbent is None:
            return result
        point = settled(self.instance, result.incumbent)
        objective = value(self.instance, point)
        if result.bound is None:
            bound = None
        elif self.instance.sense is Sense.MINIMIZE:
            bound = min(result.bound, objective)
        else:
            bound = max(result.bound, objective)
        return replace(result, incumbent=point, objective=objective, bound=bound)

    def unplaced(self) -> tuple[UnplacedJob, ...]:
        """The jobs that reserve more than is free."""
        return overbooked(self.instance.sia)

    def prices(self, result: SolveResult) -> Mapping[str, float]:  # noqa: ARG002 - by its signature
        """What one more GPU is worth, in the objective (seconds of the mean time, and what jobs pay that may wait no
        more): now by the rows of the present, later by type and interval."""
        return self._prices

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Place what the point chooses, explain who waits, and warn of what the placement costs."""
        with clock.phase("place"):
            plan, self.outlook = extract_plan(self.instance, incumbent, self._rent, is_proven=self._is_proven)
            unaligned: tuple[Issue, ...] = ()
            if (alpha := self.instance.parameters.alpha) is not None:
                plan, unaligned = aligned(self.instance.sia.snapshot, plan, alpha, clock)
            chosen = chosen_configurations(self.instance, incumbent)
            self.warnings = (
                *unaligned,
                *self.instance.sia.warnings,
                *slower_jobs(self.instance.sia, chosen, plan),
                *self._long_waits(chosen),
            )
            return plan

    def _long_waits(self, chosen: IntVector) -> Iterator[Issue]:
        """Warn of jobs that may wait no more, and have nothing in configuration `chosen` (J,)."""
        longest_s = self.instance.parameters.longest_wait_s
        left_out = np.flatnonzero((self.instance.late > 0) & (chosen < 0)).tolist()
        if left_out and longest_s is not None:
            yield from wait_warnings(self.instance.jobs, left_out, longest_s)

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Faults of the placement, of the schedules behind it, of the objective, and of what jobs are said to reach."""
        it, base = self.instance, self.instance.sia
        audit = spread_audit(base.snapshot.cluster)
        if it.parameters.objective is HorizonObjective.GOODPUT:
            found = [
                *allocation_violations(
                    base.snapshot, base.parameters, base.configurations, base.matrix, plan, objective
                ),
                *quota_violations(base.snapshot, it.calendar, it.parameters.quotas, plan),
            ]
        else:
            found = horizon_violations(
                base.snapshot,
                it.parameters,
                base.configurations,
                base.matrix,
                plan,
                self.outlook,
                objective,
                calendar=it.calendar,
            )
        promised = None if it.rooms is None else _promised(plan, self.outlook, audit)
        return [
            *placement_violations(base.snapshot, plan.allocations),
            *found,
            *(spread_violations(base.configurations, plan, audit) if promised is None else ()),
            *goodput_violations(base.snapshot, base.configurations, base.matrix, plan, audit, promised),
            *parallel_plan_violations(base.snapshot, plan),
            *degree_violations(base.snapshot, plan),
        ]


def _promised(plan: Plan, outlook: Outlook, audit: SpreadAudit) -> Mapping[str, float]:
    """Share of the bandwidth with which each job of a plan with placement classes is planned; pinned ones with what
    they have."""
    found = {}
    for allocation in plan.allocations:
        shapes = [item.now for item in outlook.planned.get(allocation.job_id, ()) if item.now is not None]
        found[allocation.job_id] = shapes[0][3] if shapes else audit.here(allocation)
    return found


def formulate_horizon(snapshot: Snapshot, parameters: HorizonParameters, clock: PhaseClock) -> Formulation:
    """Build the program for a snapshot that passed `policy_issues`; beside a calendar of what it leaves now, with what
    it leaves later.

    Raises
    ------
    InputError
        When a goodput is not finite, or the calendar leaves too little to the jobs for the policy to take the snapshot.
    """
    build = partial(_formulate, calendar=snapshot)
    if snapshot.calendar:
        return formulate_around(HORIZON, build, snapshot, parameters, clock)
    return build(snapshot, parameters, clock)


def _formulate(
    snapshot: Snapshot, parameters: HorizonParameters, clock: PhaseClock, *, calendar: Snapshot
) -> HorizonFormulation:
    instance = horizon_instance(snapshot, parameters, clock, calendar)
    with clock.phase("build"):
        return HorizonFormulation(instance)
