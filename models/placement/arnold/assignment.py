"""From a solution of the MIP to a node in every cell.

1. Whole nodes. With s and y fixed, p is a transportation problem with integer supplies (nodes of a group) and
   capacities (free nodes of a minipod), so that an integral solution exists whenever a fractional one does: a
   maximum flow. It uses no pair and no minipod that the solver did not, so T and the used minipods cannot grow.
2. Cells: see `arrangement`.
3. Nodes. Each minipod hands out its nodes in the order of the pool, group after group, so that a group stays within
   few finer units.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from scipy import sparse

from models.placement.arnold.arrangement import arrange_groups
from models.placement.arnold.constructive import preference
from models.placement.arnold.instance import ArnoldInstance
from models.placement.arnold.parameters import SchedulingUnit
from stowplan.arrays import FloatMatrix, IntMatrix, Mask

# A share that misses a whole node by less is rounding of the solver.
_WHOLE = 1e-6


def own_split(instance: ArnoldInstance, shares: FloatMatrix, used: Mask) -> IntMatrix | None:
    """Counts (G, M) when the `shares` (G, M) of groups are whole nodes already and fit; else None."""
    counts: IntMatrix = np.rint(shares * instance.group_size).astype(np.int64)
    whole = np.abs(shares * instance.group_size - counts).max() <= _WHOLE
    filled = (counts.sum(axis=1) == instance.group_size).all()
    fitting = (counts.sum(axis=0) <= np.where(used, instance.free_nodes, 0)).all()
    return counts if whole and filled and fitting and (counts >= 0).all() else None


def whole_nodes(instance: ArnoldInstance, selected: Mask, used: Mask) -> IntMatrix:
    """Counts (G, M) that respect selected s (G, M) and used y (M,).

    Raises
    ------
    ValueError
        When the solution has no integral split, or it got worse: then the solution was not feasible.
    """
    # It loads SciPy's linear algebra, for what few plans need: solutions that split nodes.
    from scipy.sparse.csgraph import maximum_flow

    groups, minipods = instance.num_groups, instance.num_minipods
    source, sink = groups + minipods, groups + minipods + 1
    i, j = np.nonzero(selected & used)
    capacity = np.where(used, instance.free_nodes, 0)
    tails = np.concatenate([np.full(groups, source), i, groups + np.arange(minipods)])
    heads = np.concatenate([np.arange(groups), groups + j, np.full(minipods, sink)])
    size = np.full(groups + i.size, instance.group_size)
    limits = np.concatenate([size, np.minimum(capacity, instance.num_nodes)]).astype(np.int32)
    graph = sparse.csr_array((limits, (tails, heads)), shape=(sink + 1, sink + 1))
    flow = maximum_flow(graph, source, sink)
    if flow.flow_value != instance.num_nodes:
        raise ValueError(f"the solution places {flow.flow_value} of {instance.num_nodes} nodes")
    counts = flow.flow[:groups, groups:source].toarray().astype(np.int64)
    if not ((counts == 0) | (selected & used)).all():
        raise ValueError("whole nodes spread further than the solution allows")
    return counts


def improved(instance: ArnoldInstance, labels: IntMatrix, alternative: IntMatrix | None) -> IntMatrix:
    """Take the better of both by Eq. 4, ties broken by what Eq. 4 does not see; the first when nothing differs."""
    if alternative is None:
        return labels
    return min(labels, alternative, key=lambda candidate: preference(instance, candidate))


def arrange(labels: IntMatrix, unit: SchedulingUnit) -> IntMatrix:
    """Communication matrix (rows, columns) of minipod indices from the minipods of every group (G, g)."""
    groups = arrange_groups(labels)
    return groups if unit is SchedulingUnit.PP else groups.T


def pick_nodes(
    minipods: IntMatrix, nodes: Sequence[Sequence[str]], unit: SchedulingUnit
) -> tuple[tuple[str, ...], ...]:
    """Node ids for the cells (rows, columns), group after group, the first of the `nodes` of each minipod."""
    groups = minipods if unit is SchedulingUnit.PP else minipods.T
    # Cell by cell, those of a minipod after one another: what its nodes are handed out to.
    along = np.argsort(groups, axis=None, kind="stable")
    number = np.bincount(groups.ravel(), minlength=len(nodes)).tolist()
    cells = np.empty(groups.size, dtype=np.object_)
    cells[along] = list(chain.from_iterable(own[:many] for own, many in zip(nodes, number, strict=True)))
    rows = cells.reshape(groups.shape).tolist()
    return tuple(map(tuple, rows)) if unit is SchedulingUnit.PP else tuple(zip(*rows, strict=True))
