"""PP-, DP- and TP-Expand (Suika section 3.2.2) of several plans at a time.

A plan is what its stages hold: GPUs per node, and a tensor degree. With R the GPUs that a plan may use and does not,

- PP-Expand: R becomes a new stage, at any position, with every tensor degree
- DP-Expand: R joins a stage and makes new replicas of its tensor degree
- TP-Expand: R joins a stage, all GPUs of which are grouped anew by another tensor degree

The last two are one: R joins a stage, which then has some tensor degree. Per node, what is no whole group stays idle.
In a run of stages that cost the same, changing one or another makes hardly a difference: only the first and the last
are changed, and those on nodes of R; new stages come between runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from stowplan.arrays import IntArray, Mask


# No slots: sums are cached in the instance.
@dataclass(frozen=True, kw_only=True, eq=False)
class Skeleton:
    """What the stages of a plan hold.

    Attributes
    ----------
    gpus
        (S, V) per node; whole groups only.
    degree
        (S,) index of the tensor degree.
    origin
        Stage of the base plan that each stage was, None for a new one.
    repeats
        (S,) whether the stage is known to cost what the one before it costs.
    """

    gpus: IntArray
    degree: IntArray
    origin: tuple[int | None, ...]
    repeats: Mask

    @property
    def num_stages(self) -> int:
        """S."""
        return len(self.origin)

    @cached_property
    def held(self) -> IntArray:
        """(V,) GPUs of all stages."""
        held: IntArray = self.gpus.sum(axis=0)
        return held

    @cached_property
    def sizes(self) -> list[int]:
        """GPUs of every stage."""
        sizes: list[int] = self.gpus.sum(axis=1).tolist()
        return sizes

    @cached_property
    def usual_stage(self) -> tuple[int, int]:
        """Index of the tensor degree and GPUs that most stages have."""
        shapes = list(zip(self.degree.tolist(), self.sizes, strict=True))
        return max(shapes, key=shapes.count)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """C plans made of Q stages.

    Attributes
    ----------
    replicas, degree
        (Q, V) replicas per node, (Q,) index of the tensor degree; row 0 has no replicas.
    stages, num_stages
        (C, S) rows of the stages, 0 behind the last one; (C,).
    origins
        (C, S) stage of the predecessor that each stage was, -1 for the new one.
    predecessor
        (C,) index of the plan that it comes from.
    """

    replicas: IntArray
    degree: IntArray
    stages: IntArray
    num_stages: IntArray
    origins: IntArray
    predecessor: IntArray


def merged(a: Candidates, b: Candidates, num_predecessors: int) -> Candidates:
    """Both; the predecessors of `b` stand behind the `num_predecessors` ones of `a`."""
    shift = len(a.replicas) - 1
    return Candidates(
        replicas=np.concatenate([a.replicas, b.replicas[1:]]),
        degree=np.concatenate([a.degree, b.degree[1:]]),
        stages=_stacked(a.stages, np.where(b.stages > 0, b.stages + shift, 0)),
        num_stages=np.concatenate([a.num_stages, b.num_stages]),
        origins=_stacked(a.origins, b.origins),
        predecessor=np.concatenate([a.predecessor, b.predecessor + num_predecessors]),
    )


def _stacked(a: IntArray, b: IntArray) -> IntArray:
    """Rows of both, filled up with 0."""
    rows = np.zeros((len(a) + len(b), max(a.shape[1], b.shape[1])), dtype=np.int64)
    rows[: len(a), : a.shape[1]] = a
    rows[len(a) :, : b.shape[1]] = b
    return rows


def expansions(
    plans: Sequence[Skeleton], available: IntArray, degrees: IntArray, most_stages: int, *, anew: bool = True
) -> Candidates:
    """All candidates that come from `plans` when `available` (V,) GPUs per node are there for each of them; without
    `anew` those with the stages and tensor degrees of these plans."""
    held = _Held.of(plans)
    size, num_degrees = held.degree.shape[1], len(degrees)
    rest = available - held.gpus.sum(axis=1)
    # Rows of a plan: its own stages, then every stage (and the new one) with R by every degree.
    own = held.gpus[:, :size] // degrees[held.degree][:, :, None]
    joined = (held.gpus + rest[:, None])[:, :, None, :] // degrees[:, None]
    replicas = np.concatenate([own, joined.reshape(len(plans), -1, len(available))], axis=1)
    of_degree = np.tile(np.arange(num_degrees), (len(plans), size + 1))
    degree = np.concatenate([held.degree, of_degree], axis=1)
    changes, insertions = _changes(held, own, joined, rest), _insertions(held, joined, most_stages)
    if not anew:
        changes &= (np.arange(num_degrees) == held.degree[..., None]).reshape(changes.shape)
        insertions[:] = False
    chosen = np.concatenate([changes, insertions], axis=1)
    predecessor, pick = np.nonzero(chosen)
    rows, origins = _templates(size, num_degrees)
    num_stages = held.num_stages[predecessor] + (pick >= size * num_degrees)
    present = np.arange(size + 1) < num_stages[:, None]
    stages = np.where(present, rows[pick] + (predecessor * replicas.shape[1])[:, None] + 1, 0)
    flat, flat_degree = replicas.reshape(-1, len(available)), degree.reshape(-1)
    uses = np.zeros(len(flat) + 1, dtype=bool)
    uses[stages] = True
    uses[0] = True
    return Candidates(
        replicas=np.concatenate([np.zeros_like(flat[:1]), flat[uses[1:]]]),
        degree=np.concatenate([np.zeros_like(flat_degree[:1]), flat_degree[uses[1:]]]),
        stages=(np.cumsum(uses) - 1)[stages],
        num_stages=num_stages,
        origins=origins[pick],
        predecessor=predecessor,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Held:
    """Several skeletons: `gpus` (P, S + 1, V), `degree` (P, S), `repeats` (P, S + 1), `num_stages` (P,)."""

    gpus: IntArray
    degree: IntArray
    repeats: Mask
    num_stages: IntArray

    @classmethod
    def of(cls, plans: Sequence[Skeleton]) -> "_Held":
        num_stages = np.array([plan.num_stages for plan in plans])
        size, num_nodes = int(num_stages.max()), plans[0].gpus.shape[1]
        gpus = np.zeros((len(plans), size + 1, num_nodes), dtype=np.int64)
        degree = np.zeros((len(plans), size), dtype=np.int64)
        repeats = np.zeros((len(plans), size + 1), dtype=bool)
        for p, plan in enumerate(plans):
            gpus[p, : plan.num_stages] = plan.gpus
            degree[p, : plan.num_stages] = plan.degree
            repeats[p, : plan.num_stages] = plan.repeats
        return cls(gpus=gpus, degree=degree, repeats=repeats, num_stages=num_stages)


def _changes(held: _Held, own: IntArray, joined: IntArray, rest: IntArray) -> Mask:
    """(P, S x T) stages that R joins, by degree: those that exist and change; inside a run, those on nodes of R."""
    size, num_degrees = held.degree.shape[1], joined.shape[2]
    there = np.arange(size) < held.num_stages[:, None]
    near = (held.gpus[:, :size] * rest[:, None] > 0).any(axis=-1)
    inside = held.repeats[:, :size] & held.repeats[:, 1:]
    same = (joined[:, :size] == own[:, :, None]).all(axis=-1) & (np.arange(num_degrees) == held.degree[..., None])
    chosen: Mask = joined[:, :size].any(axis=-1) & ~same & (there & (near | ~inside))[..., None]
    return chosen.reshape(len(own), -1)


def _insertions(held: _Held, joined: IntArray, most_stages: int) -> Mask:
    """(P, (S + 1) x T) positions of the new stage, by degree: up to the end, and not inside a run."""
    size, num_degrees = held.degree.shape[1], joined.shape[2]
    count = held.num_stages[:, None]
    there: Mask = np.asarray((np.arange(size + 1) <= count) & (count < most_stages) & ~held.repeats)
    some: Mask = np.asarray(joined[:, size].any(axis=-1))
    chosen = there[..., None] & some[:, None]
    return chosen.reshape(len(joined), (size + 1) * num_degrees)


@lru_cache(maxsize=256)
def _templates(size: int, num_degrees: int) -> tuple[IntArray, IntArray]:
    """Stages of a plan after every change, in the order (stage, degree), then (position of the new stage, degree):
    their rows among those of the plan, and the stages that they were (-1: new)."""
    rows, origins = [], []
    for s in range(size):
        for t in range(num_degrees):
            rows.append([*range(s), size + s * num_degrees + t, *range(s + 1, size), 0])
            origins.append([*range(size), -1])
    for position in range(size + 1):
        for t in range(num_degrees):
            rows.append([*range(position), size + size * num_degrees + t, *range(position, size)])
            origins.append([*range(position), -1, *range(position, size)])
    return np.array(rows), np.array(origins)
