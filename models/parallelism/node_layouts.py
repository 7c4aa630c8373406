"""All ways in which the stages of a plan can sit on nodes, as far as its speed depends on it.

What matters of a stage is where its replicas meet: `WHOLE` in one node, `SINGLES` one to a node, `MIXED` on several
nodes of which some hold more than one. The reduction runs over links inside a node, over the network, or over both.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache

from models.parallelism.layout import packs, stage_places

# Of every stage, the node of each replica.
Assignment = tuple[tuple[int, ...], ...]


class Meeting(IntEnum):
    """Where the replicas of a stage meet."""

    WHOLE = 0
    SINGLES = 1
    MIXED = 2


def capacities(num_gpus: int, gpus_per_node: int) -> tuple[int, ...]:
    """GPUs on every node when n GPUs are whole nodes and one with the rest."""
    whole, rest = divmod(num_gpus, gpus_per_node)
    return (gpus_per_node,) * whole + (rest,) * (rest > 0)


def best_layouts(
    degrees: tuple[tuple[int, int], ...], free: tuple[int, ...], intra_bytes_per_s: float, inter_bytes_per_s: float
) -> list[tuple[Meeting, ...]]:
    """Layouts of stages of (dp, tp) `degrees` on nodes with `free` GPUs, without those that another one beats.

    A layout is beaten when another has no slower reduction in any stage: volume / (TP x intra) inside a node, volume /
    inter across nodes, the slower one for both.
    """
    if intra_bytes_per_s >= inter_bytes_per_s:
        # Whole is best, and a stage of several nodes is as slow as the network anyway.
        compact = _compact(degrees, max(free))
        if compact is not None:
            return [compact]
    slowness = [
        _slowness(tp * intra_bytes_per_s, inter_bytes_per_s) if dp > 1 else dict.fromkeys(Meeting, 0.0)
        for dp, tp in degrees
    ]
    every = layouts(degrees, free)
    rated = sorted((tuple(of[meeting] for of, meeting in zip(slowness, way, strict=True)), way) for way in every)
    kept: list[tuple[tuple[float, ...], tuple[Meeting, ...]]] = []
    for rate, way in rated:
        if not any(all(a <= b for a, b in zip(other, rate, strict=True)) for other, _ in kept):
            kept.append((rate, way))
    return [way for _, way in kept]


def assignment_of(
    degrees: tuple[tuple[int, int], ...], free: tuple[int, ...], layout: tuple[Meeting, ...]
) -> Assignment:
    """Nodes for the replicas of every stage in a layout that `best_layouts` gave."""
    places = stage_places(tuple(dp * tp for dp, tp in degrees), max(free))
    if places is None or _compact(degrees, max(free)) != layout:
        return layouts(degrees, free)[layout]
    return tuple(
        tuple(int(where[j * tp][0]) for j in range(dp)) for where, (dp, tp) in zip(places, degrees, strict=True)
    )


def _compact(degrees: tuple[tuple[int, int], ...], gpus_per_node: int) -> tuple[Meeting, ...] | None:
    """The layout with every stage on the fewest nodes, if there is one."""
    ways = [_compact_meeting(dp, tp, gpus_per_node) for dp, tp in degrees]
    if None in ways or not packs(tuple(dp * tp for dp, tp in degrees), gpus_per_node):
        return None
    return tuple(way for way in ways if way is not None)


@lru_cache(maxsize=4096)
def _compact_meeting(dp: int, tp: int, gpus_per_node: int) -> Meeting | None:
    """Where replicas meet on whole nodes and one with the rest; None when tensor groups do not fit there."""
    whole, rest = divmod(dp * tp, gpus_per_node)
    if not whole or dp * tp == gpus_per_node:
        return Meeting.WHOLE
    if gpus_per_node % tp or rest % tp:
        return None
    return Meeting.SINGLES if gpus_per_node == tp else Meeting.MIXED


def _slowness(inside: float, across: float) -> dict[Meeting, float]:
    """Seconds per byte of the reduction."""
    return {Meeting.WHOLE: 1 / inside, Meeting.SINGLES: 1 / across, Meeting.MIXED: max(1 / inside, 1 / across)}


@lru_cache(maxsize=200_000)
def layouts(degrees: tuple[tuple[int, int], ...], free: tuple[int, ...]) -> dict[tuple[Meeting, ...], Assignment]:
    """Every combination of meetings that the nodes have room for, with one assignment that has it."""
    if not degrees:
        return {(): ()}
    (dp, tp), rest = degrees[0], degrees[1:]
    found: dict[tuple[Meeting, ...], Assignment] = {}
    for counts in _distributions(dp, tuple(room // tp for room in free)):
        left = tuple(room - count * tp for room, count in zip(free, counts, strict=True))
        nodes = tuple(node for node, count in enumerate(counts) for _ in range(count))
        for layout, assignment in layouts(rest, left).items():
            found.setdefault((_meeting(counts), *layout), (nodes, *assignment))
    return found


def _meeting(counts: Sequence[int]) -> Meeting:
    if sum(count > 0 for count in counts) == 1:
        return Meeting.WHOLE
    return Meeting.SINGLES if max(counts) == 1 else Meeting.MIXED


def _distributions(total: int, most: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Ways to spread `total` replicas over nodes with room for `most`; of equal nodes next to each other, the earlier
    gets more, since their names do not matter."""
    if not most:
        if total == 0:
            yield ()
        return
    for count in range(min(total, most[0]), -1, -1):
        for others in _distributions(total - count, most[1:]):
            if not (len(most) > 1 and most[0] == most[1] and others[0] > count):
                yield (count, *others)
