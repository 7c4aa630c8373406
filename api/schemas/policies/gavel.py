"""Parameters of Gavel."""

from api.schemas.base import Positive
from api.schemas.policies.base import ParametersDoc
from models.allocation.gavel.parameters import GavelObjective, GavelParameters


class GavelParametersDoc(ParametersDoc):
    """Parameters of gavel."""

    planner = GavelParameters
    asks_for = (
        "Which jobs of fixed size have GPUs of which type in the next round, so that in time all get their shares; "
        "gavel: by descending priority, gavel-ilp: the best round."
    )

    objective: GavelObjective = GavelObjective.MAX_MIN_FAIRNESS
    """max_min_fairness: the least throughput over that of an equal share, by weight, is as large as can be; makespan:
    the last of these jobs ends as early as can be."""
    round_s: Positive = 360.0
    """For how long GPUs are handed out at a time. Who asks for plans in rounds asks every so many seconds."""
