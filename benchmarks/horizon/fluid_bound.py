"""A lower bound on the sum of completion times, until a horizon, of long jobs whose starts cost little.

Less is asked than of any policy: a job has any mixture of its configurations at a time, changes cost nothing, and GPUs
must be enough on average over an interval for what jobs use on average, each over a mixture of schedules. For prices p
of a GPU of each type in each interval, at least 0, the sum is at least (Lagrange)

    sum_j min(horizon - submit_j, min over e of e - submit_j + V_j(e)) - p of all GPUs

where V_j(e) is the least that the work w_j costs from ready_j to e. That is a linear program itself, and by its dual,
for any price of work m >= 0

    V_j(e) >= m w_j + sum_k (length of interval k between ready_j and e) phi_k(m)
    phi_k(m) = min(0, min_c (p_k of the GPUs of c - m speed_c))

So this is a bound whatever the prices, and whatever the grid of prices of work. Ends within an interval k are covered
by its end, from which all of this falls by 1 + phi_k(m) a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.horizon.ascent import Priced
from stowplan.arrays import FloatArray, IntArray

# Prices of work: from ten times what a second of any configuration costs for its work at most, a million times down.
_NUM_PRICES, _SPAN, _MOST = 160, 1e6, 10.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FluidKind:
    """Jobs alike but for their work. type_of, gpus_of (C,): of configurations; speed (C,): work a second."""

    type_of: IntArray
    gpus_of: IntArray
    speed: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FluidProblem:
    """kind_of, work, submit_s, ready_s (J,): of jobs, which begin to work no sooner than they are ready. num_gpus (T,):
    of each type. bounds_s (K+1,): of intervals, from 0 to the horizon."""

    kinds: Sequence[FluidKind]
    kind_of: IntArray
    work: FloatArray
    submit_s: FloatArray
    ready_s: FloatArray
    num_gpus: IntArray
    bounds_s: FloatArray

    @property
    def lengths_s(self) -> FloatArray:
        """(K,)."""
        return np.diff(self.bounds_s)

    def finer(self, factor: int) -> "FluidProblem":
        """With each interval in so many."""
        parts = np.arange(factor) / factor
        inner_s = (self.bounds_s[:-1, None] + parts * self.lengths_s[:, None]).ravel()
        return replace(self, bounds_s=np.append(inner_s, self.bounds_s[-1]))


class _Menu:
    """What a kind does at prices of work (M,) in each interval (K,): phi, configuration (-1: none) and speed, and cost
    and work from 0 to the end of each (M, K+1)."""

    def __init__(self, kind: FluidKind, prices: FloatArray, lengths_s: FloatArray) -> None:
        cost = prices[:, kind.type_of] * kind.gpus_of
        most = _MOST * float(((1.0 + cost.max(axis=0)) / kind.speed).max())
        self.of_work = np.append(0.0, np.geomspace(most / _SPAN, most, _NUM_PRICES - 1))
        reduced = cost - self.of_work[:, None, None] * kind.speed
        best = reduced.argmin(axis=2)
        phi = np.take_along_axis(reduced, best[:, :, None], axis=2)[:, :, 0]
        self.phi = np.minimum(phi, 0.0)
        self.chosen = np.where(phi < 0, best, -1)
        self.speed = np.where(phi < 0, kind.speed[best], 0.0)
        start = np.zeros((_NUM_PRICES, 1))
        self.cost_to = np.append(start, np.cumsum(self.phi * lengths_s, axis=1), axis=1)
        self.work_to = np.append(start, np.cumsum(self.speed * lengths_s, axis=1), axis=1)


def priced(problem: FluidProblem, prices: FloatArray) -> Priced:
    """The bound at prices (K, T) for a second of a GPU, and what is used there on average over each interval."""
    total_s, use = 0.0, np.zeros_like(prices)
    for k, kind in enumerate(problem.kinds):
        menu = _Menu(kind, prices, problem.lengths_s)
        held = np.zeros_like(menu.phi)
        for j in np.flatnonzero(problem.kind_of == k).tolist():
            total_s += _cheapest_s(problem, menu, j, held)
        gpus = kind.gpus_of[menu.chosen] * held
        for t in np.unique(kind.type_of).tolist():
            is_of_type = (menu.chosen >= 0) & (kind.type_of[menu.chosen] == t)
            use[:, t] += np.where(is_of_type, gpus, 0.0).sum(axis=0)
    paid_s = float((prices * problem.num_gpus * problem.lengths_s[:, None]).sum())
    return Priced(value=total_s - paid_s, use=use)


def _cheapest_s(problem: FluidProblem, menu: _Menu, j: int, held: FloatArray) -> float:
    """What job j costs at least; what it uses is noted in `held` (M, K), parts of the intervals at prices of work."""
    horizon_s, submit_s = float(problem.bounds_s[-1]), float(problem.submit_s[j])
    never_s, ready_s = horizon_s - submit_s, float(problem.ready_s[j])
    if ready_s >= horizon_s:
        return never_s
    first = int(np.searchsorted(problem.bounds_s, ready_s, side="right")) - 1
    lengths_s = problem.lengths_s[first:].copy()
    part = (problem.bounds_s[first + 1] - ready_s) / lengths_s[0]
    before_s = menu.cost_to[:, first + 1] - part * menu.phi[:, first] * lengths_s[0]
    done = menu.work_to[:, first + 1] - part * menu.speed[:, first] * lengths_s[0]
    lengths_s[0] *= part
    work = problem.work[j]
    within_s = lengths_s * np.maximum(0.0, 1.0 + menu.phi[:, first:])
    cost_s = menu.of_work[:, None] * work + menu.cost_to[:, first + 1 :] - before_s[:, None] - within_s
    ends_s = problem.bounds_s[first + 1 :] - submit_s + cost_s.max(axis=0)
    last = int(ends_s.argmin())
    if never_s <= ends_s[last]:
        return never_s
    # The work lies between what two neighbouring prices would do.
    reached = menu.work_to[:, first + 1 + last] - done
    above = min(int(np.searchsorted(reached, work)), _NUM_PRICES - 1)
    below = max(0, above - 1)
    rise = reached[above] - reached[below]
    share = min(1.0, max(0.0, float((work - reached[below]) / rise))) if rise > 0 else 1.0
    for m, weight in ((below, 1.0 - share), (above, share)):
        held[m, first] += weight * part
        held[m, first + 1 : first + 1 + last] += weight
    return float(ends_s[last])
