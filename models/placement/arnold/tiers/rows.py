"""Groups in a row: each takes what the last one left of a bin, or nothing of it, and further bins.

A depth-first search over how many bins of each kind (free nodes, units above) a group takes, from the group that
touches fewest units on; of the bins that it takes one stays open for the next group. States that have failed are
remembered by counts, so that equal bins are not told apart. What it finds is a packing; that it finds none proves
nothing, as three groups may have to share a bin.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from models.placement.arnold.exact.bins import SearchLimitError

Row = list[dict[int, int]]
"""Nodes of every group by bin."""
_Units = tuple[int, ...]
_Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinKind:
    """Bins with `free` nodes in the same `units` of the tiers above, coarsest first."""

    units: _Units
    free: int
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One group: whether it takes from the open bin, how many bins of each kind, and what stays open of one of them in
    which units."""

    goes_on: bool
    taken: tuple[tuple[int, int], ...]
    left: int
    units: _Units


class RowSearch:
    """Groups of `size` nodes on at most `spreads` units of every tier, bins last."""

    def __init__(self, kinds: Sequence[BinKind], size: int, spreads: Sequence[int], max_steps: int) -> None:
        self.kinds = sorted(kinds, key=lambda kind: -kind.free)
        self.size, self.above, self.most_bins = size, tuple(spreads[:-1]), spreads[-1]
        self.steps_left = max_steps
        self.failed: set[tuple[object, ...]] = set()

    def find(self, num_groups: int, num_bins: int) -> Row | None:
        """The groups on at most `num_bins` bins; None proves nothing.

        Raises
        ------
        SearchLimitError
            After `max_steps` steps.
        """
        steps = self._extended(tuple(len(kind.bins) for kind in self.kinds), 0, (), num_groups, num_bins)
        return None if steps is None else self._row(steps)

    def _extended(
        self, counts: _Counts, left: int, units: _Units, num_groups: int, num_bins: int
    ) -> list[_Step] | None:
        """Steps of so many more groups, when `left` nodes are left of a bin in `units`."""
        if not num_groups:
            return []
        key = (counts, left, units, num_groups, num_bins)
        waste = left + self._most_nodes(counts, num_bins) - num_groups * self.size
        if key in self.failed or waste < 0:
            return None
        for step in self._steps(counts, left, units, num_bins, waste):
            after = list(counts)
            for kind, times in step.taken:
                after[kind] -= times
            used = sum(times for _, times in step.taken)
            rest = self._extended(tuple(after), step.left, step.units, num_groups - 1, num_bins - used)
            if rest is not None:
                return [step, *rest]
        self.failed.add(key)
        return None

    def _most_nodes(self, counts: _Counts, num_bins: int) -> int:
        nodes = 0
        for kind, count in zip(self.kinds, counts, strict=True):
            taken = min(count, num_bins)
            nodes += taken * kind.free
            num_bins -= taken
        return nodes

    def _steps(self, counts: _Counts, left: int, units: _Units, num_bins: int, waste: int) -> list[_Step]:
        """What the next group can do, fewest units first, when at most `waste` nodes may be left out."""
        if left >= self.size:
            rest = left - self.size
            return [_Step(goes_on=True, taken=(), left=rest, units=units if rest else ())]
        found: list[tuple[tuple[int, ...], _Step]] = []
        ways: list[tuple[bool, int, _Units, int]] = []
        if left:
            ways.append((True, self.size - left, units, self.most_bins - 1))
        if left <= waste:
            ways.append((False, self.size, (), self.most_bins))
        for goes_on, need, start, most in ways:
            sets = tuple(frozenset([unit]) for unit in start) or (frozenset[int](),) * len(self.above)
            for taken, touched in self._taken(counts, 0, need, min(most, num_bins), sets):
                nodes = sum(times * self.kinds[kind].free for kind, times in taken)
                rest, used = nodes - need, sum(times for _, times in taken)
                rank = (sum(map(len, touched)), left > 0 and not goes_on, rest > 0, used, rest)
                opened = sorted({self.kinds[kind].units for kind, _ in taken}) if rest else [()]
                found += [(rank, _Step(goes_on=goes_on, taken=taken, left=rest, units=unit)) for unit in opened]
        found.sort(key=lambda ranked: ranked[0])
        return [step for _, step in found]

    def _taken(
        self, counts: _Counts, kind: int, need: int, most: int, touched: tuple[frozenset[int], ...]
    ) -> Iterator[tuple[tuple[tuple[int, int], ...], tuple[frozenset[int], ...]]]:
        """Bins from this kind on, of which none can be left out, and the units that they touch."""
        self.steps_left -= 1
        if self.steps_left < 0:
            raise SearchLimitError
        if need <= 0:
            yield (), touched
            return
        if kind == len(counts) or most * self.kinds[kind].free < need:
            return
        of_kind = self.kinds[kind]
        with_kind = tuple(units | {unit} for units, unit in zip(touched, of_kind.units, strict=True))
        if all(len(units) <= limit for units, limit in zip(with_kind, self.above, strict=True)):
            for times in range(min(counts[kind], most, -(-need // of_kind.free)), 0, -1):
                rest = need - times * of_kind.free
                for taken, units in self._taken(counts, kind + 1, rest, most - times, with_kind):
                    yield ((kind, times), *taken), units
        yield from self._taken(counts, kind + 1, need, most, touched)

    def _row(self, steps: Sequence[_Step]) -> Row:
        waiting = [list(kind.bins) for kind in self.kinds]
        row: Row = []
        opened, left = -1, 0
        for step in steps:
            group: dict[int, int] = {}
            if step.goes_on:
                group[opened] = min(left, self.size)
                left -= group[opened]
            if step.taken:
                # Kinds descend, so that any bin has more than is left of what suffices without it.
                last = next((k for k, _ in step.taken if not step.left or self.kinds[k].units == step.units), -1)
                for kind, times in step.taken:
                    for _ in range(times):
                        k = waiting[kind].pop()
                        group[k] = self.kinds[kind].free
                        if kind == last:
                            opened = k
                left = step.left
                group[opened] -= left
            row.append(group)
        return row
