"""The best of many candidates for every number of micro-batches.

Candidates come in the order of their lower bounds, and those whose bound is not below the time to beat are not looked
at: where layers are equal, the result is that of looking at all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.parallelism.incremental.bounds import divisible_bounds, memory_bounds
from models.parallelism.incremental.candidates import Candidates, Skeleton
from models.parallelism.incremental.configs import StageConfigs
from models.parallelism.incremental.estimate import estimate
from models.parallelism.incremental.landscape import Floats, Landscape, Mask
from models.parallelism.incremental.tables import CostTables
from models.parallelism.incremental.terms import Rows

# Candidates that are looked at together: few first, since they tell which others are worth it.
_FIRST, _LATER = 128, 256
# A difference below this is rounding.
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Balanced:
    """A skeleton with its layers, the index of its number of micro-batches, and the iteration time in seconds."""

    skeleton: Skeleton
    layers: tuple[int, ...]
    batch: int
    time_s: float


class Best:
    """The best known plan for every number of micro-batches, as far as it is within `tolerance` of the best of all."""

    def __init__(self, num_batches: int, tolerance: float) -> None:
        self._own_s = np.full(num_batches, np.inf)
        self._within = 1.0 + tolerance
        self._plans: dict[int, Balanced] = {}
        self._time_s = np.inf

    @property
    def plans(self) -> list[Balanced]:
        """All of them, fastest first; of equally fast ones, the one with the larger micro-batches."""
        kept = [plan for plan in self._plans.values() if plan.time_s <= self._time_s * self._within]
        equal = self._time_s * (1.0 + _EQUAL)
        return sorted(kept, key=lambda plan: (plan.time_s if plan.time_s > equal else 0.0, -plan.batch))

    @property
    def limits_s(self) -> Floats:
        """(B,) times to be below, by number of micro-batches."""
        return np.minimum(self._own_s * (1.0 - _EQUAL), self._time_s * self._within)

    def add(self, plan: Balanced) -> None:
        """Take a plan in place of the one with its number of micro-batches."""
        self._plans[plan.batch] = plan
        self._own_s[plan.batch] = plan.time_s
        self._time_s = min(self._time_s, plan.time_s)


def improve(
    best: Best, tables: CostTables, landscape: Landscape, candidates: Candidates, predecessors: Sequence[Skeleton]
) -> list[Balanced]:
    """Take candidates that are better than what is known; return those that were taken and are still there."""
    if not len(candidates.stages):
        return []
    configs = StageConfigs.of(tables, landscape, candidates.replicas, candidates.degree)
    rows, bounds = _promising(tables, configs, candidates, best.limits_s)
    skeletons: dict[int, Skeleton] = {}
    taken: list[Balanced] = []
    start, size = 0, _FIRST
    while start < len(bounds):
        limits = best.limits_s
        k = start + np.flatnonzero(bounds[start : start + size] < limits[rows.batch[start : start + size]])
        start, size = start + size, _LATER
        found = estimate(tables, configs, rows.at(k))
        better = np.flatnonzero(found.total_s < limits[rows.batch[k]])
        for index in better[np.argsort(found.total_s[better], kind="stable")].tolist():
            batch, time_s = int(rows.batch[k[index]]), float(found.total_s[index])
            if time_s >= best.limits_s[batch]:
                continue
            c = int(rows.candidate[k[index]])
            if c not in skeletons:
                skeletons[c] = _skeleton(configs, candidates, c, predecessors)
            layers = tuple(found.layers[index, : skeletons[c].num_stages].tolist())
            plan = Balanced(skeleton=skeletons[c], layers=layers, batch=batch, time_s=time_s)
            best.add(plan)
            taken.append(plan)
    return [plan for plan in best.plans if any(plan is new for new in taken)]


def _promising(
    tables: CostTables, configs: StageConfigs, candidates: Candidates, limits_s: Floats
) -> tuple[Rows, Floats]:
    """Candidates with numbers of micro-batches for which they may be below the limit, by bound, and these bounds."""
    loose = divisible_bounds(tables, configs, candidates.stages, candidates.num_stages)
    c, batch = np.nonzero((loose < limits_s) & _admitted(tables, configs, candidates))
    rows = Rows(stages=candidates.stages[c], num_stages=candidates.num_stages[c], batch=batch, candidate=c)
    bounds = memory_bounds(tables, configs, rows)
    open_ = np.flatnonzero(bounds < limits_s[batch])
    order = open_[np.argsort(bounds[open_], kind="stable")]
    return rows.at(order), bounds[order]


def _admitted(tables: CostTables, configs: StageConfigs, candidates: Candidates) -> Mask:
    """(C, B) numbers of micro-batches that a candidate may have: where the model has a micro-batch of its own, the most
    for which the replicas of the widest stage get that many samples."""
    own = tables.model.profile.micro_batch
    if own is None or len(tables.micro_batch) == 1:
        return np.ones(1, dtype=bool)
    widest = configs.dp[candidates.stages].max(axis=1)
    wanted = np.searchsorted(tables.micro_batch, own * widest)
    admitted: Mask = wanted[:, None] == np.arange(len(tables.micro_batch))
    return admitted


def _skeleton(configs: StageConfigs, candidates: Candidates, c: int, predecessors: Sequence[Skeleton]) -> Skeleton:
    count = int(candidates.num_stages[c])
    rows = candidates.stages[c, :count]
    before = predecessors[int(candidates.predecessor[c])].origin
    return Skeleton(
        gpus=candidates.replicas[rows] * configs.tp[rows].astype(np.int64)[:, None],
        degree=candidates.degree[rows],
        origin=tuple(before[k] if k >= 0 else None for k in candidates.origins[c, :count].tolist()),
        repeats=configs.repeats(rows),
    )
