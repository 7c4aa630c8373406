"""Whether groups fit into units of one tier, each on at most T of them: exact, for units of few sizes.

By the theorem of `exact.packing`, k units hold m groups exactly when they can be split into components of m_c groups on
k_c <= (T - 1) m_c + 1 units with enough nodes. Two components of which one has fewer units than that are one, too, so
that just k - (T - 1) m components need be looked for, all of (T - 1) m_c + 1 units, that waste no more than all units
together do. They are, by counts of units of a size, not unit by unit.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from models.placement.arnold.exact.bins import SearchLimitError

Components = list[list[int]]
"""Positions of the units of every component."""


def components(free: Sequence[int], size: int, num_groups: int, spread: int, max_steps: int) -> Components | None:
    """Components of all units with `free` nodes each; None where there are none that need all of them.

    Fewer units may do then: fewer are to be asked first. (Where components hold more groups than are asked for, what is
    left without one of these is a packing, too, whose components hold just as many as are asked for, on these units or
    fewer.)

    Parameters
    ----------
    spread
        T, at least 2.

    Raises
    ------
    SearchLimitError
        After `max_steps` steps.
    """
    waste = sum(free) - num_groups * size
    number = len(free) - (spread - 1) * num_groups
    if waste < 0 or number > num_groups:
        return None
    if number <= 1:
        return [list(range(len(free)))]
    number_of = Counter(free)
    sizes = sorted(number_of)
    found = _Partition(sizes, size, spread - 1, max_steps).split(
        tuple(number_of[nodes] for nodes in sizes), number, num_groups, waste
    )
    if found is None:
        return None
    waiting = {nodes: [k for k, have in enumerate(free) if have == nodes] for nodes in sizes}
    return [[waiting[sizes[k]].pop() for k, times in enumerate(taken) for _ in range(times)] for taken in found]


class _Partition:
    """Depth first; `sizes` ascend, `step` is T - 1."""

    def __init__(self, sizes: list[int], group_size: int, step: int, max_steps: int) -> None:
        self.sizes, self.group_size, self.step, self.steps_left = sizes, group_size, step, max_steps
        self.failed: set[tuple[tuple[int, ...], int]] = set()

    def split(self, counts: tuple[int, ...], number: int, num_groups: int, waste: int) -> list[tuple[int, ...]] | None:
        """Units of each size of every one of `number` components."""
        if number == 1:
            return [counts]
        if (counts, number) in self.failed:
            return None
        first = next(k for k, count in enumerate(counts) if count)
        others = (*counts[:first], counts[first] - 1, *counts[first + 1 :])
        for here in range(1, num_groups - number + 2):
            need = here * self.group_size - self.sizes[first]
            for taken in self._sets(others, first, self.step * here, need, need + waste):
                left = tuple(have - gone for have, gone in zip(others, taken, strict=True))
                nodes = sum(times * size for times, size in zip(taken, self.sizes, strict=True))
                rest = self.split(left, number - 1, num_groups - here, waste - (nodes - need))
                if rest is not None:
                    return [(*taken[:first], taken[first] + 1, *taken[first + 1 :]), *rest]
        self.failed.add((counts, number))
        return None

    def _sets(self, counts: tuple[int, ...], k: int, units: int, least: int, most: int) -> Iterator[tuple[int, ...]]:
        """Counts of `units` units, none of a size before `k`, of `least` to `most` nodes."""
        self.steps_left -= 1
        if self.steps_left < 0:
            raise SearchLimitError
        if not units:
            if least <= 0 <= most:
                yield (0,) * len(counts)
            return
        if k == len(counts) or units * self.sizes[k] > most or units * self.sizes[-1] < least:
            return
        for times in range(min(counts[k], units), -1, -1):
            nodes = times * self.sizes[k]
            for others in self._sets(counts, k + 1, units - times, least - nodes, most - nodes):
                yield (*others[:k], times, *others[k + 1 :])
