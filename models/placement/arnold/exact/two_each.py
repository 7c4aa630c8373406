"""Fewest minipods that hold all groups on at most two each: items in bins (see `bins`).

With one minipod more there is one bin more, and its item is no larger than a bin: what fits goes on fitting, as do
bounds. Hence the fewest are looked for from both sides, and one proof for the number below what was found is enough.
Of fabrics with many minipods most are in pairs that have just a group between them, and out of the way (`_Items`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from models.placement.arnold.budget import Budget
from models.placement.arnold.exact.bin_flow import bin_flow
from models.placement.arnold.exact.bins import Bins, RoundedBound, SearchLimitError, exchanged, searched
from solver.result import SolveResult
from stowplan.arrays import IntVector

# Starts and trades of each: a glance, before a relaxation is solved, and before a program is.
_GLANCE, _TRY, _LAST_TRY = (1, 200), (1, 300), (8, 2_000)
# A search among more items than this does not end within its steps: before a relaxation is solved, and a program.
_MOST_SEARCHED, _SEARCH_STEPS, _LAST_SEARCH_STEPS = 24, 2_000, 50_000
# Larger programs take longer than anybody wants to wait for.
_MAX_ARCS = 20_000
_ROUNDING = 1e-6
_ROUNDED = "sizes of pieces, rounded"


def in_pairs(free: IntVector, size: int, num_groups: int) -> list[IntVector] | None:
    """Components (positions into `free` (k,)) that hold the groups, at most two minipods each; None proves nothing."""
    return _Items(free.tolist(), size, num_groups).traded(_GLANCE)


class _Items:
    """Items of minipods with `free` nodes, for bins that have to hold all of them.

    A minipod that holds just a group is an item of 0, which fits anywhere. Two that have just a group between them fill
    a bin: where a packing has them in two bins, what else these hold fits into one, as w(A) + w(B) - g <= g.
    """

    def __init__(self, free: Sequence[int], size: int, num_groups: int) -> None:
        self.size, self.num_bins = size, len(free) - num_groups
        self.filled: Bins = []
        self.anywhere = [j for j, nodes in enumerate(free) if nodes == size]
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        for j, nodes in enumerate(free):
            if nodes == size:
                continue
            # The last bin is for whatever is left.
            if waiting[size - nodes] and self.num_bins > 1:
                self.filled.append([waiting[size - nodes].pop(), j])
                self.num_bins -= 1
            else:
                waiting[nodes].append(j)
        self.positions = sorted(j for left in waiting.values() for j in left)
        self.weights = [size - free[j] for j in self.positions]

    def traded(self, effort: tuple[int, int], stop: Callable[[], bool] = lambda: False) -> list[IntVector] | None:
        """Minipods of bins that trades find; None proves nothing. `stop` is asked before each start but the first."""
        starts, num_steps = effort
        for start in range(starts):
            if start and stop():
                break
            # What a shorter effort has tried is not tried again.
            seed = num_steps + start
            found = exchanged(self.weights, self.size, self.num_bins, num_steps=num_steps, seed=seed)
            if found is not None:
                return self.components(found)
        return None

    def components(self, bins: Bins | None) -> list[IntVector] | None:
        """Minipods of the bins."""
        if bins is None:
            return None
        filled = self.filled + [[self.positions[i] for i in members] for members in bins if members] or [[]]
        filled[0] = filled[0] + self.anywhere
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
        self.bound = RoundedBound(weights, self.size)
        while self.lower <= self.free.size and self.bound.of(weights[: self.lower]) > self.lower - self.num_groups:
            self._raise(self.lower + 1, _ROUNDED)
        self._gallop()
        while (most := self.free.size if self.upper is None else self.upper - 1) >= self.lower:
            if self.budget.ended_by is not None or not self._decided(most):
                return

    def _raise(self, lower: int, argument: str) -> None:
        self.lower, self.argument = lower, argument

    def _fits(self, num_minipods: int, effort: tuple[int, int] = _GLANCE) -> bool:
        items = _Items(self.free[:num_minipods].tolist(), self.size, self.num_groups)
        found = items.traded(effort, lambda: self.budget.ended_by is not None)
        return found is not None and self._found(num_minipods, found)

    def _found(self, num_minipods: int, components: Sequence[IntVector]) -> bool:
        self.upper, self.components = num_minipods, components
        return True

    def _gallop(self) -> None:
        """An upper side by trades: in steps that double, then by halves."""
        failed, step = self.lower - 1, 1
        while failed < self.free.size and self.upper is None and self.budget.ended_by is None:
            tried = min(failed + step, self.free.size)
            if not self._fits(tried):
                failed, step = tried, 2 * step
        self._halve(failed, _GLANCE)

    def _halve(self, failed: int, effort: tuple[int, int]) -> None:
        """Fewer than are known, by trades: those in the middle of what is left above what has failed."""
        while self.upper is not None and self.upper - failed > 1 and self.budget.ended_by is None:
            middle = (failed + self.upper) // 2
            if not self._fits(middle, effort):
                failed = middle

    def _decided(self, num_minipods: int) -> bool:
        """Whether it was found out if so many suffice: by search, bound, trades, relaxation, or the program."""
        items = _Items(self.free[:num_minipods].tolist(), self.size, self.num_groups)
        if self._searched(num_minipods, items, _SEARCH_STEPS):
            return True
        if self.bound.again(np.array(items.weights)) > items.num_bins:
            return self._closed(num_minipods, None, _ROUNDED)
        return self._fits(num_minipods, _TRY) or self._by_flow(num_minipods, items)

    def _searched(self, num_minipods: int, items: _Items, num_steps: int) -> bool:
        """Whether a search came to an end."""
        if len(items.weights) > _MOST_SEARCHED:
            return False
        try:
            found = searched(items.weights, self.size, items.num_bins, num_steps)
        except SearchLimitError:
            return False
        return self._closed(num_minipods, items.components(found), "search")

    def _closed(self, num_minipods: int, found: Sequence[IntVector] | None, argument: str) -> bool:
        if found is None:
            self._raise(num_minipods + 1, argument)
            return True
        return self._found(num_minipods, found)

    def _by_flow(self, num_minipods: int, items: _Items) -> bool:
        """By the relaxation, search or trades once more, and the program."""
        relaxed = bin_flow(items.weights, self.size, _MAX_ARCS, integral=False)
        if relaxed is None:
            return self._fits(num_minipods, _LAST_TRY)
        result = self.budget.solve_problem(relaxed.problem)
        if result is None:
            return False
        if self._bounded(num_minipods, items, result) or self._searched(num_minipods, items, _LAST_SEARCH_STEPS):
            return True
        if self._fits(num_minipods, _LAST_TRY):
            # Where it takes so many trades, shorter ones have failed for nothing further down, too.
            self._halve(self.lower - 1, _LAST_TRY)
            return True
        flow = bin_flow(items.weights, self.size, _MAX_ARCS, integral=True)
        result = None if flow is None else self.budget.solve_problem(flow.problem)
        if flow is None or result is None:
            return False
        if self._bounded(num_minipods, items, result):
            return True
        if result.incumbent is not None:
            bins = flow.bins(items.weights, np.rint(result.incumbent).astype(np.int64))
            if len(bins) <= items.num_bins:
                return self._closed(num_minipods, items.components(bins), "")
        return False

    def _bounded(self, num_minipods: int, items: _Items, result: SolveResult) -> bool:
        """Whether the bound of a flow says that so many do not do."""
        if result.bound is None or math.ceil(result.bound - _ROUNDING) <= items.num_bins:
            return False
        return self._closed(num_minipods, None, "flow over bins")
