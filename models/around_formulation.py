"""A formulation of the snapshot that `models.around_calendar` makes, as one of the snapshot that was given."""

from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name

from models.access import Access
from models.allocation.plan_check import coverage_violations
from models.around_calendar import Around, around
from models.calendar_check import calendar_violations
from models.clock import PhaseClock
from models.formulation import Formulation
from models.plan import Plan, UnplacedJob
from models.policy import Parameters, Policy
from models.workload import Job, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import SolveResult
from stowplan.arrays import FloatVector
from stowplan.errors import Issue, Severity, raise_for_errors

Formulate = Callable[[Snapshot, Parameters, PhaseClock], Formulation]


class AroundFormulation(Formulation):
    """What `inner` formulates of `made.planned`; the plan is one of `made.snapshot`, and checked on both."""

    def __init__(self, inner: Formulation, made: Around, epsilon: float) -> None:
        self._inner = inner
        self._made = made
        self._epsilon = epsilon

    @property
    def problem(self) -> MatrixProblem:  # type: ignore[override]  # some are declared when somebody asks
        """That of the inner one."""
        return self._inner.problem

    @property
    def warnings(self) -> Sequence[Issue]:  # type: ignore[override]  # some are known once there is a plan
        """Those of the inner one."""
        return self._made.told(self._inner.warnings)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve the inner one."""
        return self._inner.solve(options, monitor)

    def named(self) -> MatrixProblem:
        """That of the inner one."""
        return self._inner.named()

    def conflicts(self, time_limit_s: float) -> tuple[str, ...]:
        """Those of the inner one."""
        return self._inner.conflicts(time_limit_s)

    def unplaced(self) -> tuple[UnplacedJob, ...]:
        """Those of the inner one, and the jobs that are left out."""
        return (*map(self._made.for_want_of_kept, self._inner.unplaced()), *self._made.unplaced())

    def prices(self, result: SolveResult) -> Mapping[str, float]:
        """Those of the inner one."""
        return self._inner.prices(result)

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """The plan of all jobs."""
        return self._made.whole(self._inner.extract(incumbent, clock))

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """What the policy finds in its part, and whether all jobs are told of and the calendar is honoured."""
        snapshot = self._made.snapshot
        return [
            *self._inner.violations(self._made.part(plan), objective),
            *coverage_violations(snapshot, plan),
            *calendar_violations(snapshot, plan.allocations, self._epsilon),
        ]


def formulate_around(
    policy: Policy, formulate: Formulate, snapshot: Snapshot, parameters: Parameters, clock: PhaseClock
) -> Formulation:
    """Formulate a snapshot with a calendar by a policy that asks none.

    Raises
    ------
    InputError
        When the calendar leaves too little to the jobs for the policy to take the snapshot.
    """
    with clock.phase("calendar"):
        access = Access(snapshot, parameters.epsilon)
        if access.is_open:
            return formulate(snapshot, parameters, clock)
        issues: Callable[[Snapshot, Parameters], list[Issue]] = resolve_name(policy.issues)
        made = around(snapshot, access, places_one=policy.places_one)
        found = issues(made.planned, parameters)
        refused = {issue.pointer.split("/")[2] for issue in found if _is_fault_of_a_job(issue)}
        stuck = {made.planned.jobs[int(k)].id for k in refused} & made.leaving
        if stuck:

            def can_start(job: Job) -> bool:
                """Whether the policy takes the job as one that waits."""
                return job.id not in stuck

            made = around(snapshot, access, places_one=policy.places_one, startable=can_start)
            found = issues(made.planned, parameters)
        raise_for_errors(made.told(found), "snapshot beside its calendar")
    return AroundFormulation(formulate(made.planned, parameters, clock), made, parameters.epsilon)


def _is_fault_of_a_job(issue: Issue) -> bool:
    return issue.severity is Severity.ERROR and issue.pointer.startswith("/jobs/")
