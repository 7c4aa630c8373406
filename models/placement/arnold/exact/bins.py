"""Groups on at most two minipods each are items in bins.

For T = 2 a component of k minipods with f(C) >= (k - 1) g nodes holds k - 1 groups (`packing`). With w_j = g - f_j this
reads: the w_j of a component add up to at most g. So Y > G minipods hold G groups of g nodes exactly when items of w_j
fit into Y - G bins of capacity g. An item is negative where a minipod holds more than a group; it makes room.
(A component of k minipods that holds more than k - 1 groups has a sum of at most 0, so that it can be joined to any
other, and one with fewer minipods than groups + 1 is no better than that.)

- `exchanged`: best fit, then pairs of bins trade what they hold so that a bin that is too full gets rid of what the
  other one has room for. Which differences two bins can trade is one operation on the bits of their subset sums.
- `searched`: bin by bin, the largest item left with every set of others that wastes no more than there is to waste.
- `RoundedBound`: for every fraction t, with r = frac(t g), the function

      F(w) = floor(t w) + max(0, frac(t w) - r) / (1 - r)

  is superadditive and does not decrease, so that the F(w_j) of a bin add up to no more than F(g) = floor(t g). (It is
  the rounding of Gomory's mixed-integer cuts; among dual feasible functions that of Burdett and Johnson, which allows
  negative items: Alves, Clautiaux, Valerio de Carvalho and Rietz, Dual-Feasible Functions, 2016.) So is an F of an F.
What these leave open is for `bin_flow`.
"""

import random
from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd

import numpy as np

from stowplan.arrays import IntMatrix, IntVector

# Parts of the fractions that bounds are looked for at, at most.
_MOST_PARTS = 70
# Fractions whose values are rounded once more, and parts of what they are multiplied with then.
_ROUNDED_AGAIN, _PARTS_AGAIN = 20, 30
# How often what is too much is handed on to a bin without room.
_HANDED_ON = 0.3

Bins = list[list[int]]
"""Positions of the items of every bin."""


class RoundedBound:
    """Bins that items of the given `weights`, or a part of them, need at least; all of it in integers."""

    def __init__(self, weights: IntVector, capacity: int) -> None:
        self._sizes: IntVector = np.unique(weights)
        self._values, self._room = _rounded(self._sizes, capacity, _MOST_PARTS)

    def of(self, weights: IntVector) -> int:
        """Bins that items of `weights` (n,) need."""
        return _most_bins(self._values @ self._number(weights), self._room)

    def again(self, weights: IntVector) -> int:
        """The same by values of F that are sizes themselves and are rounded once more, those of the sharpest t."""
        number = self._number(weights)
        most = 0
        for k in np.argsort(-(self._values @ number) / self._room)[:_ROUNDED_AGAIN]:
            divisor = np.gcd.reduce(self._values[k], initial=self._room[k])
            sizes, room = self._values[k] // divisor, int(self._room[k] // divisor)
            values, rooms = _rounded(sizes, room, _PARTS_AGAIN)
            most = max(most, _most_bins(values @ number, rooms))
        return most

    def _number(self, weights: IntVector) -> IntVector:
        return np.bincount(np.searchsorted(self._sizes, weights), minlength=self._sizes.size)


def _most_bins(needed: IntVector, room: IntVector) -> int:
    return int((-(-needed // room)).max())


def _rounded(sizes: IntVector, capacity: int, most_parts: int) -> tuple[IntMatrix, IntVector]:
    """F of the `sizes` (n,) at all fractions t that are tried, (F, n), and of the capacity, (F,).

    Both times 1 - r, and times the parts of t.
    """
    steps, parts = _fractions(most_parts)
    few = np.arange(1, min(capacity, most_parts) + 1)
    steps, parts = np.append(steps, few), np.append(parts, np.full(few.size, capacity + 1))
    tried = (parts <= capacity + 1) & (steps * capacity >= parts)
    steps, parts = steps[tried, None], parts[tried, None]
    whole, rest = np.divmod(steps * sizes, parts)
    most, excess = np.divmod(steps * capacity, parts)
    return whole * (parts - excess) + np.maximum(rest - excess, 0), (most * (parts - excess))[:, 0]


@lru_cache(maxsize=2)
def _fractions(most_parts: int) -> tuple[IntVector, IntVector]:
    """Steps and parts of the fractions up to 1 of so many parts."""
    tried = [(n, d) for d in range(1, most_parts + 1) for n in range(1, d + 1) if gcd(n, d) == 1]
    steps, parts = np.array(tried, dtype=np.int64).T
    return steps, parts


def exchanged(weights: Sequence[int], capacity: int, num_bins: int, *, num_steps: int, seed: int = 0) -> Bins | None:
    """Items in at most `num_bins` bins; None, after `num_steps` trades, proves nothing."""
    if num_bins < 1 or sum(weights) > num_bins * capacity:
        return None
    return _Trade(weights, capacity, num_bins, random.Random(seed)).run(num_steps)  # noqa: S311 - no secret


class _Trade:
    """Bins that may be too full; `sums`: subset sums of the first items of a bin, none to all, bit s + `zero` for s."""

    def __init__(self, weights: Sequence[int], capacity: int, num_bins: int, rng: random.Random) -> None:
        self.weights, self.capacity, self.random = weights, capacity, rng.random
        self.zero = -sum(weight for weight in weights if weight < 0)
        self.bins: Bins = [[] for _ in range(num_bins)]
        self._best_fit()
        self.loads = [sum(weights[i] for i in members) for members in self.bins]
        self.sums = [self._sums_of(members) for members in self.bins]

    def _best_fit(self) -> None:
        """Largest first into the fullest bin with room, else into the emptiest."""
        loads = [(0, b) for b in range(len(self.bins))]
        for i in sorted(range(len(self.weights)), key=lambda i: -self.weights[i]):
            k = max(0, bisect_right(loads, (self.capacity - self.weights[i], len(self.bins))) - 1)
            load, b = loads.pop(k)
            self.bins[b].append(i)
            insort(loads, (load + self.weights[i], b))

    def _sums_of(self, members: Sequence[int]) -> list[int]:
        sums = [1 << self.zero]
        for i in members:
            weight = self.weights[i]
            sums.append(sums[-1] | (sums[-1] << weight if weight >= 0 else sums[-1] >> -weight))
        return sums

    def run(self, num_steps: int) -> Bins | None:
        """Trade until no bin is too full."""
        for _ in range(num_steps):
            over = [b for b, load in enumerate(self.loads) if load > self.capacity]
            if not over:
                return self.bins
            full = over[int(self.random() * len(over))]
            if not self._relieved(full):
                # Nobody has room for anything: somebody takes it all the same, or gives other items for as many.
                handed_on = self.random() < _HANDED_ON
                self._trade(full, self._anyone(), self.loads[full] - self.capacity if handed_on else 0)
                self._trade(self._anyone(), self._anyone(), 0)
        return None

    def _anyone(self) -> int:
        return int(self.random() * len(self.bins))

    def _relieved(self, full: int) -> bool:
        """Hand what is too much, or as much of it as can be, to a bin with room, the emptiest first."""
        excess, sums = self.loads[full] - self.capacity, self.sums[full][-1]
        for load, b in sorted((load, b) for b, load in enumerate(self.loads) if load < self.capacity):
            room, others = self.capacity - load, self.sums[b][-1]
            for amount in (*range(excess, room + 1), *range(min(excess - 1, room), 0, -1)):
                if sums >> amount & others:
                    return self._trade(full, b, amount)
        return False

    def _trade(self, one: int, two: int, amount: int) -> bool:
        """Items of two bins for one another, so that `amount` moves from the first to the second."""
        common = (self.sums[one][-1] >> amount) & self.sums[two][-1]
        if one == two or not common:
            return False
        for _ in range(int(self.random() * common.bit_count())):
            common &= common - 1
        second = (common & -common).bit_length() - 1
        (gone, left), (come, kept) = self._split(one, second + amount), self._split(two, second)
        for b, members in ((one, left + come), (two, kept + gone)):
            self.bins[b], self.sums[b] = members, self._sums_of(members)
        self.loads[one] -= amount
        self.loads[two] += amount
        return True

    def _split(self, b: int, total: int) -> tuple[list[int], list[int]]:
        """Items of the bin whose sum is the bit `total`, and the others."""
        chosen: list[int] = []
        others: list[int] = []
        for i, sums in zip(reversed(self.bins[b]), self.sums[b][-2::-1], strict=True):
            if sums >> total & 1:
                others.append(i)
            else:
                chosen.append(i)
                total -= self.weights[i]
        return chosen, others


class SearchLimitError(Exception):
    """The search has not come to an end."""


def searched(weights: Sequence[int], capacity: int, num_bins: int, max_steps: int) -> Bins | None:
    """Items in at most `num_bins` bins, None where that is impossible.

    Raises
    ------
    SearchLimitError
        After `max_steps` steps.
    """
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    found = _Search([weights[i] for i in order], capacity, max_steps).pack(num_bins)
    return None if found is None else [[order[i] for i in members] for members in found]


class _Search:
    """Depth first over bins; `weights` descend."""

    def __init__(self, weights: list[int], capacity: int, max_steps: int) -> None:
        self.weights, self.capacity, self.steps_left = weights, capacity, max_steps
        self.zero = -sum(weight for weight in weights if weight < 0)
        self.failed: set[tuple[int, ...]] = set()

    def pack(self, num_bins: int) -> Bins | None:
        """All items in at most so many bins."""
        waste = num_bins * self.capacity - sum(self.weights)
        return None if num_bins < 1 or waste < 0 else self._pack(list(range(len(self.weights))), num_bins, waste)

    def _pack(self, items: list[int], num_bins: int, waste: int) -> Bins | None:
        """The items in so many bins, of whose room `waste` is too much."""
        if sum(self.weights[i] for i in items) <= self.capacity:
            return [items]
        key = (num_bins, *(self.weights[i] for i in items))
        if num_bins <= 1 or key in self.failed:
            return None
        first, *others = items
        for chosen in self._completions(others, self.capacity - self.weights[first], waste):
            taken = {first, *chosen}
            left = waste - self.capacity + sum(self.weights[i] for i in taken)
            rest = self._pack([i for i in others if i not in taken], num_bins - 1, left)
            if rest is not None:
                return [[first, *chosen], *rest]
        self.failed.add(key)
        return None

    def _completions(self, items: list[int], room: int, waste: int) -> Iterator[list[int]]:
        """Sets of the items that fill the room up to the waste, those of large items first, equal ones once."""
        reached = [1 << self.zero]
        for i in reversed(items):
            weight = self.weights[i]
            reached.append(reached[-1] | (reached[-1] << weight if weight >= 0 else reached[-1] >> -weight))
        reached.reverse()
        window = (1 << (waste + 1)) - 1
        todo: list[tuple[int, int, list[int]]] = [(0, room, [])]
        while todo:
            k, need, chosen = todo.pop()
            least = need - waste + self.zero
            if not (reached[k] >> least if least >= 0 else reached[k] << -least) & window:
                continue
            if k == len(items):
                yield chosen
                continue
            self.steps_left -= 1
            if self.steps_left < 0:
                raise SearchLimitError
            weight = self.weights[items[k]]
            other = next((n for n in range(k + 1, len(items)) if self.weights[items[n]] != weight), len(items))
            todo.append((other, need, chosen))
            todo.append((k + 1, need - weight, [*chosen, items[k]]))
