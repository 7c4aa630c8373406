"""Partition of minipods into components (see `packing`), by minimum bin slack.

One component with all minipods wastes least but may have too few groups for its minipods: the theorem allows
(T - 1) m + 1 of them. Every component that is split off allows one minipod more. So components of m groups and
(T - 1) m + 1 minipods are split off, each with the smallest minipod left and as few nodes beyond m g as possible,
until the rest holds the remaining groups as one component.
"""

import numpy as np

from models.placement.arnold.exact.packing import num_in_component
from models.placement.arnold.exact.two_each import in_pairs
from stowplan.arrays import IntVector

_TWO = 2
# Groups of a component that is split off: one wastes most, more find closer fits.
_COMPONENT_GROUPS = (1, 2, 3)


def partition(free: IntVector, size: int, num_groups: int, spread: int) -> list[IntVector] | None:
    """Components (positions into `free` (k,), largest first) that hold `num_groups` groups of `size` nodes.

    None proves nothing, except with spread 1 and with at most (spread - 1) * num_groups + 1 minipods: there it says
    that no packing exists.
    """
    if num_in_component(free, size, spread) >= num_groups:
        return [np.arange(free.size)]
    if spread == 1:
        whole = np.flatnonzero(free >= size)
        enough = int((free[whole] // size).sum()) >= num_groups
        return [whole[k : k + 1] for k in range(whole.size)] if enough else None
    if free.size <= (spread - 1) * num_groups + 1:
        return None
    if spread == _TWO:
        return in_pairs(free, size, num_groups)
    tries = (_split_off(free, size, num_groups, spread, num) for num in _COMPONENT_GROUPS)
    return next((found for found in tries if found is not None), None)


def _split_off(
    free: IntVector, size: int, num_groups: int, spread: int, num_per_component: int
) -> list[IntVector] | None:
    """Split off components of `num_per_component` groups until the rest holds what is left."""
    need, num = size * num_per_component, 1 + (spread - 1) * num_per_component
    rest = np.arange(free.size)
    components: list[IntVector] = []
    while rest.size:
        placed = num_per_component * len(components)
        if num_in_component(free[rest], size, spread) >= num_groups - placed:
            return [*components, rest]
        chosen = least_excess(free[rest[::-1]].tolist(), need, num)
        if chosen is None:
            rest = rest[:-1]
            continue
        positions = np.sort(rest.size - 1 - np.array(chosen))
        components.append(rest[positions])
        rest = np.delete(rest, positions)
    return None


def least_excess(sizes: list[int], need: int, num: int) -> list[int] | None:
    """Positions of `num` of the `sizes`, the first one among them, with the least sum of at least `need`.

    None when there is none. Subset sums are bits of integers: bit s of reached[i][c] says that c + 1 of the sizes up
    to i, the first included, can add up to s.
    """
    if len(sizes) < num:
        return None
    reached = [[1 << sizes[0], *[0] * (num - 1)]]
    for size in sizes[1:]:
        last = reached[-1]
        reached.append([last[0], *(last[c] | last[c - 1] << size for c in range(1, num))])
    enough = reached[-1][num - 1] >> need
    if not enough:
        return None
    total, more, chosen = need + (enough & -enough).bit_length() - 1, num - 1, [0]
    for i in range(len(sizes) - 1, 0, -1):
        if more and not reached[i - 1][more] >> total & 1:
            chosen.append(i)
            total -= sizes[i]
            more -= 1
    return chosen
