"""Everything that can be said about a request without solving. Light: imports no solver and no modelling layer."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import lru_cache

from models.performance.iteration.plausibility import calibration_warnings, peak_warnings
from models.policies import POLICIES, policy_of
from models.policy import Parameters, Policy, named
from models.roll import rows_that_say, some_say
from models.wording import counted
from models.workload import Job, Snapshot, snapshot_warnings
from solver.registry import SOLVER_NAMES
from stowplan.errors import Issue, Severity

# Asked for beside a calendar, whatever the policy.
_OF_CALENDAR = {"remaining_s"}


def request_issues(snapshot: Snapshot, parameters: Parameters) -> list[Issue]:
    """Every error and warning of this snapshot under the policy that `parameters` choose.

    Pointers are relative to the snapshot (`/jobs/2/performance`), or start with `/parameters`.
    """
    policy = policy_of(parameters)
    policy_issues: Callable[[Snapshot, Parameters], list[Issue]] = named(policy.issues)
    own = policy_issues(snapshot, parameters)
    return [
        *snapshot_warnings(snapshot),
        *own,
        *_performance_warnings(snapshot),
        *_ignored_fields(snapshot, policy),
    ]


@lru_cache
def _ignored(names: tuple[str, ...], *, has_calendar: bool) -> tuple[str, ...]:
    """Fields of jobs that a policy which ignores `names` never looks at."""
    asked = _OF_CALENDAR if has_calendar else set()
    return tuple(field.name for field in fields(Job) if field.name in names and field.name not in asked)


def _ignored_fields(snapshot: Snapshot, policy: Policy) -> Iterator[Issue]:
    """What jobs say that the policy never looks at: once per field, at the first job that says it."""
    ignored = _ignored(policy.ignores, has_calendar=bool(snapshot.calendar))
    # Nearly always nobody says any of them.
    if not some_say(snapshot, *ignored):
        return
    for name in ignored:
        saying = rows_that_say(snapshot, name)
        if saying:
            users = ", ".join(other.name for other in POLICIES.values() if name not in other.ignores) or "none"
            yield Issue(
                code="ignored_field",
                pointer=f"/jobs/{saying[0]}/{name}",
                detail=f"is not used by {policy.name}, and is given for {counted(len(saying), 'job')}; used by {users}",
                severity=Severity.WARNING,
            )


def _performance_warnings(snapshot: Snapshot) -> Iterator[Issue]:
    """What the performance models of jobs pass over."""
    kinds, jobs = snapshot.cluster.gpu_types, snapshot.jobs
    if some_say(snapshot, "transformer", "operators"):
        yield from peak_warnings(kinds, "/cluster/gpu_types")
    for k in rows_that_say(snapshot, "calibration"):
        if (calibration := jobs[k].calibration) is not None:
            yield from calibration_warnings(calibration, kinds, f"/jobs/{k}/calibration")


def solver_fault(parameters: Parameters, solver: str) -> str | None:
    """Why the policy cannot be planned with this solver, and which would do; None when it can."""
    policy = policy_of(parameters)
    owners = [other.name for other in POLICIES.values() if solver in other.algorithms]
    if not owners or policy.name in owners:
        return None
    others = ", ".join(repr(name) for name in SOLVER_NAMES if name != solver)
    return f"is {solver!r}, which is an algorithm of {', '.join(owners)}; for {policy.name} it must be one of {others}"
