"""Everything that can be said about a request without solving. Light: imports no solver and no modelling layer."""

from models.allocation.sia.parameters import SiaParameters
from models.allocation.sia.validation import policy_issues as sia_issues
from models.placement.arnold.validation import policy_issues as arnold_issues
from models.plan import Parameters
from models.workload import Snapshot, snapshot_issues
from solver.options import SOLVER_NAMES
from stowplan.errors import Issue


def request_issues(snapshot: Snapshot, parameters: Parameters) -> list[Issue]:
    """Every error and warning of this snapshot under the policy that `parameters` choose.

    Pointers are relative to the snapshot (`/jobs/2/performance`), or start with `/parameters`.
    """
    issues = snapshot_issues(snapshot.cluster, snapshot.jobs)
    if isinstance(parameters, SiaParameters):
        return issues + sia_issues(snapshot, parameters)
    return issues + arnold_issues(snapshot, parameters)


def solver_fault(parameters: Parameters, solver: str) -> str | None:
    """Why the policy cannot be planned with this solver, and which would do; None when it can."""
    if solver == "exact" and isinstance(parameters, SiaParameters):
        others = ", ".join(repr(name) for name in SOLVER_NAMES if name != solver)
        return f"is 'exact', which is an algorithm of arnold; for sia it must be one of {others}"
    return None
