"""Which packings of equal groups into minipods exist, at most T minipods a group, and how to build them.

G groups of g nodes, minipods with f_1 >= f_2 >= ... free nodes. Link a group and a minipod when the group has nodes
there.

Theorem. k minipods C hold m groups in one connected component, for m >= 1, exactly when

    f(C) >= m g    and    k - 1 <= (T - 1) m.                                                       (*)

Necessary: the links may be taken to form a forest (nodes moved around a cycle empty a link of it). A connected forest
of m groups and k minipods has m + k - 1 links, and a group has at most T.

Sufficient, by induction over m. Take slack off the smallest minipods until f(C) = m g; that lowers k at most. Let
r = k - 1 - (m - 1)(T - 1) <= T - 1: with r minipods exhausted by one group, (*) holds for the rest.
  a) r <= 0 and a minipod has g nodes: put a whole group there.
  b) Let s be least such that the s largest have g nodes. s <= T, as T times the average m g / k is at least g. When
     s > r: exhaust all of these but the largest of them (together less than g, as s is least), take the rest there.
  c) Otherwise the r + 1 largest have g nodes, and the r smallest at most r m g / k <= g, as r m <= k. Walk from the
     r + 1 smallest to the r + 1 largest, replacing one minipod at a time by the next larger. In the first set that
     has g nodes, all but the largest have at most g: before the step the set had less than g, and what came in is
     at most the largest. Exhaust all but the largest, take the rest there.

Hence all packings are partitions of minipods into components with (*), and a minipod alone is one for T = 1.
- Minipods with f(C) >= G g of which there are at most (T - 1) G + 1 hold all groups: nothing is wasted (m = G).
- What is left to search is a partition, and only where minipods outnumber that: `partition`, `component_model`.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from stowplan.arrays import IntMatrix, IntVector


def num_in_component(free: IntVector, size: int, spread: int) -> int:
    """Groups of `size` nodes that minipods with `free` nodes (k,), largest first, hold as one component."""
    if not free.size:
        return 0
    held = np.cumsum(free)
    num_groups = np.arange(1, int(held[-1]) // size + 1)
    widest = np.minimum(free.size, 1 + (spread - 1) * num_groups)
    return int(np.count_nonzero(held[widest - 1] >= num_groups * size))


def pack(free: IntVector, size: int, num_groups: int, spread: int, components: Sequence[IntVector]) -> IntMatrix:
    """Build the packing: positions into `free` (k,), largest first, of every group (num_groups, size).

    Raises
    ------
    ValueError
        When the components do not hold that many groups.
    """
    labels = np.zeros((num_groups, size), dtype=np.int64)
    placed = 0
    for component in components:
        here = free[component]
        num_here = min(num_in_component(np.sort(here)[::-1], size, spread), num_groups - placed)
        labels[placed : placed + num_here] = component[pack_component(here, size, num_here, spread)]
        placed += num_here
    if placed < num_groups:
        raise ValueError(f"the components hold {placed} of {num_groups} groups")
    return labels


def pack_component(free: IntVector, size: int, num_groups: int, spread: int) -> IntMatrix:
    """Pack into one component by the proof of the theorem: positions (num_groups, size) into `free` (k,) with (*)."""
    left = _without_slack(free, size * num_groups)
    labels = np.zeros((num_groups, size), dtype=np.int64)
    placed = 0
    while placed < num_groups:
        whole = _whole_groups(left, size, num_groups - placed, spread)
        if whole.size:
            labels[placed : placed + whole.size] = whole[:, None]
            left -= size * np.bincount(whole, minlength=left.size)
            placed += whole.size
        else:
            group = _straddling_group(left, size, num_groups - placed, spread)
            labels[placed] = np.repeat(np.arange(group.size), group)
            left -= group
            placed += 1
    return labels


def _without_slack(free: IntVector, needed: int) -> IntVector:
    """Keep `needed` nodes, those of the largest minipods."""
    order = np.argsort(-free, kind="stable")
    before = np.cumsum(free[order]) - free[order]
    left = np.zeros_like(free)
    left[order] = np.clip(needed - before, 0, free[order])
    return left


def _whole_groups(left: IntVector, size: int, num_groups: int, spread: int) -> IntVector:
    """Case a, as often as it applies at once: the minipod of each whole group, largest minipods first."""
    num_minipods = int(np.count_nonzero(left))
    straddling = -(-(num_minipods - 1) // (spread - 1)) if spread > 1 else 0
    order = np.argsort(-left, kind="stable")
    return np.repeat(order, left[order] // size)[: max(0, num_groups - straddling)]


def _straddling_group(left: IntVector, size: int, num_groups: int, spread: int) -> IntVector:
    """Cases b and c: one group (k,), the first of the `num_groups` that `left` (k,) has to hold exactly."""
    order = np.argsort(left, kind="stable")
    order = order[left[order] > 0]
    ascending = left[order]
    largest = np.concatenate([[0], np.cumsum(ascending[::-1])])
    must_exhaust = ascending.size - 1 - (num_groups - 1) * (spread - 1)
    fewest = int(np.searchsorted(largest, size))
    if fewest > must_exhaust:
        chosen = np.arange(ascending.size - fewest, ascending.size)
    else:
        chosen = next(sets_on_the_way(ascending, size, must_exhaust + 1))
    group = np.zeros_like(left)
    group[order[chosen[:-1]]] = ascending[chosen[:-1]]
    group[order[chosen[-1]]] = size - group.sum()
    return group


def sets_on_the_way(ascending: IntVector, need: int, num: int) -> Iterator[IntVector]:
    """Sets of `num` positions, on the walk of case c from the smallest to the largest, that hold `need` nodes.

    One per minipod that moves, the first that suffices; the largest minipod of a set comes last.
    """
    smallest = np.concatenate([[0], np.cumsum(ascending)])
    k = ascending.size
    for moved in range(num):
        stay = num - 1 - moved
        held = smallest[stay] + smallest[k] - smallest[k - moved]
        at = stay + int(np.searchsorted(ascending[stay : k - moved], need - held))
        if at < k - moved:
            yield np.concatenate([np.arange(stay), [at], np.arange(k - moved, k)])
