"""Everything that can be said about a request without solving. Light: imports no solver and no modelling layer."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from models.allocation.arena.parameters import ArenaParameters
from models.allocation.arena.validation import policy_issues as arena_issues
from models.allocation.sia.parameters import SiaParameters
from models.allocation.sia.validation import policy_issues as sia_issues
from models.allocation.suika.parameters import SuikaParameters
from models.allocation.suika.validation import policy_issues as suika_issues
from models.performance.iteration.plausibility import calibration_warnings, peak_warnings
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.validation import policy_issues as arnold_issues
from models.plan import Parameters, policy_of
from models.workload import Snapshot, snapshot_issues
from solver.options import SOLVER_NAMES
from stowplan.errors import Issue

_POLICY_ISSUES: Mapping[type[Parameters], Callable[[Snapshot, Any], list[Issue]]] = {
    SiaParameters: sia_issues,
    ArnoldParameters: arnold_issues,
    ArenaParameters: arena_issues,
    SuikaParameters: suika_issues,
}


def request_issues(snapshot: Snapshot, parameters: Parameters) -> list[Issue]:
    """Every error and warning of this snapshot under the policy that `parameters` choose.

    Pointers are relative to the snapshot (`/jobs/2/performance`), or start with `/parameters`.
    """
    own = _POLICY_ISSUES[type(parameters)](snapshot, parameters)
    return [*snapshot_issues(snapshot.cluster, snapshot.jobs), *own, *_performance_warnings(snapshot)]


def _performance_warnings(snapshot: Snapshot) -> Iterator[Issue]:
    """What the performance models of jobs pass over."""
    kinds = snapshot.cluster.gpu_types
    if any(job.model is not None for job in snapshot.jobs):
        yield from peak_warnings(kinds, "/cluster/gpu_types")
    for k, job in enumerate(snapshot.jobs):
        if job.calibration is not None:
            yield from calibration_warnings(job.calibration, kinds, f"/jobs/{k}/calibration")


def solver_fault(parameters: Parameters, solver: str) -> str | None:
    """Why the policy cannot be planned with this solver, and which would do; None when it can."""
    if solver == "exact" and not isinstance(parameters, ArnoldParameters):
        others = ", ".join(repr(name) for name in SOLVER_NAMES if name != solver)
        return f"is 'exact', which is an algorithm of arnold; for {policy_of(parameters)} it must be one of {others}"
    return None
