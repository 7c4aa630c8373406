"""Intervals of growing length, and what closed nodes leave of each GPU type in them. Pure NumPy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stowplan.arrays import FloatMatrix, FloatVector, IntVector

_BISECTIONS = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intervals:
    """K intervals, one after another from now: bounds_s (K+1,), of which the first is 0."""

    bounds_s: FloatVector

    @property
    def num(self) -> int:
        """K."""
        return self.bounds_s.size - 1

    @property
    def lengths_s(self) -> FloatVector:
        """(K,)."""
        return np.diff(self.bounds_s)

    @property
    def end_s(self) -> float:
        """When the last one ends."""
        return float(self.bounds_s[-1])

    def shares(self, begin_s: FloatVector, end_s: FloatVector) -> FloatMatrix:
        """Parts (P, K) of the intervals that lie between times (P,)."""
        first, last = self.bounds_s[:-1], self.bounds_s[1:]
        within = np.minimum(end_s[:, None], last) - np.maximum(begin_s[:, None], first)
        return np.asarray(np.maximum(within, 0.0) / self.lengths_s)


def growing(first_s: float, num: int, end_s: float) -> Intervals:
    """Intervals from `first_s` on, each as many times longer than the one before as lets the last end at `end_s`; all
    are equal where that is too soon. One ends at `end_s`, or at `first_s` if that is later."""
    if num == 1:
        return Intervals(bounds_s=np.array([0.0, max(first_s, end_s)]))
    if end_s <= num * first_s:
        return Intervals(bounds_s=first_s * np.arange(num + 1, dtype=np.float64))
    low, high = 1.0, end_s / first_s
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if first_s * sum(middle**k for k in range(num)) < end_s else (low, middle)
    lengths_s = first_s * high ** np.arange(num)
    bounds_s = np.concatenate([[0.0], np.cumsum(lengths_s)])
    bounds_s[-1] = end_s
    return Intervals(bounds_s=bounds_s)


def open_gpus(
    intervals: Intervals,
    num_gpus: IntVector,
    type_index: IntVector,
    num_types: int,
    closed: Mapping[int, Sequence[tuple[float, float]]],
) -> FloatMatrix:
    """GPUs (T, K) of each type on average over each interval: those of N nodes, `num_gpus` and `type_index` (N,), but
    for the times at which they are `closed`, by position."""
    some = np.array(sorted(closed), dtype=np.int64)
    always = num_gpus.copy()
    always[some] = 0
    plain = np.bincount(type_index, weights=always, minlength=num_types)
    found = np.repeat(plain[:, None], intervals.num, axis=1)
    for n in some.tolist():
        taken, until_s = np.zeros(intervals.num), 0.0
        for begin_s, end_s in sorted(closed[n]):
            begin_s = max(begin_s, until_s)
            if end_s > begin_s:
                taken += intervals.shares(np.array([begin_s]), np.array([end_s]))[0]
                until_s = end_s
        found[type_index[n]] += num_gpus[n] * (1.0 - np.minimum(taken, 1.0))
    return np.asarray(found)
