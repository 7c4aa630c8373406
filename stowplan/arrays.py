"""Types of arrays by what they hold; shapes stand in the docstrings of those who use them."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
IntVector = IntArray
IntMatrix = IntArray

FloatArray = npt.NDArray[np.float64]
FloatVector = FloatArray
FloatMatrix = FloatArray

Mask = npt.NDArray[np.bool_]


def pairs_in(mask: Mask) -> tuple[IntVector, IntVector]:
    """Rows and columns where `mask` (n, m) holds, row by row: `np.nonzero`, which takes several times as long."""
    flat = mask.ravel().nonzero()[0]
    rows = flat // mask.shape[1]
    return rows, flat - rows * mask.shape[1]


def all_of(mask: Mask) -> bool:
    """Whether all of a mask holds, be it empty: `all`, which takes twice as long of a few hundred."""
    return bool(np.count_nonzero(mask) == mask.size)


@lru_cache(maxsize=16)
def none_of(count: int) -> Mask:
    """A mask (n,) of nothing; read-only, and the same again and again."""
    none = np.zeros(count, dtype=np.bool_)
    none.setflags(write=False)
    return none


def in_order(values: FloatArray, axis: int = -1) -> FloatArray:
    """Sums along an axis, one after another: `sum` adds in an order of its own, in which nothing else does."""
    return np.asarray(np.cumsum(values, axis=axis).take(-1, axis=axis))
