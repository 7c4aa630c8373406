"""What can be wrong with a snapshot under `horizon`. Light: imports no solver and no modelling layer."""

from collections.abc import Iterator

from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.sia.validation import goodput_policy_issues
from models.wording import counted
from models.workload import Snapshot
from stowplan.errors import Issue, Severity


def policy_issues(snapshot: Snapshot, parameters: HorizonParameters) -> list[Issue]:
    """Every error and warning of this snapshot; pointers as in `snapshot_issues`. It asks for what Sia asks for."""
    by_time = parameters.objective is HorizonObjective.COMPLETION_TIME
    objective = SiaObjective.COMPLETION_TIME if by_time else SiaObjective.GOODPUT
    parameters_of_sia = SiaParameters(objective=objective, epsilon=parameters.epsilon)
    found = goodput_policy_issues(snapshot, parameters_of_sia, "horizon")
    return [*found, *_deadline_warnings(snapshot, parameters)]


def _deadline_warnings(snapshot: Snapshot, parameters: HorizonParameters) -> Iterator[Issue]:
    """What is said of deadlines and is not used: once, at the first job."""
    said = [k for k, job in enumerate(snapshot.jobs) if job.deadline_s is not None]
    if said and parameters.lateness == 0:
        yield Issue(
            code="ignored_field",
            pointer=f"/jobs/{said[0]}/deadline_s",
            detail=f"is not used where lateness is 0, and is given for {counted(len(said), 'job')}",
            severity=Severity.WARNING,
        )
