"""Fewest minipods that hold all groups on at most two each: items in bins (see `bins`).

With one minipod more there is one bin more, and its item is no larger than a bin: what fits goes on fitting, as do
bounds. Hence the fewest are looked for from both sides, and one proof for the number below what was found is enough.
"""

import math
from collections.abc import Sequence

import numpy as np

from models.placement.arnold.budget import Budget
from models.placement.arnold.exact.bin_flow import bin_flow
from models.placement.arnold.exact.bins import Bins, RoundedBound, SearchLimitError, exchanged, searched
from stowplan.arrays import IntVector

# Starts and trades of each: a glance, before a relaxation is solved, and before a program is.
_GLANCE, _TRY, _LAST_TRY = (1, 150), (2, 500), (10, 1_500)
_SEARCH_STEPS = 2_000
# A search deeper than this does not end within its steps.
_MOST_SEARCHED = 150
# Larger programs take longer than anybody wants to wait for.
_MAX_ARCS = 20_000
_ROUNDING = 1e-6


def in_pairs(free: IntVector, size: int, num_groups: int, effort: tuple[int, int] = _GLANCE) -> list[IntVector] | None:
    """Components (positions into `free` (k,)) that hold the groups, at most two minipods each; None proves nothing."""
    items, num_bins = _Items(free.tolist(), size), int(free.size) - num_groups
    starts, num_steps = effort
    tries = (exchanged(items.weights, size, num_bins, num_steps=num_steps, seed=seed) for seed in range(starts))
    return items.components(next((found for found in tries if found is not None), None))


class _Items:
    """Items of minipods with `free` nodes; one that holds just a group is an item of 0, which fits anywhere."""

    def __init__(self, free: Sequence[int], size: int) -> None:
        self.positions = [j for j, nodes in enumerate(free) if nodes != size]
        self.anywhere = [j for j, nodes in enumerate(free) if nodes == size]
        self.weights = [size - free[j] for j in self.positions]

    def components(self, bins: Bins | None) -> list[IntVector] | None:
        """Minipods of the bins."""
        if bins is None:
            return None
        filled = [[self.positions[i] for i in members] for members in bins if members] or [[]]
        filled[0] += self.anywhere
        return [np.array(sorted(members), dtype=np.int64) for members in filled]


class FewestMinipods:
    """The fewest of `free` (k,), largest first: at least `lower` by `argument`, `upper` by `components`.

    There are more than groups + 1 of them: up to that many are one component wherever they have enough nodes.
    """

    def __init__(self, free: IntVector, size: int, num_groups: int, lower: int, budget: Budget) -> None:
        self.free, self.size, self.num_groups, self.budget = free, size, num_groups, budget
        self.lower: int = lower
        self.argument: str | None = None
        self.upper: int | None = None
        self.components: Sequence[IntVector] = ()

    def find(self) -> None:
        """Bring both sides together, as far as the budget allows."""
        weights = self.size - self.free
        bound = RoundedBound(weights, self.size)
        while self.lower <= self.free.size and bound.of(weights[: self.lower]) > self.lower - self.num_groups:
            self._raise(self.lower + 1, "sizes of pieces, rounded")
        self._gallop()
        while (most := self.free.size if self.upper is None else self.upper - 1) >= self.lower:
            if self.budget.ended_by is not None or not self._decided(most):
                return

    def _items(self, num_minipods: int) -> _Items:
        return _Items(self.free[:num_minipods].tolist(), self.size)

    def _raise(self, lower: int, argument: str) -> None:
        self.lower, self.argument = lower, argument

    def _fits(self, num_minipods: int, effort: tuple[int, int] = _GLANCE) -> bool:
        found = in_pairs(self.free[:num_minipods], self.size, self.num_groups, effort)
        return found is not None and self._found(num_minipods, found)

    def _found(self, num_minipods: int, components: Sequence[IntVector]) -> bool:
        self.upper, self.components = num_minipods, components
        return True

    def _gallop(self) -> None:
        """An upper side by trades: in steps that double, then by halves."""
        failed, step = self.lower - 1, 1
        while failed < self.free.size and self.upper is None:
            tried = min(failed + step, self.free.size)
            if not self._fits(tried):
                failed, step = tried, 2 * step
        self._halve(failed, _GLANCE)

    def _halve(self, failed: int, effort: tuple[int, int]) -> None:
        """Fewer than are known, by trades: those in the middle of what is left above what has failed."""
        while self.upper is not None and self.upper - failed > 1:
            middle = (failed + self.upper) // 2
            if not self._fits(middle, effort):
                failed = middle

    def _decided(self, num_minipods: int) -> bool:
        """Whether it was found out if so many suffice: by search, relaxation, more trades, or the program."""
        items, num_bins = self._items(num_minipods), num_minipods - self.num_groups
        if len(items.weights) <= _MOST_SEARCHED:
            try:
                found = items.components(searched(items.weights, self.size, num_bins, _SEARCH_STEPS))
            except SearchLimitError:
                pass
            else:
                return self._closed(num_minipods, found, "search")
        return self._fits(num_minipods, _TRY) or self._by_flow(num_minipods, items, num_bins)

    def _closed(self, num_minipods: int, found: Sequence[IntVector] | None, argument: str) -> bool:
        if found is None:
            self._raise(num_minipods + 1, argument)
            return True
        return self._found(num_minipods, found)

    def _by_flow(self, num_minipods: int, items: _Items, num_bins: int) -> bool:
        for integral in (False, True):
            flow = bin_flow(items.weights, self.size, _MAX_ARCS, integral=integral)
            if flow is None:
                return self._fits(num_minipods, _LAST_TRY)
            result = self.budget.solve_problem(flow.problem)
            if result is None:
                return False
            if result.bound is not None and math.ceil(result.bound - _ROUNDING) > num_bins:
                return self._closed(num_minipods, None, "flow over bins")
            if not integral and self._fits(num_minipods, _LAST_TRY):
                # Where it takes so many trades, shorter ones have failed for nothing further down, too.
                self._halve(self.lower - 1, _LAST_TRY)
                return True
            if integral and result.incumbent is not None:
                bins = flow.bins(items.weights, np.rint(result.incumbent).astype(np.int64))
                if len(bins) <= num_bins:
                    return self._closed(num_minipods, items.components(bins), "")
        return False
