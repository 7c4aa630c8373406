"""Parameters of gang."""

from typing import Annotated

from pydantic import Field

from api.schemas.base import NonNegative, Positive
from api.schemas.policies.base import ParametersDoc, Quotas
from models.allocation.gang.parameters import Backfill, GangParameters, QueueOrder


class GangParametersDoc(ParametersDoc):
    """Parameters of gang."""

    planner = GangParameters
    asks_for = (
        "Which jobs of a queue start now on which GPUs, of jobs that say their size alone; gang: in the order of the "
        "queue, gang-ilp: the most valuable backfill."
    )

    order: QueueOrder = QueueOrder.FIFO
    """fifo: the oldest job first; priority: the most urgent one; srtf: that with the shortest remaining time; las: that
    with the least attained service, in queues by thresholds (Tiresias); among equals the oldest."""
    promotion_after_s: Positive | None = None
    """Order priority: a waiting job rises by one priority every time that it has waited so long (null: never)."""
    priority_ratio: Annotated[float, Field(ge=1, le=100)] = 2.0
    """Order priority: how many times a GPU of one priority counts against a GPU of the next in the objective."""
    backfill: Backfill = Backfill.EASY
    """What starts behind a job that waits for GPUs. none: nothing; easy: what does not delay the first such job."""
    default_remaining_s: Positive | None = None
    """How long jobs run that do not say (null: not known, so that their GPUs are not counted on)."""
    preemption: bool = False
    """But for fifo: a job that finds no room takes the GPUs of preemptible jobs that come later by the order."""
    nearness_s: NonNegative = 0.0
    """The job that is next is promised nodes that are closer together, where that takes it so many seconds longer at
    most; others start on the nodes that it does not want. It still starts on any as soon as it can."""
    service_thresholds: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=100)] = (3250.0, 7200.0)
    """Order las: GPU seconds from which on jobs are in the second queue, the third, ..., ascending."""
    quotas: Quotas
