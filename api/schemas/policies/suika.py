"""Parameters of Suika."""

from typing import Annotated, Any

from pydantic import Field

from api.schemas.base import Count
from api.schemas.incremental import IncrementalOptionsDoc
from api.schemas.policies.base import ParametersDoc
from models.allocation.suika.parameters import Offers, Queueing, SuikaParameters
from models.parallelism.incremental.options import IncrementalOptions


class SuikaPlanningDoc(IncrementalOptionsDoc):
    """How far the incremental planner looks: one decision asks for hundreds of plans."""

    tolerance: Annotated[float, Field(ge=0, le=10)] = 0.0
    """How much slower than the best a plan may be to be built upon."""


class SuikaParametersDoc(ParametersDoc):
    """Parameters of Suika section 3.2."""

    planner = SuikaParameters
    asks_for = (
        "Which jobs start, and which running ones grow onto free GPUs with a new 3D plan; suika: Algorithm 2, "
        "suika-ilp: Problem 1."
    )

    aggressiveness: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """Exponent of the threshold: 0 asks for scale-outs that are linear or better, more lets weaker ones through."""
    queueing: Queueing = Queueing.FIFO
    """Order of waiting jobs: by age (fifo), or by the time that they still take (sjf)."""
    planning: SuikaPlanningDoc = SuikaPlanningDoc()
    max_rounds: Count = 1000
    """Most scale-outs in one decision."""
    offers: Offers = Offers.ALL
    """Scale-outs that Problem 1 chooses among, and bounds: those of all jobs (all), or those that Algorithm 2 met
    (met), with which a decision on many jobs takes a fraction of the time."""

    def values(self) -> dict[str, Any]:
        """Fields of the planner's type."""
        return {**super().values(), "planning": IncrementalOptions(**vars(self.planning))}
