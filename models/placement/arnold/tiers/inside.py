"""Groups inside one unit, on at most T_t >= 2 units of each tier t below it: at which cost in units, and how.

What the units of a tier cost is known once it is known how many are used, so that costs are tried one after the other
from a lower bound on. A cost that is impossible raises the bound; one at which only a search has found nothing does
not. Bounds are those of every tier alone (`partition`) on every set of units above the bins that could do, together
with what so many units of all tiers hold (`held_by_number`).
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from models.placement.arnold.exact.bins import SearchLimitError
from models.placement.arnold.exact.packing import pack
from models.placement.arnold.tiers.partition import components
from models.placement.arnold.tiers.rows import BinKind, Row, RowSearch
from models.placement.arnold.tiers.tree import UnitTree
from stowplan.arrays import IntArray, IntVector

# Steps that prove what one tier needs, that look for groups in a row at one cost, and all of those of an instance.
_PARTITION_STEPS, _ROW_STEPS, _ALL_ROW_STEPS = 2_000, 3_000, 20_000
# Sets of units above the bins that are looked at for one cost, and of these such as stay open.
_MOST_SETS, _MOST_OPEN = 5_000, 100
_TOLERANCE = 1e-9
_NEVER = -(2**60)

_Bins = tuple[tuple[int, ...], list[int]]
"""A unit above the bins, as units of all tiers from the coarsest on, and its bins."""


class StoppedError(Exception):
    """The search was told to end; what it has tried last is as open as before."""


class Fewest:
    """How many units of one tier groups of `size` nodes need; and what may still be searched: `row_steps`, until
    `stop`."""

    def __init__(self, size: int, stop: Callable[[], bool] = lambda: False) -> None:
        self.size, self.stop = size, stop
        self.row_steps = _ALL_ROW_STEPS
        self._known: dict[tuple[tuple[int, ...], int, int], float] = {}

    def go_on(self) -> None:
        """Ask.

        Raises
        ------
        StoppedError
            When the search is to end.
        """
        if self.stop():
            raise StoppedError

    def at_least(self, free: tuple[int, ...], num_groups: int, spread: int) -> float:
        """The fewest of the units with `free` nodes, most first, as far as it is proven; inf where all do not do."""
        key = (free, num_groups, spread)
        if key not in self._known:
            self._known[key] = next(
                (number for number, found in self.tried(free, num_groups, spread) if found is not None), math.inf
            )
        return self._known[key]

    def tried(
        self, free: tuple[int, ...], num_groups: int, spread: int
    ) -> Iterator[tuple[int, list[list[int]] | None]]:
        """Numbers of units from those on that have enough nodes, each with components, which are empty where it is
        open whether there are any, and None where there are none.

        The units with most nodes do wherever others do.
        """
        held = itertools.accumulate(free)
        first = next((k for k, nodes in enumerate(held, start=1) if nodes >= num_groups * self.size), len(free) + 1)
        # Every component has a group.
        for number in range(first, min(len(free), spread * num_groups) + 1):
            self.go_on()
            try:
                yield number, components(free[:number], self.size, num_groups, spread, _PARTITION_STEPS)
            except SearchLimitError:
                yield number, []


class Inside(ABC):
    """Groups inside a unit. They cost at least `lower`, as far as is known, and `cost` with what is to be tried next,
    or with the `row` that was found, groups by bin; inf when there is nothing left to try.
    """

    def __init__(self) -> None:
        self.lower = self.cost = 0.0
        self.row: Row | None = None
        self._costs = self._possible()
        self._proven = True
        self._next()

    @abstractmethod
    def _possible(self) -> Iterator[float]:
        """Costs in rising order."""

    @abstractmethod
    def _placed(self, cost: float) -> Row | None:
        """The groups at that cost; None where that is impossible.

        Raises
        ------
        SearchLimitError
            When it stays open.
        """

    def _next(self) -> None:
        self.cost = next(self._costs, math.inf)
        if self._proven:
            self.lower = self.cost

    def settle(self) -> None:
        """Try the present `cost`: find the groups, or go on to the next."""
        try:
            self.row = self._placed(self.cost)
        except SearchLimitError:
            self._proven = False
        if self.row is None:
            self._next()


class OnBins(Inside):
    """Groups on the bins of a unit, exact."""

    def __init__(self, tree: UnitTree, fewest: Fewest, bins: Sequence[int], num_groups: int, spread: int, cost: float):
        free = tree.free[-1]
        self.bins = sorted(bins, key=lambda k: -free[k])
        self.free = tuple(free[k] for k in self.bins)
        self.size, self.num_groups, self.spread, self.cost_of_bin = fewest.size, num_groups, spread, cost
        self._tried = fewest.tried(self.free, num_groups, spread)
        self._found: list[list[int]] | None = None
        super().__init__()

    def _possible(self) -> Iterator[float]:
        for number, found in self._tried:
            self._found = found
            yield self.cost_of_bin * number

    def _placed(self, cost: float) -> Row | None:  # noqa: ARG002 - the one that `_possible` came to
        if self._found is None:
            return None
        if not self._found:
            raise SearchLimitError
        parts: list[IntVector] = [np.array(part, dtype=np.int64) for part in self._found]
        labels = pack(np.array(self.free), self.size, self.num_groups, self.spread, parts)
        return [Counter(self.bins[k] for k in group) for group in labels.tolist()]


class OnTiers(Inside):
    """Groups on the units of `tier`, and of all finer ones, inside the unit `parent` above.

    spreads: T of these tiers; costs: what a unit of each costs; held: most nodes by the numbers of units.
    """

    def __init__(
        self,
        tree: UnitTree,
        fewest: Fewest,
        place: tuple[int, int],
        num_groups: int,
        spreads: Sequence[int],
        costs: Sequence[float],
        held: IntArray,
    ) -> None:
        self.tree, self.fewest, self.num_groups = tree, fewest, num_groups
        self.tier, self.parent = place
        self.spreads, self.costs, self.held = tuple(spreads), tuple(costs), held
        self._steps_left = 0
        super().__init__()

    def _possible(self) -> Iterator[float]:
        counts = np.indices(self.held.shape)
        enough = self.held >= self.num_groups * self.fewest.size
        for number, units, t, spread in zip(
            counts, self.tree.inside(self.tier, self.parent), itertools.count(self.tier), self.spreads, strict=False
        ):
            enough &= number >= self.fewest.at_least(self.tree.sizes(t, units), self.num_groups, spread)
        values = np.sort(np.tensordot(self.costs, counts, axes=1)[enough])
        # What differs by rounding is the same.
        yield from values[np.diff(values, prepend=-np.inf) > _TOLERANCE].tolist()

    @cached_property
    def _above_bins(self) -> list[_Bins]:
        """Units above the bins, most free nodes first, as units of all tiers, with their bins."""
        at: dict[tuple[int, ...], int] = {(): self.parent}
        for t in range(self.tier, self.tree.num_tiers - 1):
            at = {(*path, unit): unit for path, parent in at.items() for unit in self.tree.children[t].get(parent, ())}
        last = self.tree.num_tiers - 2
        paths = sorted(at, key=lambda path: -self.tree.free[last][path[-1]])
        return [(path, self.tree.children[last + 1][path[-1]]) for path in paths]

    def _placed(self, cost: float) -> Row | None:
        is_open, self._steps_left = False, _ROW_STEPS
        sets = (found for found in self._sets(cost) if self._may_do(*found))
        for number, (chosen, num_bins) in enumerate(sets):
            row = self._row(chosen, num_bins)
            if row is not None:
                return row
            is_open = True
            if number == _MOST_OPEN:
                break
        if is_open:
            raise SearchLimitError
        return None

    def _row(self, chosen: Sequence[_Bins], num_bins: int) -> Row | None:
        """Groups in a row on bins of the chosen units; None proves nothing."""
        steps = min(self._steps_left, self.fewest.row_steps)
        search = RowSearch(self._kinds(chosen), self.fewest.size, self.spreads, steps)
        try:
            return search.find(self.num_groups, num_bins)
        except SearchLimitError:
            return None
        finally:
            taken = steps - max(0, search.steps_left)
            self._steps_left -= taken
            self.fewest.row_steps -= taken

    def _sets(self, cost: float) -> Iterator[tuple[Sequence[_Bins], int]]:
        """Sets of units above the bins, and how many bins of theirs the cost allows; of equal ones one."""
        known = set()
        last = self.tree.num_tiers - 2
        need = self.num_groups * self.fewest.size
        numbers = range(1, len(self._above_bins) + 1)
        every = itertools.chain.from_iterable(itertools.combinations(self._above_bins, n) for n in numbers)
        for looked, chosen in enumerate(every):
            self.fewest.go_on()
            if looked == _MOST_SETS:
                raise SearchLimitError
            if sum(self.tree.free[last][path[-1]] for path, _ in chosen) < need:
                continue
            above = [len({path[: k + 1] for path, _ in chosen}) for k in range(len(self.costs) - 1)]
            left = cost - sum(c * n for c, n in zip(self.costs[:-1], above, strict=True))
            num_bins = sum(len(bins) for _, bins in chosen)
            if self.costs[-1]:
                num_bins = min(num_bins, math.floor((left + _TOLERANCE) / self.costs[-1]))
            if left < -_TOLERANCE or num_bins < len(chosen):
                continue
            kind = (num_bins, *sorted((path[:-1], self.tree.sizes(last + 1, bins)) for path, bins in chosen))
            if kind not in known:
                known.add(kind)
                yield chosen, num_bins

    def _may_do(self, chosen: Sequence[_Bins], num_bins: int) -> bool:
        """Whether every tier alone allows it."""
        for k, spread in enumerate(self.spreads[:-1]):
            held: Counter[tuple[int, ...]] = Counter()
            for path, _ in chosen:
                held[path[: k + 1]] += self.tree.free[self.tree.num_tiers - 2][path[-1]]
            sizes = tuple(sorted(held.values(), reverse=True))
            if self.fewest.at_least(sizes, self.num_groups, spread) > len(sizes):
                return False
        bins = self.tree.sizes(self.tree.num_tiers - 1, [k for _, bins in chosen for k in bins])
        return self.fewest.at_least(bins, self.num_groups, self.spreads[-1]) <= num_bins

    def _kinds(self, chosen: Sequence[_Bins]) -> list[BinKind]:
        free = self.tree.free[-1]
        kinds: list[BinKind] = []
        # Small units are best used up first.
        for path, bins in reversed(chosen):
            for nodes, alike in itertools.groupby(bins, key=free.__getitem__):
                kinds.append(BinKind(units=path, free=nodes, bins=tuple(alike)))
        return kinds


def held_by_number(tree: UnitTree, tier: int, parent: int) -> IntArray:
    """Most nodes by the numbers of units used of `tier` and of each finer one, inside a unit of the tier above."""
    below = tree.children[tier].get(parent, [])
    if tier == tree.num_tiers - 1:
        return np.concatenate([[0], np.cumsum([tree.free[tier][unit] for unit in below])]).astype(np.int64)
    table: IntArray = np.zeros((1,) * (tree.num_tiers - tier), dtype=np.int64)
    for unit in below:
        inside = held_by_number(tree, tier + 1, unit)
        shape = (table.shape[0] + 1, *(a + b - 1 for a, b in zip(table.shape[1:], inside.shape, strict=True)))
        larger = np.full(shape, _NEVER)
        larger[tuple(slice(0, length) for length in table.shape)] = table
        for place in zip(*np.nonzero(inside > _NEVER // 2), strict=True):
            where = (slice(1, None), *(slice(i, i + n) for i, n in zip(place, table.shape[1:], strict=True)))
            np.maximum(larger[where], table + inside[place], out=larger[where])
        table = larger
    return table
