"""The best of many candidates for every number of micro-batches.

Candidates come in the order of their lower bounds, and those whose bound is not below the time to beat are not looked
at: the result is that of looking at all of them. Where layers differ, bounds are estimates and layers take longer to
distribute: only the first ones are looked at.

What is chosen follows from the tables, the shapes of the candidates' stages and what is to be beaten, not from where
the stages sit. Jobs of one model come to the same choices again and again, in one event and from event to event; so the
tables remember them (`CostTables.choices`).
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.parallelism.incremental.bounds import divisible_bounds, may_beat
from models.parallelism.incremental.candidates import Candidates, Skeleton
from models.parallelism.incremental.configs import StageConfigs, StageShapes
from models.parallelism.incremental.estimate import estimate
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.tables import Choice, CostTables
from models.parallelism.incremental.terms import Rows
from stowplan.arrays import FloatArray, Mask

# Candidates that are looked at together: few first, since they tell which others are worth it (all, if layers differ).
_FIRST, _LATER = 128, 256
# A difference below this is rounding.
EQUAL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Balanced:
    """A skeleton with its layers, the index of its number of micro-batches, and the iteration time in seconds."""

    skeleton: Skeleton
    layers: tuple[int, ...]
    batch: int
    time_s: float


class Best:
    """The best known plan for every number of micro-batches, as far as it is within `tolerance` of the best of all.

    `limits_s` (B,): times to be below. `time_s`: the least. `within`: by which factor others may be slower.
    """

    def __init__(self, num_batches: int, tolerance: float) -> None:
        self.limits_s = np.full(num_batches, np.inf)
        self.within = 1.0 + tolerance
        self.time_s = np.inf
        self._plans: dict[int, Balanced] = {}

    @property
    def text(self) -> bytes:
        """What is to be beaten."""
        return self.limits_s.tobytes() + np.array([self.time_s, self.within]).tobytes()

    @property
    def plans(self) -> list[Balanced]:
        """All of them, fastest first; of equally fast ones, the one with the larger micro-batches."""
        kept = [plan for plan in self._plans.values() if plan.time_s <= self.time_s * self.within]
        equal = self.time_s * (1.0 + EQUAL)
        return sorted(kept, key=lambda plan: (plan.time_s if plan.time_s > equal else 0.0, -plan.batch))

    def copy(self, of: "Callable[[Balanced], Balanced]" = lambda plan: plan) -> "Best":
        """Another one that knows the same, or what `of` makes of each plan."""
        found = Best(len(self.limits_s), 0.0)
        found.limits_s, found.within, found.time_s = self.limits_s.copy(), self.within, self.time_s
        found._plans = {batch: of(plan) for batch, plan in self._plans.items()}
        return found

    def add(self, plan: Balanced) -> None:
        """Take a plan in place of the one with its number of micro-batches."""
        self._plans[plan.batch] = plan
        self.time_s = min(self.time_s, plan.time_s)
        self.limits_s[plan.batch] = plan.time_s * (1.0 - EQUAL)
        np.minimum(self.limits_s, self.time_s * self.within, out=self.limits_s)

    def those_of(self, taken: Sequence[Balanced]) -> list[Balanced]:
        """Plans of some that are still there."""
        return [plan for plan in self.plans if any(plan is new for new in taken)]


def improve(
    best: Best, tables: CostTables, landscape: Landscape, candidates: Candidates, predecessors: Sequence[Skeleton]
) -> list[Balanced]:
    """Take candidates that are better than what is known; return those that were taken and are still there."""
    if not len(candidates.stages):
        return []
    shapes = StageShapes.of(tables, landscape, candidates.replicas, candidates.degree)
    key = _key(best, shapes, candidates)
    known = tables.choices.get(key)
    skeletons: dict[int, Skeleton] = {}
    taken: list[Balanced] = []
    chosen: list[Choice] = []
    for choice in _choices(best, tables, shapes, candidates) if known is None else known:
        c, batch, time_s, layers = choice
        if c not in skeletons:
            skeletons[c] = _skeleton(shapes, candidates, c, predecessors)
        plan = Balanced(skeleton=skeletons[c], layers=layers, batch=batch, time_s=time_s)
        best.add(plan)
        taken.append(plan)
        chosen.append(choice)
    if known is None:
        tables.remember(key, chosen)
    return best.those_of(taken)


def _key(best: Best, shapes: StageShapes, candidates: Candidates) -> bytes:
    """What tells apart the questions to tables."""
    size = np.array(candidates.stages.shape).tobytes()
    parts = (size, candidates.num_stages.tobytes(), best.text, shapes.text_of(candidates.stages))
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def _choices(best: Best, tables: CostTables, shapes: StageShapes, candidates: Candidates) -> Iterator[Choice]:
    """Candidates that are better than what is known, which changes with every one that is taken."""
    configs = StageConfigs.of_shapes(tables, shapes)
    rows = _by_bound(tables, configs, candidates, best.limits_s)
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
            c, batch, time_s = int(chunk.candidate[k]), int(chunk.batch[k]), float(found.total_s[k])
            if time_s < best.limits_s[batch]:
                yield c, batch, time_s, tuple(found.layers[k, : candidates.num_stages[c]].tolist())
        if not tables.units.equal:
            break
        size = _LATER


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


def _skeleton(shapes: StageShapes, candidates: Candidates, c: int, predecessors: Sequence[Skeleton]) -> Skeleton:
    count = int(candidates.num_stages[c])
    rows = candidates.stages[c, :count]
    before = predecessors[int(candidates.predecessor[c])].origin
    return Skeleton(
        gpus=candidates.replicas[rows] * shapes.tp[rows].astype(np.int64)[:, None],
        degree=candidates.degree[rows],
        origin=tuple(before[k] if k >= 0 else None for k in candidates.origins[c, :count].tolist()),
        repeats=shapes.repeats(rows),
    )
