"""Other ways to fold the GPUs of a plan into stages: fewer, longer stages, or more and shorter ones.

The expansions of Algorithm 1 only ever add stages and replicas. A job that has grown may want the halves of a stage as
two stages, which allows smaller micro-batches, or two stages as one, which shortens the pipeline. Halves have half the
replicas or half the tensor degree, joined stages the replicas of both or twice the tensor degree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.parallelism.incremental.candidates import Candidates, Skeleton
from stowplan.arrays import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One stage of a skeleton: GPUs per node (V,), index of the tensor degree, stage of the base plan."""

    gpus: IntArray
    degree: int
    origin: int | None


def foldings(plan: Skeleton, degrees: IntArray) -> Iterator[Skeleton]:
    """The plan with its widest stages cut in two, and with neighbours of one degree joined two by two, each with the
    degrees as they are and with half, or twice, the degree."""
    parts = parts_of(plan)
    dp = [size // int(degrees[part.degree]) for size, part in zip(plan.sizes, parts, strict=True)]
    for lower in (0, 1):
        cut = [
            _halves(part, part.degree - lower, degrees) if count == max(dp) else [part]
            for part, count in zip(parts, dp, strict=True)
        ]
        if any(len(halves) > 1 for halves in cut):
            yield skeleton_of([part for halves in cut for part in halves])
    for higher in (0, 1):
        joined = _two_by_two(parts, higher, degrees)
        if len(joined) < len(parts):
            yield skeleton_of(joined)


def relayouts(available: IntArray, degrees: IntArray, most_stages: int, *, uneven: bool) -> Iterator[Skeleton]:
    """Plans with one tensor degree that deal all whole groups (V,) to their stages as evenly as it goes, node by node;
    without `uneven`, only those with as many in every stage."""
    for degree, tp in enumerate(degrees.tolist()):
        through = np.cumsum(available // tp)
        groups = int(through[-1])
        for pp in range(1, min(groups, most_stages) + 1):
            if uneven or groups % pp == 0:
                bounds = np.arange(pp + 1) * groups // pp
                upto = np.clip(through, bounds[:-1, None], bounds[1:, None])
                gpus = np.diff(upto, axis=1, prepend=bounds[:-1, None]) * tp
                yield skeleton_of([Part(gpus=row, degree=degree, origin=None) for row in gpus])


def parts_of(plan: Skeleton) -> list[Part]:
    """The stages of a skeleton."""
    return [
        Part(gpus=gpus, degree=degree, origin=origin)
        for gpus, degree, origin in zip(plan.gpus, plan.degree.tolist(), plan.origin, strict=True)
    ]


def skeleton_of(parts: Sequence[Part]) -> Skeleton:
    """Skeleton of some stages."""
    return Skeleton(
        gpus=np.array([part.gpus for part in parts]),
        degree=np.array([part.degree for part in parts]),
        origin=tuple(part.origin for part in parts),
        repeats=np.zeros(len(parts), dtype=bool),
    )


def as_candidates(plans: Sequence[Skeleton], degrees: IntArray) -> Candidates:
    """The plans themselves as candidates; each is its own predecessor."""
    num_stages = np.array([plan.num_stages for plan in plans])
    position = np.arange(int(num_stages.max()))
    present = position < num_stages[:, None]
    before = np.cumsum(num_stages) - num_stages
    degree = np.concatenate([plan.degree for plan in plans])
    replicas = np.zeros((1 + len(degree), plans[0].gpus.shape[1]), dtype=np.int64)
    for plan, first in zip(plans, 1 + before, strict=True):
        # Dividing by one number is faster than by many (5.7 and 2.6 s for 32,000 stages on 2,048 nodes).
        alike = (plan.degree == plan.degree[0]).all()
        tp = degrees[plan.degree[0]] if alike else degrees[plan.degree][:, None]
        replicas[first : first + plan.num_stages] = plan.gpus // tp
    return Candidates(
        replicas=replicas,
        degree=np.concatenate([[0], degree]),
        stages=np.where(present, before[:, None] + position + 1, 0),
        num_stages=num_stages,
        origins=np.where(present, position, -1),
        predecessor=np.arange(len(plans)),
    )


def _halves(part: Part, degree: int, degrees: IntArray) -> list[Part]:
    """The stage in two halves, node by node, with this degree; the first keeps the origin. The stage itself where a
    half would be empty."""
    groups = part.gpus // degrees[degree] if degree >= 0 else np.zeros_like(part.gpus)
    through = np.cumsum(groups)
    if through[-1] < 2:
        return [part]
    first = np.clip((through[-1] + 1) // 2 - (through - groups), 0, groups)
    return [
        Part(gpus=first * degrees[degree], degree=degree, origin=part.origin),
        Part(gpus=(groups - first) * degrees[degree], degree=degree, origin=None),
    ]


def _two_by_two(parts: Sequence[Part], higher: int, degrees: IntArray) -> list[Part]:
    """Stages joined with their right neighbours where these have the same degree and whole groups come out, from the
    left; joined ones have a degree that is `higher` places up."""
    result: list[Part] = []
    s = 0
    while s < len(parts):
        part, degree = parts[s], parts[s].degree + higher
        if s + 1 < len(parts) and parts[s + 1].degree == part.degree and degree < len(degrees):
            gpus = (part.gpus + parts[s + 1].gpus) // degrees[degree] * degrees[degree]
            if gpus.any():
                origin = part.origin if part.origin is not None else parts[s + 1].origin
                result.append(Part(gpus=gpus, degree=degree, origin=origin))
                s += 2
                continue
        result.append(part)
        s += 1
    return result
