"""What can be wrong with a snapshot under `horizon`. Light: imports no solver and no modelling layer."""

from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.sia.validation import goodput_policy_issues
from models.workload import Snapshot
from stowplan.errors import Issue


def policy_issues(snapshot: Snapshot, parameters: HorizonParameters) -> list[Issue]:
    """Every error and warning of this snapshot; pointers as in `snapshot_issues`. It asks for what Sia asks for."""
    by_time = parameters.objective is HorizonObjective.COMPLETION_TIME
    objective = SiaObjective.COMPLETION_TIME if by_time else SiaObjective.GOODPUT
    parameters_of_sia = SiaParameters(objective=objective, epsilon=parameters.epsilon)
    return goodput_policy_issues(snapshot, parameters_of_sia, "horizon")
