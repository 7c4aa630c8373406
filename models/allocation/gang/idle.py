"""Whether a plan could start anything at all, by counts of free GPUs alone, and when it changes by itself.

Without preemption gang keeps what runs, and a job that starts takes whole nodes and at most a part of one more
(`models.allocation.gang.shapes`). Where no waiting job finds these, a plan would change nothing, whatever the order.

Light: imports no solver and no modelling layer.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from models.allocation.ageing import next_promotion_s
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.policy import Running, Waiting, Wanted


def may_start(parameters: GangParameters, wanted: Iterable[Wanted], rooms: Mapping[str, Sequence[int]]) -> bool:
    """Whether a plan may start one of the waiting jobs; see `Policy.may_start`."""
    if parameters.preemption:
        return any(True for _ in wanted)
    left = {name: _Room(counts) for name, counts in rooms.items()}
    return any(left[name].fits(num_gpus) for num_gpus, types in wanted for name in (left if types is None else types))


def changes_after(parameters: GangParameters, waiting: Iterable[Waiting], running: Iterable[Running]) -> float | None:
    """Seconds until a job that waits rises in the queue, or one that runs comes into a later queue of attained service
    and may have to make way; see `Policy.changes_after`."""
    if parameters.order is QueueOrder.LAS and parameters.preemption:
        return _next_threshold_s(parameters, running) if any(True for _ in waiting) else None
    if parameters.order is not QueueOrder.PRIORITY or parameters.promotion_after_s is None:
        return None
    return next_promotion_s(waiting, parameters.promotion_after_s)


def _next_threshold_s(parameters: GangParameters, running: Iterable[Running]) -> float | None:
    limits = parameters.service_thresholds
    queues = ((num_gpus, attained, bisect_right(limits, attained)) for num_gpus, attained in running)
    return min(
        ((limits[queue] - attained) / num_gpus for num_gpus, attained, queue in queues if queue < len(limits)),
        default=None,
    )


class _Room:
    """Free GPUs on the nodes of one type that take work."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._size = len(counts) - 1
        # Nodes with so many free GPUs or more.
        self._at_least = [sum(counts[free:]) for free in range(len(counts))]

    def fits(self, num_gpus: int) -> bool:
        """Whether there are nodes for the job."""
        if not self._size:
            return False
        num_whole, rest = divmod(num_gpus, self._size)
        needed = num_whole + (rest > 0)
        return self._at_least[self._size] >= num_whole and self._at_least[rest or self._size] >= needed
