"""Options of the incremental planner, for the policy that asks it and for those who ask it themselves."""

from typing import Annotated

from pydantic import Field

from api.schemas.base import Document, NumGpus
from models.parallelism.incremental.options import MicroBatches, Scaling


class IncrementalOptionsDoc(Document):
    """How far the incremental planner looks (Suika section 3.2.2)."""

    window: Annotated[int, Field(ge=1, le=10_000)] | None = 8
    """Prefixes of the released GPUs whose plans a plan may come from (null: all)."""
    unit: NumGpus | None = None
    """GPUs of one node that are added together (null: min(ceil(N / 16), 8) for a job on N GPUs)."""
    expansion_limit: Annotated[float, Field(gt=0, le=1e6)] | None = 1.0
    """Stop when the plan has grown by this multiple (null: no limit)."""
    micro_batches: MicroBatches = MicroBatches.FREE
    """Any number of micro-batches, or that of the running plan."""
    tolerance: Annotated[float, Field(ge=0, le=10)] = 0.05
    """How much slower than the best a plan may be to be built upon."""
    scaling: Scaling = Scaling.THREE_D
    """Change pipeline, data and tensor degrees, or data degrees only."""
