"""Stage partitions and GPU assignments of a grid (Arena section 3.3): which operators form a stage, on how many GPUs.

Powers of two. The GPUs that the loads ask for, D_j, are normalised to powers of two that add up to n, by the least
Euclidean distance (Eq. 3). Of one set of powers, the assignment that is nearest to D gives larger powers to larger
D_j (rearrangement inequality), so that it is enough to compare the sets: a matrix product for all partitions at once.
When n = u 2^m with odd u > 1, the same is done in units of u GPUs too, so that equal stages exist (24 GPUs: 8+8+8,
12+12, 24); the paper leaves such counts open.
"""

from functools import lru_cache
from itertools import combinations

import numpy as np

from stowplan.arrays import FloatArray, IntArray

# More stages than operators may be chosen (`options`): they are cut from as many operators.
MANY_STAGES = 20


@lru_cache(maxsize=64)
def partitions(num_operators: int, num_stages: int) -> IntArray:
    """All C(O - 1, s - 1) ways to cut O operators into s stages: bounds (P, s + 1), from 0 to O."""
    inner = list(combinations(range(1, num_operators), num_stages - 1))
    bounds = np.pad(np.array(inner, dtype=np.int64).reshape(len(inner), num_stages - 1), ((0, 0), (1, 1)))
    bounds[:, -1] = num_operators
    bounds.flags.writeable = False
    return bounds


@lru_cache(maxsize=1024)
def gpu_sets(num_gpus: int, num_stages: int) -> IntArray:
    """All sets of s stage sizes that add up to n: (M, s), each set in descending order, (0, s) when there is none.

    Above 20 stages, which are all of similar load, only sets of two neighbouring powers.
    """
    found = []
    for unit in sorted({1, odd_part(num_gpus)}):
        whole = num_gpus // unit
        largest = whole.bit_length() - 1
        of_powers = _neighbours(whole, num_stages) if num_stages > MANY_STAGES else _powers(whole, num_stages, largest)
        found += [tuple(unit * size for size in sizes) for sizes in of_powers]
    sets = np.array(found, dtype=np.int64).reshape(-1, num_stages)
    sets.flags.writeable = False
    return sets


def stage_sizes(num_gpus: int) -> tuple[int, ...]:
    """Every size that a stage of n GPUs in total can have, ascending."""
    unit = odd_part(num_gpus)
    powers = [1 << k for k in range(num_gpus.bit_length())]
    return tuple(sorted({*powers, *(unit * size for size in powers if unit * size <= num_gpus)}))


def odd_part(number: int) -> int:
    """u of number = u 2^m."""
    return number // (number & -number)


def normalised(descending: FloatArray, sets: IntArray) -> tuple[IntArray, FloatArray]:
    """Nearest stage sizes (Eq. 3).

    Parameters
    ----------
    descending
        D_j, (P, s): GPUs in proportion to the loads of the stages, in descending order.
    sets
        (M, s), M >= 1, each in descending order.

    Returns
    -------
    Nearest set (P,), whose k-th size belongs to the k-th largest D_j, and the computation bias b_comp (P,) in GPUs.
    """
    # |p - D|^2 without |D|^2, which is the same for all sets.
    distance = (sets**2).sum(axis=1) - 2.0 * descending @ sets.T.astype(np.float64)
    nearest = distance.argmin(axis=1)
    return nearest, bias(descending.T, sets.T.take(nearest, axis=1))


def bias(wanted: FloatArray, sizes: IntArray) -> FloatArray:
    """b_comp (P,) of sizes (s, P), to a billionth of a GPU, so that equal plans compare as equal."""
    return np.asarray(np.round(np.sqrt(((sizes - wanted) ** 2).sum(axis=0)), 9))


def _neighbours(total: int, parts: int) -> list[tuple[int, ...]]:
    """The set of `parts` powers 2^k and 2^(k + 1) that add up to `total`, if there is one."""
    if total < parts:
        return []
    power = 1 << ((total // parts).bit_length() - 1)
    larger, rest = divmod(total - parts * power, power)
    return [] if rest else [(2 * power,) * larger + (power,) * (parts - larger)]


def _powers(total: int, parts: int, largest: int) -> list[tuple[int, ...]]:
    """Sets of `parts` powers of two, none above 2^largest, that add up to `total`, in descending order."""
    if parts == 0:
        return [()] if total == 0 else []
    if not parts <= total <= parts << largest:
        return []
    return [
        (1 << k, *rest)
        for k in range(min(largest, total.bit_length() - 1), -1, -1)
        for rest in _powers(total - (1 << k), parts - 1, k)
    ]
