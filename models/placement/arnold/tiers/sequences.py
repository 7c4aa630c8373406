"""Solutions that deal the nodes of bins, one bin after the other along the tree, to one group after the other.

What is open is the order of the units in each unit above them, and how many nodes each bin gives. Groups in a row
that touch T units each, and share one with the next, reach as far as any packing on T units can (`exact.packing`). So
what is looked for is a good sequence, by simulated annealing: nodes are given by one bin instead of another, units
change places with others of the same unit above, and what is worse is accepted ever less.

The units that a group touches are one more than the places along it where the unit changes: one walk over the bins
values a sequence, whatever the number of nodes.
"""

import math
import random
from collections.abc import Callable

import numpy as np

from models.placement.arnold.tiers.instance import TierInstance
from stowplan.arrays import IntMatrix, IntVector

# Changes of a run, runs, and bins that all of them may walk over.
_CHANGES, _RUNS, _MOST_WALKED = 3_000, 4, 400_000
_TEMPERATURE = 0.1
# What Eq. 4 does not say: that fewer groups touch the most units, and that a unit is nearly empty, is worth this share
# of what it will be worth once none does, and it is.
_ON_THE_WAY = 0.5
_ALL_AT_ONCE, _AND_ANOTHER = 0.6, 0.3
_TOLERANCE = 1e-9

_Sequence = tuple[list[int], list[int]]
"""Bins, every unit in one stretch, and the nodes that each of them gives."""


def best_sequence(
    instance: TierInstance, order: IntVector, enough: float, stop: Callable[[], bool] = lambda: False
) -> IntMatrix:
    """Whole nodes (G, B) of the best sequence found, of a value of `enough` at the best.

    Parameters
    ----------
    order
        Bins with free nodes, every unit in one stretch.
    stop
        Asked now and then; ends it early.
    """
    walk = _Walk(instance, order)
    for seed in range(_RUNS):
        walk.run(random.Random(seed), enough, stop)  # noqa: S311 - no secret
        if walk.best <= enough + _TOLERANCE or stop():
            break
    bins, nodes = walk.found
    slots = np.repeat(bins, nodes).reshape(instance.num_groups, instance.group_size)
    counts = np.zeros((instance.num_groups, instance.num_bins), dtype=np.int64)
    np.add.at(counts, (np.arange(instance.num_groups)[:, None], slots), 1)
    return counts


class _Walk:
    """Sequences of one instance; `found` is the `best`. A run makes `num_changes`."""

    def __init__(self, instance: TierInstance, order: IntVector) -> None:
        self._size, self._num_groups = instance.group_size, instance.num_groups
        self._units = list(zip(*(tier.unit.tolist() for tier in instance.tiers), strict=True))
        self._free = instance.free_nodes.tolist()
        self._used = [tier.weight * instance.minipod_weight for tier in instance.tiers]
        self._spread = [tier.weight * instance.spread_weight for tier in instance.tiers]
        self._largest = [int(np.bincount(tier.unit, instance.free_nodes).max()) for tier in instance.tiers]
        before = np.cumsum(instance.free_nodes[order]) - instance.free_nodes[order]
        nodes = np.clip(instance.num_nodes - before, 0, instance.free_nodes[order])
        self._start: _Sequence = (order.tolist(), nodes.tolist())
        self.num_changes = min(_CHANGES, _MOST_WALKED // (_RUNS * order.size))
        self.found = self._start
        self.best = self.value(self._start)[0]

    def run(self, rng: random.Random, enough: float, stop: Callable[[], bool]) -> None:
        """Change the first sequence again and again."""
        here = self._start
        cost = self.value(here)[1]
        for step in range(self.num_changes):
            if self.best <= enough + _TOLERANCE or (step % 100 == 0 and stop()):
                return
            changed = self._changed(here, rng)
            if changed is not None and rng.random() < _AND_ANOTHER:
                changed = self._changed(changed, rng) or changed
            if changed is None:
                continue
            value, worth = self.value(changed)
            warmth = _TEMPERATURE * (1 - step / self.num_changes)
            if worth <= cost or rng.random() < math.exp((cost - worth) / warmth):
                here, cost = changed, worth
                if value < self.best - _TOLERANCE:
                    self.found, self.best = changed, value

    def value(self, sequence: _Sequence) -> tuple[float, float]:
        """Value of the objective, and what the search minimises."""
        tiers = range(len(self._used))
        runs, held, least = [1] * len(tiers), [0] * len(tiers), [math.inf] * len(tiers)
        # Changes of unit inside the present group, the most inside any, and groups with so many.
        inside, most, groups = [0] * len(tiers), [0] * len(tiers), [0] * len(tiers)
        dealt, group = 0, -1
        given = [(self._units[k], nodes) for k, nodes in zip(*sequence, strict=True) if nodes]
        last = given[0][0]
        for units, nodes in given:
            number, rest = divmod(dealt, self._size)
            if number != group:
                group, inside = number, [0] * len(tiers)
            for t in tiers:
                if units[t] != last[t]:
                    runs[t] += 1
                    least[t], held[t] = min(least[t], held[t]), 0
                    inside[t] += rest > 0
                    if inside[t] > most[t]:
                        most[t], groups[t] = inside[t], 0
                    groups[t] += rest > 0 and inside[t] == most[t]
                held[t] += nodes
            dealt, last = dealt + nodes, units
        value = way = 0.0
        for t in tiers:
            value += self._used[t] * runs[t] + self._spread[t] * (1 + most[t])
            way += self._used[t] * min(least[t], held[t]) / self._largest[t]
            way += self._spread[t] * (groups[t] / self._num_groups if most[t] else 1.0)
        return value, value + _ON_THE_WAY * way

    def _changed(self, sequence: _Sequence, rng: random.Random) -> _Sequence | None:
        """A change at random; None where it is none."""
        bins, nodes = sequence
        one, other = rng.randrange(len(bins)), rng.randrange(len(bins))
        if rng.random() < 1 / 2:
            most = min(nodes[one], self._free[bins[other]] - nodes[other])
            if one == other or not most:
                return None
            moved = most if rng.random() < _ALL_AT_ONCE else rng.randint(1, most)
            nodes = nodes.copy()
            nodes[one] -= moved
            nodes[other] += moved
            return bins, nodes
        return self._swapped(sequence, rng.randrange(len(self._used)), min(one, other), max(one, other))

    def _swapped(self, sequence: _Sequence, tier: int, one: int, other: int) -> _Sequence | None:
        """With the units of two places swapped; None where they are the same, or in different units above."""
        unit_of = [self._units[k] for k in sequence[0]]
        first, second = unit_of[one][: tier + 1], unit_of[other][: tier + 1]
        if first == second or first[:-1] != second[:-1]:
            return None
        begin, end = _stretch(unit_of, one, tier)
        start, stop = _stretch(unit_of, other, tier)
        bins, nodes = (
            [*row[:begin], *row[start:stop], *row[end:start], *row[begin:end], *row[stop:]] for row in sequence
        )
        return bins, nodes


def _stretch(unit_of: list[tuple[int, ...]], at: int, tier: int) -> tuple[int, int]:
    """Where the unit begins and ends that is at this place."""
    unit, begin, end = unit_of[at][tier], at, at + 1
    while begin and unit_of[begin - 1][tier] == unit:
        begin -= 1
    while end < len(unit_of) and unit_of[end][tier] == unit:
        end += 1
    return begin, end
