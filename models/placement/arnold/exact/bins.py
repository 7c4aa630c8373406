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
  negative items: Alves, Clautiaux, Valerio de Carvalho and Rietz, Dual-Feasible Functions, 2016.)
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

Bins = list[list[int]]
"""Positions of the items of every bin."""


class RoundedBound:
    """Bins that items of the given `weights`, or a part of them, need at least; all of it in integers."""

    def __init__(self, weights: IntVector, capacity: int) -> None:
        self._sizes: IntVector = np.unique(weights)
        steps, parts = _fractions(capacity)
        whole, rest = np.divmod(steps * self._sizes, parts)
        most, excess = np.divmod(steps * capacity, parts)
        # F times 1 - r, and times the parts of t: (fractions, sizes).
        self._values = whole * (parts - excess) + np.maximum(rest - excess, 0)
        self._room = (most * (parts - excess))[:, 0]

    def of(self, weights: IntVector) -> int:
        """Bins that items of `weights` (n,) need."""
        number = np.bincount(np.searchsorted(self._sizes, weights), minlength=self._sizes.size)
        return int((-(-(self._values @ number) // self._room)).max())


@lru_cache(maxsize=16)
def _fractions(capacity: int) -> tuple[IntMatrix, IntMatrix]:
    """Steps and parts (F, 1) of the fractions t <= 1 that are tried: those of few parts, and those of capacity + 1."""
    tried = [(n, d) for d in range(1, min(capacity + 1, _MOST_PARTS) + 1) for n in range(1, d + 1) if gcd(n, d) == 1]
    tried += [(n, capacity + 1) for n in range(1, min(capacity, _MOST_PARTS) + 1)]
    steps, parts = np.array([(n, d) for n, d in tried if n * capacity >= d], dtype=np.int64).T[:, :, None]
    return steps, parts


def exchanged(weights: Sequence[int], capacity: int, num_bins: int, *, num_steps: int, seed: int = 0) -> Bins | None:
    """Items in at most `num_bins` bins; None, after `num_steps` trades, proves nothing."""
    if num_bins < 1 or sum(weights) > num_bins * capacity:
        return None
    return _Trade(weights, capacity, num_bins, random.Random(seed)).run(num_steps)  # noqa: S311 - no secret


class _Trade:
    """Bins that may be too full; `sums` are their subset sums, bit s + `zero` for the sum s."""

    def __init__(self, weights: Sequence[int], capacity: int, num_bins: int, rng: random.Random) -> None:
        self.weights, self.capacity, self.rng = weights, capacity, rng
        self.zero = -sum(weight for weight in weights if weight < 0)
        self.bins: Bins = [[] for _ in range(num_bins)]
        self._best_fit()
        self.loads = [sum(weights[i] for i in members) for members in self.bins]
        self.sums = [self._prefix_sums(members)[-1] for members in self.bins]

    def _best_fit(self) -> None:
        """Largest first into the fullest bin with room, else into the emptiest."""
        loads = [(0, b) for b in range(len(self.bins))]
        for i in sorted(range(len(self.weights)), key=lambda i: -self.weights[i]):
            k = max(0, bisect_right(loads, (self.capacity - self.weights[i], len(self.bins))) - 1)
            load, b = loads.pop(k)
            self.bins[b].append(i)
            insort(loads, (load + self.weights[i], b))

    def _prefix_sums(self, members: Sequence[int]) -> list[int]:
        sums = [1 << self.zero]
        for i in members:
            weight = self.weights[i]
            sums.append(sums[-1] | (sums[-1] << weight if weight >= 0 else sums[-1] >> -weight))
        return sums

    def run(self, num_steps: int) -> Bins | None:
        """Trade until no bin is too full."""
        everyone = range(len(self.bins))
        for _ in range(num_steps):
            over = [b for b in everyone if self.loads[b] > self.capacity]
            if not over:
                return self.bins
            full = self.rng.choice(over)
            if not self._relieved(full):
                # Nobody can take anything: the same loads with other items, in two pairs.
                self._trade(full, self.rng.choice(everyone), 0)
                self._trade(self.rng.choice(everyone), self.rng.choice(everyone), 0)
        return None

    def _relieved(self, full: int) -> bool:
        """Hand what is too much, or as much of it as can be, to a bin with room, the emptiest first."""
        excess = self.loads[full] - self.capacity
        with_room = [b for b in range(len(self.bins)) if self.loads[b] < self.capacity]
        for b in sorted(with_room, key=self.loads.__getitem__):
            room = self.capacity - self.loads[b]
            for amount in (*range(excess, room + 1), *range(min(excess - 1, room), 0, -1)):
                if self._trade(full, b, amount):
                    return True
        return False

    def _trade(self, one: int, two: int, amount: int) -> bool:
        """Items of two bins for one another, so that `amount` moves from the first to the second."""
        common = (self.sums[one] >> amount) & self.sums[two]
        if one == two or not common:
            return False
        nth = self.rng.randrange(common.bit_count())
        for _ in range(nth):
            common &= common - 1
        second = (common & -common).bit_length() - 1
        ways = ((one, two, second + amount), (two, one, second))
        moved = [self._subset(b, total) for b, _, total in ways]
        for (b, _, _), gone, come in zip(ways, moved, reversed(moved), strict=True):
            self.bins[b] = [i for i in self.bins[b] if i not in gone] + come
            self.sums[b] = self._prefix_sums(self.bins[b])[-1]
        self.loads[one] -= amount
        self.loads[two] += amount
        return True

    def _subset(self, b: int, total: int) -> list[int]:
        """Items of the bin whose sum is the bit `total`."""
        sums, chosen = self._prefix_sums(self.bins[b]), []
        for k in range(len(self.bins[b]) - 1, -1, -1):
            if not sums[k] >> total & 1:
                chosen.append(self.bins[b][k])
                total -= self.weights[chosen[-1]]
        return chosen


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
