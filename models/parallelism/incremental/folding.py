"""Other ways to fold the GPUs of a plan into stages: fewer, longer stages, or more and shorter ones.

The expansions of Algorithm 1 only ever add stages and replicas. A job that has grown may want the halves of a stage as
two stages, which allows smaller micro-batches, or two stages as one, which shortens the pipeline. Halves have half the
replicas or half the tensor degree, joined stages the replicas of both or twice the tensor degree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from models.parallelism.incremental.candidates import Candidates, Skeleton
from models.parallelism.incremental.landscape import Integers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One stage of a skeleton: GPUs per node (V,), index of the tensor degree, stage of the base plan."""

    gpus: Integers
    degree: int
    origin: int | None


def foldings(plan: Skeleton, degrees: Integers) -> Iterator[Skeleton]:
    """Plans with one stage cut, all of the widest cut, two neighbours joined, or all neighbours joined two by two.

    Of stages that cost the same, only the first is cut, and only the ends of a run of them are joined.
    """
    parts = parts_of(plan)
    repeats = [*plan.repeats.tolist(), False]
    dp = [size // int(degrees[part.degree]) for size, part in zip(plan.sizes, parts, strict=True)]
    for lower in (0, 1):
        halves = [_halves(part, part.degree - lower, degrees) for part in parts]
        for s, cut in enumerate(halves):
            if cut and not repeats[s]:
                yield skeleton_of([*parts[:s], *cut, *parts[s + 1 :]])
        widest = [
            cut if cut and count == max(dp) else [part] for part, cut, count in zip(parts, halves, dp, strict=True)
        ]
        if sum(len(group) > 1 for group in widest) > 1:
            yield skeleton_of([part for group in widest for part in group])
    for higher in (0, 1):
        pairs = [_joined(a, b, higher, degrees) for a, b in pairwise(parts)]
        for s, pair in enumerate(pairs):
            if pair and not (repeats[s] and repeats[s + 1] and repeats[s + 2]):
                yield skeleton_of([*parts[:s], *pair, *parts[s + 2 :]])
        if sum(len(pair) for pair in pairs) > 1:
            yield skeleton_of(_two_by_two(parts, pairs))


def relayouts(available: Integers, degrees: Integers, most_stages: int, *, uneven: bool) -> Iterator[Skeleton]:
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


def as_candidates(plans: Sequence[Skeleton], degrees: Integers) -> Candidates:
    """The plans themselves as candidates; each is its own predecessor."""
    num_stages = np.array([plan.num_stages for plan in plans])
    position = np.arange(int(num_stages.max()))
    present = position < num_stages[:, None]
    before = np.cumsum(num_stages) - num_stages
    gpus = np.concatenate([plan.gpus for plan in plans])
    degree = np.concatenate([plan.degree for plan in plans])
    return Candidates(
        replicas=np.concatenate([np.zeros_like(gpus[:1]), gpus // degrees[degree][:, None]]),
        degree=np.concatenate([[0], degree]),
        stages=np.where(present, before[:, None] + position + 1, 0),
        num_stages=num_stages,
        origins=np.where(present, position, -1),
        predecessor=np.arange(len(plans)),
    )


def _halves(part: Part, degree: int, degrees: Integers) -> list[Part]:
    """The stage in two halves, node by node, with this degree; the first keeps the origin. Nothing where a half would
    be empty."""
    if degree < 0:
        return []
    groups = part.gpus // degrees[degree]
    through = np.cumsum(groups)
    if through[-1] < 2:
        return []
    first = np.clip((through[-1] + 1) // 2 - (through - groups), 0, groups)
    return [
        Part(gpus=first * degrees[degree], degree=degree, origin=part.origin),
        Part(gpus=(groups - first) * degrees[degree], degree=degree, origin=None),
    ]


def _joined(a: Part, b: Part, higher: int, degrees: Integers) -> list[Part]:
    """Two stages of one degree as one, with that degree or the next `higher` one; nothing where that makes no group."""
    degree = a.degree + higher
    if a.degree != b.degree or degree >= len(degrees):
        return []
    gpus = (a.gpus + b.gpus) // degrees[degree] * degrees[degree]
    origin = a.origin if a.origin is not None else b.origin
    return [Part(gpus=gpus, degree=degree, origin=origin)] if gpus.any() else []


def _two_by_two(parts: Sequence[Part], pairs: Sequence[Sequence[Part]]) -> list[Part]:
    """Stages joined with their right neighbours where they can be, from the left."""
    result: list[Part] = []
    s = 0
    while s < len(parts):
        joined = pairs[s] if s < len(pairs) else ()
        result += joined or parts[s : s + 1]
        s += 2 if joined else 1
    return result
