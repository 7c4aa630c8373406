"""A formulation of the snapshot that `models.around_calendar` makes, as one of the snapshot that was given."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pkgutil import resolve_name

import numpy as np
from scipy import sparse

from models.access import Access
from models.allocation.plan_check import coverage_violations
from models.around_calendar import Around, around
from models.calendar_check import calendar_violations
from models.clock import PhaseClock
from models.formulation import Formulation
from models.plan import JobAllocation, Plan, UnplacedJob
from models.policy import Parameters, Policy
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import SolveResult, SolveStatistics, TerminationReason
from stowplan.arrays import FloatVector
from stowplan.errors import Issue, Severity, raise_for_errors

# A part has this time even where those before it took all.
_LEAST_S = 0.1
# Relative and absolute, of sums.
_SAME = 1e-6

Formulate = Callable[[Snapshot, Parameters, PhaseClock], Formulation]


class AroundFormulation(Formulation):
    """What `inners` formulate of the parts of `made`; the plan is one of `made.snapshot`, and checked on both."""

    def __init__(self, inners: Sequence[Formulation], made: Around, epsilon: float) -> None:
        self._inners = inners
        self._made = made
        self._epsilon = epsilon
        self._plans: list[Plan] = []
        self._objectives: list[float] = []

    @cached_property
    def problem(self) -> MatrixProblem:  # type: ignore[override]  # some are declared when somebody asks
        """Those of the parts side by side."""
        return side_by_side([inner.problem for inner in self._inners])

    @property
    def warnings(self) -> Sequence[Issue]:  # type: ignore[override]  # some are known once there is a plan
        """Those of the parts."""
        pairs = zip(self._made.parts, self._inners, strict=True)
        return [issue for part, inner in pairs for issue in part.told(inner.warnings)]

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve the parts one after the other, in the time that there is for all."""
        if len(self._inners) == 1:
            return self._inners[0].solve(options, monitor)
        # A point of a part is none of the whole, so that nobody is told of it.
        silent = SolveMonitor(canceled=monitor.canceled)
        options = replace(options, warm_start=None, prices=None)
        begin_s = time.monotonic()
        results: list[SolveResult] = []
        for inner in self._inners:
            left_s = max(_LEAST_S, options.time_limit_s - (time.monotonic() - begin_s))
            results.append(inner.solve(replace(options, time_limit_s=left_s), silent))
            if results[-1].incumbent is None:
                return results[-1]
        return together(results)

    def named(self) -> MatrixProblem:
        """Those of the parts side by side."""
        return side_by_side([inner.named() for inner in self._inners])

    def unplaced(self) -> tuple[UnplacedJob, ...]:
        """Those of the parts, and the jobs that are left out."""
        return self._made.unplaced(job for inner in self._inners for job in inner.unplaced())

    def prices(self, result: SolveResult) -> Mapping[str, float]:
        """Those of the only part; of several, none."""
        return self._inners[0].prices(result) if len(self._inners) == 1 else {}

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """The plan of all jobs."""
        if len(self._inners) == 1:
            self._plans = [self._inners[0].extract(incumbent, clock)]
        else:
            ends = np.cumsum([inner.problem.num_columns for inner in self._inners])[:-1]
            pairs = list(zip(self._inners, np.split(incumbent, ends), strict=True))
            self._plans = [inner.extract(point, clock) for inner, point in pairs]
            self._objectives = [inner.problem.value(point) for inner, point in pairs]
        return self._made.whole(self._plans)

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """What the policy finds in the parts, whether they are the plan, and whether that honours the calendar."""
        objectives = self._objectives or [objective]
        found = [
            issue
            for part, inner, planned, value in zip(self._made.parts, self._inners, self._plans, objectives, strict=True)
            for issue in part.told(inner.violations(planned, value))
        ]
        if plan != self._made.whole(self._plans):
            found.append(Issue(code="not_its_parts", pointer="", detail="the plan is not what its parts were planned"))
        if not math.isclose(math.fsum(objectives), objective, rel_tol=_SAME, abs_tol=_SAME):
            detail = f"is {objective}; those of the parts add up to {math.fsum(objectives)}"
            found.append(Issue(code="objective_mismatch", pointer="/objective", detail=detail))
        return [
            *found,
            *coverage_violations(self._made.snapshot, plan),
            *placed_twice(plan.allocations),
            *calendar_violations(self._made.snapshot, plan.allocations, self._epsilon),
        ]


def placed_twice(allocations: Sequence[JobAllocation]) -> list[Issue]:
    """GPUs that two parts give away."""
    counts = Counter((part.node, gpu) for item in allocations for part in item.gpus for gpu in part.gpus)
    return [
        Issue(
            code="gpu_taken_twice", pointer="/allocations", detail=f"GPU {gpu} of node {node!r} is given {times} times"
        )
        for (node, gpu), times in counts.items()
        if times > 1
    ]


def side_by_side(problems: Sequence[MatrixProblem]) -> MatrixProblem:
    """Problems of one sense that share nothing, as one; the columns and rows of the first come first."""
    first = problems[0]
    if len(problems) == 1:
        return first
    return MatrixProblem(
        name=first.name,
        sense=first.sense,
        objective=np.concatenate([problem.objective for problem in problems]),
        offset=math.fsum(problem.offset for problem in problems),
        matrix=sparse.csc_array(sparse.block_diag([problem.matrix for problem in problems], format="csc")),
        row_lower=np.concatenate([problem.row_lower for problem in problems]),
        row_upper=np.concatenate([problem.row_upper for problem in problems]),
        lower=np.concatenate([problem.lower for problem in problems]),
        upper=np.concatenate([problem.upper for problem in problems]),
        integrality=np.concatenate([problem.integrality for problem in problems]),
        column_names=_numbered([problem.column_names for problem in problems]),
        row_names=_numbered([problem.row_names for problem in problems]),
    )


def _numbered(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Names of the parts, those behind the first with their number."""
    return tuple(name if k == 0 else f"part{k}.{name}" for k, of in enumerate(names) for name in of)


def together(results: Sequence[SolveResult]) -> SolveResult:
    """Results with incumbents as one: sums, and proven where all are."""
    incumbents = [result.incumbent for result in results if result.incumbent is not None]
    bounds = [result.bound for result in results if result.bound is not None]
    all_optimal = all(result.termination is TerminationReason.OPTIMAL for result in results)
    return replace(
        results[0],
        termination=TerminationReason.OPTIMAL if all_optimal else TerminationReason.FEASIBLE,
        limit=None if all_optimal else next((result.limit for result in results if result.limit is not None), None),
        incumbent=np.concatenate(incumbents),
        objective=math.fsum(result.objective or 0.0 for result in results),
        bound=math.fsum(bounds) if len(bounds) == len(results) else None,
        statistics=SolveStatistics(solve_s=math.fsum(result.statistics.solve_s or 0.0 for result in results)),
        message="; ".join(dict.fromkeys(result.message for result in results if result.message)),
        prices=None,
    )


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
        issues_of: Callable[[Snapshot, Parameters], list[Issue]] = resolve_name(policy.issues)

        def issues(made: Around) -> list[Issue]:
            return [issue for part in made.parts for issue in part.told(issues_of(part.planned, parameters))]

        made = around(snapshot, access, places_one=policy.places_one)
        found = issues(made)
        refused = {issue.pointer.split("/")[2] for issue in found if _is_fault_of_a_job(issue)}
        stuck = {snapshot.jobs[int(k)].id for k in refused} & made.leaving
        if stuck:
            made = around(snapshot, access, places_one=policy.places_one, startable=lambda job: job.id not in stuck)
            found = issues(made)
        raise_for_errors(found, "snapshot beside its calendar")
    inners = [formulate(part.planned, parameters, clock) for part in made.parts]
    return AroundFormulation(inners, made, parameters.epsilon)


def _is_fault_of_a_job(issue: Issue) -> bool:
    return issue.severity is Severity.ERROR and issue.pointer.startswith("/jobs/")
