"""A bound over all weighted tiers together, by what so many units of each hold at most.

Every tier alone bounds the units used by the spread, Y_t >= Y_t(T_t) (`exact`). But units of one tier are inside those
of another: the leaves that hold most are not all in the minipods that hold most. So let

  F_s(y_1, ..., y_L)   most nodes that groups can have in y_t units of every tier t, where each of the tiers 1..s, from
                       the coarsest on, has spread 1 and those below have more

which is counted along the tree: a unit adds what its sub-units hold; on tier s in whole groups, as no group has nodes
in two units of it. Then the least sum_t w_t (a y_t + b T_t) with y_t >= Y_t(T_t) and F_s(y) >= G g bounds every
solution, s being the number of tiers with T_t = 1. (Spreads do not fall from a tier to a finer one.)
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from models.placement.arnold.tiers.instance import TierInstance
from stowplan.arrays import IntArray

# Counts of units that are told apart, at most.
_MOST_STATES = 10_000
_NEVER = -(2**60)


def joint_bound(instance: TierInstance, fewest: Sequence[Mapping[int, float]]) -> float | None:
    """The bound; None where there are too many units to tell all counts apart.

    Parameters
    ----------
    fewest
        For each tier the fewest units by spread, as far as they are known; the largest spread stands for larger ones,
        too, and is at least 2.
    """
    if math.prod(tier.num_units + 1 for tier in instance.tiers) > _MOST_STATES:
        return None
    bound = math.inf
    weights = [tier.weight for tier in instance.tiers]
    for whole in range(len(weights) + 1):
        held = _held(instance, whole)
        counts = np.indices(held.shape)
        used = instance.minipod_weight * np.tensordot(weights, counts, axes=1)
        cost = np.where(held >= instance.num_nodes, used, np.inf)
        known = [{t: y for t, y in by.items() if (t == 1) == (k < whole)} for k, by in enumerate(fewest)]
        for levels in itertools.product(*(by.items() for by in known)):
            enough = np.logical_and.reduce([count >= y for count, (_, y) in zip(counts, levels, strict=True)])
            spread = sum(w * instance.spread_weight * t for w, (t, _) in zip(weights, levels, strict=True))
            bound = min(bound, spread + float(cost.min(initial=np.inf, where=enough)))
    return bound


def _held(instance: TierInstance, whole: int) -> IntArray:
    """F_s for s = `whole`: most nodes by the number of units used of every tier."""
    size = instance.group_size
    nodes = instance.free_nodes if whole < len(instance.tiers) else instance.free_nodes // size * size
    # Units of the finest tier are bins, of which those that hold most are taken.
    tables = [np.array(held) for held in nodes.tolist()]
    for k in reversed(range(len(instance.tiers))):
        parent = instance.tiers[k - 1].unit if k else np.zeros_like(instance.tiers[k].unit)
        parent_of = dict(zip(instance.tiers[k].unit.tolist(), parent.tolist(), strict=True))
        below: list[list[IntArray]] = [[] for _ in range(max(parent_of.values()) + 1)]
        for unit, above in sorted(parent_of.items()):
            below[above].append(tables[unit])
        tables = [_together(units) for units in below]
        if k == whole:
            tables = [np.where(table > 0, table // size * size, table) for table in tables]
    return tables[0]


def _together(units: Sequence[IntArray]) -> IntArray:
    """Most nodes by the number of the units that are used, and of those below them."""
    if not units[0].ndim:
        return np.concatenate([[0], np.cumsum(np.sort(np.array(units))[::-1])])
    table = np.zeros((1,) * (units[0].ndim + 1), dtype=np.int64)
    for unit in units:
        shape = (table.shape[0] + 1, *(a + b - 1 for a, b in zip(table.shape[1:], unit.shape, strict=True)))
        larger = np.full(shape, _NEVER)
        larger[tuple(slice(0, length) for length in table.shape)] = table
        for place in zip(*np.nonzero(unit > _NEVER // 2), strict=True):
            where = (slice(1, None), *(slice(i, i + n) for i, n in zip(place, table.shape[1:], strict=True)))
            np.maximum(larger[where], table + unit[place], out=larger[where])
        table = larger
    return table
