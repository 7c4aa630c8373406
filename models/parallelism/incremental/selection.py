"""The best of many candidates for every number of micro-batches.

Candidates come in the order of their lower bounds, and those whose bound is not below the time to beat are not looked
at: the result is that of looking at all of them. Where layers differ, bounds are estimates and layers take longer to
distribute: only the first ones are looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.parallelism.incremental.bounds import divisible_bounds, may_beat
from models.parallelism.incremental.candidates import Candidates, Skeleton
from models.parallelism.incremental.configs import StageConfigs
from models.parallelism.incremental.estimate import estimate
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.tables import CostTables
from models.parallelism.incremental.terms import Rows
from stowplan.arrays import FloatArray, Mask

# Candidates that are looked at together: few first, since they tell which others are worth it (all, if layers differ).
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
    """The best known plan for every number of micro-batches, as far as it is within `tolerance` of the best of all.

    `limits_s` (B,): times to be below.
    """

    def __init__(self, num_batches: int, tolerance: float) -> None:
        self.limits_s = np.full(num_batches, np.inf)
        self._within = 1.0 + tolerance
        self._plans: dict[int, Balanced] = {}
        self._time_s = np.inf

    @property
    def plans(self) -> list[Balanced]:
        """All of them, fastest first; of equally fast ones, the one with the larger micro-batches."""
        kept = [plan for plan in self._plans.values() if plan.time_s <= self._time_s * self._within]
        equal = self._time_s * (1.0 + _EQUAL)
        return sorted(kept, key=lambda plan: (plan.time_s if plan.time_s > equal else 0.0, -plan.batch))

    def add(self, plan: Balanced) -> None:
        """Take a plan in place of the one with its number of micro-batches."""
        self._plans[plan.batch] = plan
        self._time_s = min(self._time_s, plan.time_s)
        self.limits_s[plan.batch] = plan.time_s * (1.0 - _EQUAL)
        np.minimum(self.limits_s, self._time_s * self._within, out=self.limits_s)


def improve(
    best: Best, tables: CostTables, landscape: Landscape, candidates: Candidates, predecessors: Sequence[Skeleton]
) -> list[Balanced]:
    """Take candidates that are better than what is known; return those that were taken and are still there."""
    if not len(candidates.stages):
        return []
    configs = StageConfigs.of(tables, landscape, candidates.replicas, candidates.degree)
    rows = _by_bound(tables, configs, candidates, best.limits_s)
    skeletons: dict[int, Skeleton] = {}
    taken: list[Balanced] = []
    size = _FIRST
    while len(rows.batch):
        # Limits fall on the way.
        rows = rows.at(np.flatnonzero(may_beat(tables, configs, rows, best.limits_s[rows.batch])))
        if not len(rows.batch):
            break
        chunk, rows = rows.at(np.s_[:size]), rows.at(np.s_[size:])
        found = estimate(tables, configs, chunk)
        better = np.flatnonzero(found.total_s < best.limits_s[chunk.batch])
        for k in better[np.argsort(found.total_s[better], kind="stable")].tolist():
            batch, time_s = int(chunk.batch[k]), float(found.total_s[k])
            if time_s >= best.limits_s[batch]:
                continue
            c = int(chunk.candidate[k])
            if c not in skeletons:
                skeletons[c] = _skeleton(configs, candidates, c, predecessors)
            layers = tuple(found.layers[k, : skeletons[c].num_stages].tolist())
            plan = Balanced(skeleton=skeletons[c], layers=layers, batch=batch, time_s=time_s)
            best.add(plan)
            taken.append(plan)
        if not tables.units.equal:
            break
        size = _LATER
    return [plan for plan in best.plans if any(plan is new for new in taken)]


def _by_bound(tables: CostTables, configs: StageConfigs, candidates: Candidates, limits_s: FloatArray) -> Rows:
    """Candidates with numbers of micro-batches whose bound is below the limit, lowest bound first."""
    bounds = divisible_bounds(tables, configs, candidates.stages, candidates.num_stages)
    c, batch = np.nonzero((bounds < limits_s) & _admitted(tables, configs, candidates))
    order = np.argsort(bounds[c, batch], kind="stable")
    c, batch = c[order], batch[order]
    return Rows(stages=candidates.stages[c], num_stages=candidates.num_stages[c], batch=batch, candidate=c)


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
