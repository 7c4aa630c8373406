"""Intervals of growing length, and what the calendar leaves of each GPU type in them. Pure NumPy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.windows import NodeWindows
from stowplan.arrays import FloatMatrix, FloatVector, IntVector
from topology.cluster import Node, NodeState

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
    are equal where that is too soon."""
    if num == 1 or end_s <= num * first_s:
        return Intervals(bounds_s=first_s * np.arange(num + 1, dtype=np.float64))
    exponents = np.arange(num)
    low, high = 1.0, end_s / first_s
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if first_s * (middle**exponents).sum() < end_s else (low, middle)
    lengths_s = first_s * high**exponents
    bounds_s = np.concatenate([[0.0], np.cumsum(lengths_s)])
    bounds_s[-1] = end_s
    return Intervals(bounds_s=bounds_s)


def open_gpus(
    intervals: Intervals, nodes: Sequence[Node], num_free: IntVector, gpu_types: Sequence[str], windows: NodeWindows
) -> FloatMatrix:
    """GPUs (T, K) of each type on average over each interval: those of the nodes, `num_free` (N,) each, for as long as
    no entry of the calendar has them. Nodes that take no work have none."""
    index = {name: t for t, name in enumerate(gpu_types)}
    found = np.zeros((len(gpu_types), intervals.num))
    plain = np.zeros(len(gpu_types))
    for n, node in enumerate(nodes):
        if node.state is not NodeState.UP or node.gpu_type not in index:
            continue
        entries = windows.over.get(n, ())
        if not entries:
            plain[index[node.gpu_type]] += num_free[n]
            continue
        closed = sorted((max(0.0, entry.begin_s), entry.end_s) for entry in entries)
        taken, until_s = np.zeros(intervals.num), 0.0
        for begin_s, end_s in closed:
            begin_s = max(begin_s, until_s)
            if end_s > begin_s:
                taken += intervals.shares(np.array([begin_s]), np.array([end_s]))[0]
                until_s = end_s
        found[index[node.gpu_type]] += num_free[n] * (1.0 - np.minimum(taken, 1.0))
    return np.asarray(found + plain[:, None])
