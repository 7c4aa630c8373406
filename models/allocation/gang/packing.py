r"""Items of 1 to R GPUs on nodes of which only the number of free GPUs counts: an arc flow, filled by best fit.

A node with a free GPUs that takes an item of s GPUs has a - s then. Nodes with as many free GPUs are alike, so that a
packing is told by y_as, how often an item of s GPUs was put on a node that had a free ones (Valerio de Carvalho
1999). It exists exactly when

  sum_s y_as <= N_a + sum_s y_(a+s)s    for every level a,        N_a nodes with a free GPUs at first

whatever the number of nodes. `put` adds items by best fit, and where that finds no room packs all anew by decreasing
size: when all sizes below R are powers of two that finds room wherever there is some (see
`models.placement.placeability`), else it may miss it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

Flows = Mapping[tuple[int, int], int]


class Packing:
    """Nodes counted by free GPUs, and items on them.

    start: N_a, nodes by free GPUs before any item. left: nodes by free GPUs beside the items. flows: y_as.
    """

    def __init__(self, num_free: Iterable[int], node_size: int) -> None:
        self.start = [0] * (node_size + 1)
        for count in num_free:
            self.start[count] += 1
        self.left = list(self.start)
        self.items: Counter[int] = Counter()
        self.flows: Counter[tuple[int, int]] = Counter()

    @property
    def num_whole(self) -> int:
        """Nodes of R free GPUs that hold no item."""
        return self.left[-1]

    def copy(self) -> "Packing":
        """Another one in the same state."""
        other = Packing((), len(self.start) - 1)
        other.start, other.left = list(self.start), list(self.left)
        other.items, other.flows = Counter(self.items), Counter(self.flows)
        return other

    def put(self, items: Mapping[int, int]) -> bool:
        """Add items, sizes to numbers; False, and nothing is changed, where no room is found."""
        found = _filled(self.left, items)
        if found is not None:
            self.left, added = found
            self.flows.update(added)
        else:
            found = _filled(self.start, self.items + Counter(items))
            if found is None:
                return False
            self.left, self.flows = found
        self.items.update(items)
        return True

    def fits(self, items: Mapping[int, int]) -> bool:
        """Whether `put` would add them."""
        return self.copy().put(items)

    def change(self, nodes: Iterable[tuple[int, int]]) -> bool:
        """Let nodes have other numbers of free GPUs, (before, after) each, and pack anew; False, and nothing is
        changed, where the items find no room then."""
        start = list(self.start)
        for before, after in nodes:
            start[before] -= 1
            start[after] += 1
        found = _filled(start, self.items)
        if found is None:
            return False
        self.start, (self.left, self.flows) = start, found
        return True


def _filled(levels: list[int], items: Mapping[int, int]) -> tuple[list[int], Counter[tuple[int, int]]] | None:
    """Best fit, largest first: the levels after it, and what flowed."""
    levels = list(levels)
    flows: Counter[tuple[int, int]] = Counter()
    for size in sorted(items, reverse=True):
        missing, level = items[size], size
        while missing:
            while level < len(levels) and not levels[level]:
                level += 1
            if level >= len(levels):
                return None
            count = min(missing, levels[level])
            levels[level] -= count
            levels[level - size] += count
            flows[level, size] += count
            missing -= count
            # What is left of these nodes may be the best fit of the next ones.
            level = level - size if level - size >= size else level
    return levels, flows
