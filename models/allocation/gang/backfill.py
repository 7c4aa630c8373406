"""Backfill in the order of the queue: every job that does not delay the one that is next starts, if there is room.

Jobs that end in time go to held nodes first, and to the shared node, which others may not use or only in part; then to
open nodes. A job that finds no room leaves none for those of its class behind it, so that they are not tried.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from models.allocation.gang.instance import GangInstance, Ground, JobClass
from models.allocation.gang.packing import Packing
from models.allocation.gang.shapes import Shape

_Way = tuple[Counter[int], int, Counter[int]]


@dataclass(slots=True, kw_only=True, eq=False)
class Filling:
    """A ground with backfilled jobs on it: packings, and items on the shared node by size, of jobs that end in time and
    of those that do not."""

    ground: Ground
    open: Packing
    held: Packing
    shared_in_time: Counter[int] = field(default_factory=Counter)
    shared_late: Counter[int] = field(default_factory=Counter)

    def put(self, shape: Shape, *, in_time: bool) -> bool:
        """Find room for a job; whether there was."""
        for on_held, on_shared, on_open in self._ways(shape, in_time=in_time):
            # What the open nodes refuse must leave the held ones as they were.
            held = self.held.copy() if on_held else self.held
            if on_shared <= self._shared_room(in_time=in_time) and held.put(on_held) and self.open.put(on_open):
                self.held = held
                (self.shared_in_time if in_time else self.shared_late)[on_shared] += on_shared > 0
                return True
        return False

    def _ways(self, shape: Shape, *, in_time: bool) -> Iterator[_Way]:
        """Items for held nodes, size of the one for the shared node, and items for open nodes; first those that use
        what others may not."""
        size, whole, rest = shape.node_size, shape.num_whole, shape.rest
        item = Counter({rest: 1} if rest else {})
        if not in_time:
            if rest:
                yield Counter(), rest, _items(size, whole)
            yield Counter(), 0, _items(size, whole) + item
            return
        for num_held in dict.fromkeys((min(whole, self.held.num_whole), 0)):
            held, left = _items(size, num_held), whole - num_held
            if rest:
                yield held + item, 0, _items(size, left)
                yield held, rest, _items(size, left)
            elif left:
                yield held, size, _items(size, left - 1)
            yield held, 0, _items(size, left) + item

    def _shared_room(self, *, in_time: bool) -> int:
        """GPUs that an item may have on the shared node."""
        late = _num_gpus(self.shared_late)
        now = self.ground.shared_now - _num_gpus(self.shared_in_time) - late
        return now if in_time else min(now, self.ground.shared_over - late)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Backfilled:
    """counts: jobs of each pair that start, in the order of `GangInstance.pairs`; fillings by group."""

    counts: tuple[int, ...]
    fillings: Mapping[int, Filling]


def backfill(instance: GangInstance) -> Backfilled:
    """Serve the jobs that may be backfilled, in the order of the queue."""
    fillings = {
        g: Filling(ground=ground, open=ground.open.copy(), held=ground.held.copy())
        for g, ground in instance.grounds.items()
    }
    left = dict(instance.admission.quota_left)
    counts: Counter[tuple[int, int]] = Counter()
    class_of = {position: c for c, found in enumerate(instance.classes) for position in found.positions}
    spent: set[int] = set()
    for c in (class_of[waiting.position] for waiting in instance.admission.waiting if waiting.shapes):
        if c in spent:
            continue
        found = instance.classes[c]
        chosen = None
        if found.quota is None or found.size <= left[found.quota]:
            chosen = _started(found, fillings)
        if chosen is None:
            spent.add(c)
            continue
        counts[c, chosen] += 1
        if found.quota is not None:
            left[found.quota] -= found.size
    return Backfilled(counts=tuple(counts[pair] for pair in instance.pairs), fillings=fillings)


def _started(found: JobClass, fillings: Mapping[int, Filling]) -> int | None:
    """The shape, by its position, in which a job of the class has found room."""
    for k, (shape, in_time) in enumerate(zip(found.shapes, found.in_time, strict=True)):
        if fillings[shape.group].put(shape, in_time=in_time):
            return k
    return None


def _items(size: int, count: int) -> Counter[int]:
    return Counter({size: count}) if count else Counter()


def _num_gpus(items: Counter[int]) -> int:
    return sum(size * count for size, count in items.items())
