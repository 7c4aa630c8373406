"""The optimum over several weighted tiers by their spreads: one vector T of all of them after the other, best first.

With spread 1 on the s coarsest tiers every group is inside one unit of tier s, and these units have nothing in common:
the fewest units, at their weights, that hold m groups inside each (`inside`) add up to those of the whole by a
knapsack over m. Hence

  V(T) = b sum_t w_t T_t + the knapsack over what is inside

bounds all solutions with the spreads T, and is reached where a packing is found inside every unit that it takes. The
bound of what is inside rises while it is tried, and so does V(T). The least V(T) is tried first, until a solution
reaches it; vectors not looked at yet are at least worth their spreads and the fewest units at any spread.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from models.placement.arnold.tiers.inside import Fewest, Inside, OnBins, OnTiers, StoppedError, held_by_number
from models.placement.arnold.tiers.instance import TierInstance
from models.placement.arnold.tiers.rows import Row
from models.placement.arnold.tiers.tree import UnitTree
from stowplan.arrays import FloatVector, IntArray, IntMatrix

_TOLERANCE = 1e-9
# Numbers of units of all tiers that are told apart, entries of all knapsacks, and vectors that are tried.
_MOST_COUNTS, _MOST_ENTRIES, _MOST_TRIED = 50_000, 100_000, 500

_Spreads = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Whole nodes (G, B) better than what was known, None where none were found; a `bound` on every solution."""

    counts: IntMatrix | None
    bound: float


def search_by_spreads(instance: TierInstance, known: float, stop: Callable[[], bool] = lambda: False) -> Found:
    """Look for solutions that are better than `known`.

    Parameters
    ----------
    stop
        Asked before every try, and before every number and set of units that is looked at; ends it early.
    """
    if math.prod(tier.num_units + 1 for tier in instance.tiers) > _MOST_COUNTS:
        return Found(counts=None, bound=-math.inf)
    if sum(tier.num_units for tier in instance.tiers) * instance.num_groups > _MOST_ENTRIES:
        return Found(counts=None, bound=-math.inf)
    return _Search(instance, known, stop).run()


class _Search:
    """`best`: the value of `row`, or, where there is none, what was known before."""

    def __init__(self, instance: TierInstance, known: float, stop: Callable[[], bool]) -> None:
        self.instance, self.best = instance, known
        self.tree = tree = UnitTree(instance)
        self.fewest = Fewest(instance.group_size, stop)
        self.row: Row | None = None
        self.weights = [tier.weight for tier in instance.tiers]
        self.costs = [tier.weight * instance.minipod_weight for tier in instance.tiers]
        self._inside: dict[tuple[int, int, _Spreads, int], Inside] = {}
        self._held: dict[tuple[int, int], IntArray] = {}
        every = [sorted(free, reverse=True) for free in tree.free]
        self.least = tuple(_fewest_with(free, instance.group_size) for free in every)
        self.most = tuple(min(instance.group_size, len(free)) for free in every)
        self.least_cost = 0.0
        # Bounds of the vectors that were looked at.
        self.bounds: dict[_Spreads, float] = {}

    def run(self) -> Found:
        """Try the least until it is found, or worth no less than what is known, or until it is stopped."""
        # Units cost at least what they do where no spread is too large.
        with suppress(StoppedError):
            self.least_cost = self._values(self.most)[0] - self._spread_cost(self.most)
        seen = {self.least, self.most}
        heap = [(self._spread_cost(spreads) + self.least_cost, spreads) for spreads in seen]
        heapq.heapify(heap)
        tried = 0
        while heap and heap[0][0] < self.best - _TOLERANCE and tried < _MOST_TRIED:
            value, spreads = heapq.heappop(heap)
            if spreads not in self.bounds:
                self._add_wider(heap, seen, spreads)
            tried += 1
            try:
                self.fewest.go_on()
                self.bounds[spreads], now = self._values(spreads)
                settled = now <= value + _TOLERANCE and self._settled(spreads)
            except StoppedError:
                heapq.heappush(heap, (value, spreads))
                break
            if settled:
                self.best = now
            elif now < math.inf:
                heapq.heappush(heap, (max(value, now), spreads))
        bound = min(
            [self.best, *self.bounds.values(), *(value for value, spreads in heap if spreads not in self.bounds)]
        )
        return Found(counts=None if self.row is None else self._counts(self.row), bound=bound)

    def _add_wider(self, heap: list[tuple[float, _Spreads]], seen: set[_Spreads], spreads: _Spreads) -> None:
        """Put vectors with one unit more on one tier on the heap; no group touches fewer units of a finer tier."""
        for t, spread in enumerate(spreads):
            wider = (*spreads[:t], spread + 1, *spreads[t + 1 :])
            possible = spread < self.most[t] and (t + 1 == len(spreads) or spread < spreads[t + 1])
            if possible and wider not in seen:
                seen.add(wider)
                heapq.heappush(heap, (self._spread_cost(wider) + self.least_cost, wider))

    def _spread_cost(self, spreads: _Spreads) -> float:
        return self.instance.spread_weight * sum(w * t for w, t in zip(self.weights, spreads, strict=True))

    def _values(self, spreads: _Spreads) -> tuple[float, float]:
        """V(T) by what is proven, and by what is left to try."""
        spread = self._spread_cost(spreads)
        if spreads[0] > 1:
            whole = self._groups_inside(spreads, 0, 0, self.instance.num_groups)
            return spread + whole.lower, spread + whole.cost
        lower, cost = (float(self._table(spreads, 0, 0, value)[-1]) for value in (_lower, _cost))
        return spread + lower, spread + cost

    def _capacity(self, tier: int, parent: int) -> int:
        """Groups that a unit of the tier above `tier` has nodes for."""
        free = self.tree.free[tier - 1][parent] if tier else int(self.instance.free_nodes.sum())
        return min(self.instance.num_groups, free // self.instance.group_size)

    def _table(self, spreads: _Spreads, tier: int, parent: int, value: Callable[[Inside], float]) -> FloatVector:
        """Cost of 0, 1, ... groups inside a unit of the tier above `tier`."""
        return self._tables(spreads, tier, parent, value)[-1]

    def _tables(self, spreads: _Spreads, tier: int, parent: int, value: Callable[[Inside], float]) -> list[FloatVector]:
        """The same on the first units inside, one more in every table; the last has all of them."""
        capacity = self._capacity(tier, parent)
        if spreads[tier] > 1:
            groups = range(1, capacity + 1)
            return [np.array([0.0, *(value(self._groups_inside(spreads, tier, parent, m)) for m in groups)])]
        tables = [np.full(capacity + 1, np.inf)]
        tables[0][0] = 0.0
        for unit in self.tree.children[tier].get(parent, ()):
            one = self._of_unit(spreads, tier, unit, value)
            table = tables[-1].copy()
            for m in range(1, one.size):
                np.minimum(table[m:], tables[-1][: table.size - m] + one[m], out=table[m:])
            tables.append(table)
        return tables

    def _of_unit(self, spreads: _Spreads, tier: int, unit: int, value: Callable[[Inside], float]) -> FloatVector:
        """Cost of 0, 1, ... groups in a unit of `tier`, itself included."""
        if tier + 1 < self.tree.num_tiers:
            inside = self._table(spreads, tier + 1, unit, value)
        else:
            inside = np.zeros(self._capacity(tier + 1, unit) + 1)
        inside[1:] += self.costs[tier]
        return inside

    def _groups_inside(self, spreads: _Spreads, tier: int, parent: int, num_groups: int) -> Inside:
        key = (tier, parent, spreads[tier:], num_groups)
        if key not in self._inside:
            self.fewest.go_on()
            if tier + 1 == self.tree.num_tiers:
                bins = self.tree.children[tier][parent]
                self._inside[key] = OnBins(self.tree, self.fewest, bins, num_groups, spreads[tier], self.costs[tier])
            else:
                if (tier, parent) not in self._held:
                    self._held[tier, parent] = held_by_number(self.tree, tier, parent)
                held = self._held[tier, parent]
                self._inside[key] = OnTiers(
                    self.tree, self.fewest, (tier, parent), num_groups, spreads[tier:], self.costs[tier:], held
                )
        return self._inside[key]

    def _settled(self, spreads: _Spreads) -> bool:
        """Whether a solution of the value of `spreads` was found; if not, something was tried that was not before."""
        row: Row = []
        for part in self._parts(spreads, 0, 0, self.instance.num_groups):
            if isinstance(part, Inside):
                if part.row is None:
                    part.settle()
                if part.row is None:
                    return False
                row += part.row
            else:
                unit, groups = part
                row += [{unit: self.instance.group_size}] * groups
        self.row = row
        return True

    def _parts(self, spreads: _Spreads, tier: int, parent: int, num_groups: int) -> Iterator[Inside | tuple[int, int]]:
        """What a best knapsack takes: groups inside units, and bins with numbers of whole groups."""
        if not num_groups:
            return
        if tier == self.tree.num_tiers:
            yield parent, num_groups
            return
        if spreads[tier] > 1:
            yield self._groups_inside(spreads, tier, parent, num_groups)
            return
        tables = self._tables(spreads, tier, parent, _cost)
        for unit, before, after in reversed(
            list(zip(self.tree.children[tier][parent], tables[:-1], tables[1:], strict=True))
        ):
            one = self._of_unit(spreads, tier, unit, _cost)
            most = min(num_groups, one.size - 1)
            left = before[num_groups - most : num_groups + 1][::-1] + one[: most + 1]
            here = int(np.argmin(np.abs(left - after[num_groups])))
            yield from self._parts(spreads, tier + 1, unit, here)
            num_groups -= here

    def _counts(self, row: Row) -> IntMatrix:
        """Nodes per group and bin: units deal their bins, which may be finer, group after group."""
        free, unit_of = self.instance.free_nodes, self.instance.tiers[-1].unit
        along = np.argsort(unit_of, kind="stable")
        slots = np.repeat(along, free[along])
        dealt = np.searchsorted(unit_of[slots], np.arange(self.instance.tiers[-1].num_units))
        counts = np.zeros((self.instance.num_groups, self.instance.num_bins), dtype=np.int64)
        for i, group in enumerate(row):
            for unit, nodes in group.items():
                np.add.at(counts[i], slots[dealt[unit] : dealt[unit] + nodes], 1)
                dealt[unit] += nodes
        return counts


def _lower(inside: Inside) -> float:
    return inside.lower


def _cost(inside: Inside) -> float:
    return inside.cost


def _fewest_with(free: list[int], nodes: int) -> int:
    """Units, the most free nodes first, that have so many nodes."""
    return int(np.searchsorted(np.cumsum(free), nodes)) + 1
