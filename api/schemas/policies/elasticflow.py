"""Parameters of ElasticFlow."""

from typing import Annotated

from pydantic import Field

from api.schemas.base import Positive
from api.schemas.policies.base import ParametersDoc
from models.allocation.elasticflow.parameters import ElasticFlowParameters


class ElasticFlowParametersDoc(ParametersDoc):
    """Parameters of elasticflow."""

    planner = ElasticFlowParameters
    asks_for = (
        "Whose deadlines are guaranteed, and how many GPUs each job has until the next plan; elasticflow: least shares "
        "in order of deadlines, elasticflow-ilp: as many deadlines as can be."
    )

    slot_s: Positive = 240.0
    """For how long GPUs are handed out: ask again after so many seconds."""
    max_slots: Annotated[int, Field(ge=2, le=50)] = 12
    """Most slots that are looked ahead; later ones end at deadlines."""
    horizon_s: Positive = 3600.0
    """Over what time a restart is paid for."""
    best_effort: bool = False
    """Jobs whose deadline cannot be guaranteed get what is left, as those without one do; else they do not begin before
    it can be, or is over."""
