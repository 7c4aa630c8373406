"""What a user may tune in gang."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from models.allocation.parameter_checks import raise_for_quotas
from models.epsilon import raise_for_epsilon
from models.policy import Parameters
from stowplan.errors import InputError


class GangMethod(StrEnum):
    """`heuristic`: backfill in queue order, with the bound of the integer program beside it. `ilp`: that program."""

    HEURISTIC = "heuristic"
    ILP = "ilp"


class QueueOrder(StrEnum):
    """Who comes first, among equals the oldest. `fifo`: the oldest. `priority`: the most urgent. `srtf`: the one with
    the shortest remaining time. `las`: the one with the least attained service, GPUs x seconds, in queues by thresholds
    (Tiresias, NSDI 2019, section 3.3: discretised 2D-LAS)."""

    FIFO = "fifo"
    PRIORITY = "priority"
    SRTF = "srtf"
    LAS = "las"


class Backfill(StrEnum):
    """What starts behind a job that waits for GPUs of its type. `none`: nothing. `easy`: what does not delay the first
    such job (Lifka 1995: the EASY scheduler)."""

    NONE = "none"
    EASY = "easy"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangParameters(Parameters):
    """Parameters of gang.

    promotion_after_s: under `priority`, a waiting job rises by one priority every time that it has waited so long
    (None: never). priority_ratio: under `priority`, how many times a GPU of one priority counts against a GPU of the
    next in the objective; it changes no order.
    default_remaining_s: how long jobs run that do not say (None: not known; their GPUs are not counted on).
    preemption: but for `fifo`, a job that does not fit takes the GPUs of preemptible jobs that come later than itself:
    of lower priority, with longer remaining time, or in a later queue of `las`.
    nearness_s: the job that is next is promised nodes that are closer together, where that takes it so many seconds
    longer at most; others start on those that it does not want. It still starts on any as soon as it can.
    service_thresholds: under `las`, GPU seconds from which on jobs are in the second queue, the third, ...; by default
    those of the released simulator of Tiresias.
    quotas: most GPUs that the jobs of a queue may have together; a queue without one has no limit.

    Raises
    ------
    InputError
        When a value is out of its range, or the order does not go with it.
    """

    method: GangMethod = GangMethod.HEURISTIC
    order: QueueOrder = QueueOrder.FIFO
    promotion_after_s: float | None = None
    priority_ratio: float = 2.0
    backfill: Backfill = Backfill.EASY
    default_remaining_s: float | None = None
    preemption: bool = False
    nearness_s: float = 0.0
    service_thresholds: tuple[float, ...] = (3250.0, 7200.0)
    quotas: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("promotion_after_s", "default_remaining_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}; must be finite and above 0")
        if not (math.isfinite(self.nearness_s) and self.nearness_s >= 0):
            raise InputError(f"nearness_s is {self.nearness_s}; must be finite and at least 0")
        if not 1 <= self.priority_ratio <= 100:
            raise InputError(f"priority_ratio is {self.priority_ratio}; must be from 1 to 100")
        raise_for_epsilon(self.epsilon)
        raise_for_quotas(self.quotas)
        if self.order is not QueueOrder.PRIORITY and self.promotion_after_s is not None:
            detail = f"goes by priorities, which the order {self.order} does not use; give order = priority"
            raise InputError(f"promotion_after_s {detail}")
        if self.order is QueueOrder.FIFO and self.preemption:
            others = ", ".join(order for order in QueueOrder if order is not QueueOrder.FIFO)
            raise InputError(f"preemption goes by who comes first, and under fifo who runs has; give order: {others}")
        limits = self.service_thresholds
        if not limits or not all(0 < a < b for a, b in pairwise((*limits, math.inf))):
            raise InputError(f"service_thresholds are {list(limits)}; must be numbers above 0 in ascending order")
