"""One grid: partitions, GPU assignment, intra-stage parallelism, Pareto frontier, proxy plan (Arena section 3.3).

    b_comp  Eq. 3, see `partition`
    l_comm  Eq. 4: (B - 1) max_j c_j + sum_j c_j + sum_j r_j

c_j: tensor-parallel all-reduces of stage j for one micro-batch; r_j: its gradient reduction, once per iteration, as far
as the backward pass does not hide it. The paper counts both alike; but gradients are reduced once, however many the
micro-batches are, so that r_j is in the second sum only. P2P is left out, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from models.parallel_plan import ParallelPlan
from models.parallelism.grid.choices import Criterion
from models.parallelism.grid.frontier import pareto_frontier, reduced
from models.parallelism.grid.partition import gpu_sets, normalised, odd_part
from models.parallelism.grid.space import Pipelines, PlanSpace
from models.parallelism.layout import build_plan, packs, stage_places
from models.parallelism.micro_batches import micro_batch_counts
from models.performance.iteration.formulas import pipeline_s
from stowplan.arrays import FloatArray, IntArray, Mask

Rows = IntArray | slice
Number = TypeVar("Number", np.float64, np.int64, np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan that is not built yet: layers, (dp, tp) of every stage; `seconds` by the performance model."""

    layers: tuple[int, ...]
    degrees: tuple[tuple[int, int], ...]
    num_micro_batches: int
    computation_bias: float
    communication_load_s: float
    seconds: float

    def plan(self, space: PlanSpace) -> ParallelPlan:
        """Build the plan on virtual nodes."""
        places = stage_places(tuple(dp * tp for dp, tp in self.degrees), space.gpus_per_node)
        assert places is not None  # noqa: S101 - only sizes that pack are candidates
        return build_plan(
            layers=self.layers,
            degrees=self.degrees,
            places=places,
            gpu_type=space.gpu_type,
            micro_batch=space.model.profile.global_batch // self.num_micro_batches,
            num_micro_batches=self.num_micro_batches,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Closest:
    """The partition that comes closest to fitting into memory."""

    layers: tuple[int, ...]
    sizes: tuple[int, ...]
    num_micro_batches: int
    needed_bytes: float


@dataclass(frozen=True, kw_only=True, eq=False)
class GridSearch:
    """Search of one grid.

    size_index: index of the GPUs of every stage in tables (s, P); bias: b_comp (P,); num_micro_batches: in the order in
    which they are tried.
    """

    space: PlanSpace
    pipelines: Pipelines
    size_index: IntArray
    bias: FloatArray
    num_micro_batches: tuple[int, ...]
    _fit: dict[int, IntArray] = field(default_factory=dict)

    @classmethod
    def of(
        cls, space: PlanSpace, num_gpus: int, num_stages: int, num_micro_batches: Sequence[int] | None
    ) -> "GridSearch | None":
        """The grid of `num_gpus` and `num_stages`; None when no sizes of stages add up and pack into nodes."""
        sets = packing_sets(num_gpus, num_stages, space.gpus_per_node)
        if not len(sets):
            return None
        pipelines = space.pipelines(num_stages)
        nearest, bias = normalised(pipelines.descending * num_gpus, sets)
        of_sets = space.degrees.index_of(sets)
        profile = space.model.profile
        if num_micro_batches is None:
            replicas = np.unique(space.degrees.dp[space.degrees.possible])
            num_micro_batches = micro_batch_counts(profile, num_stages, replicas.tolist())
        return cls(
            space=space,
            pipelines=pipelines,
            size_index=of_sets.reshape(-1).take(nearest * num_stages + pipelines.rank),
            bias=bias,
            num_micro_batches=tuple(count for count in num_micro_batches if profile.global_batch % count == 0),
        )

    def frontier(self, threshold: int) -> tuple[IntArray, int]:
        """Pareto-optimal partitions, the proxy plan's first, and their number of micro-batches.

        It is the first number, unless memory keeps partitions of less bias out that fit with a later one. Fewer
        micro-batches need more memory and come into question only when nothing fits with more. Without partitions when
        nothing ever fits.
        """
        best, least = None, np.inf
        for count in self.num_micro_batches:
            if best is not None and count < best:
                continue
            bias = self.bias[self._fitting(count)].min(initial=np.inf)
            if bias < least:
                best, least = count, bias
            if least == self.bias.min():
                break
        if best is None:
            return np.empty(0, dtype=np.int64), 1
        return reduced(self._pareto(best), self.pipelines.bounds, threshold), best

    def candidates(self, rows: IntArray, num_micro_batches: int, criterion: Criterion) -> list[Candidate]:
        """Plans of the partitions `rows`, as far as they fit."""
        (seconds,) = self._seconds((num_micro_batches,), rows, criterion)
        return self._candidates(rows, num_micro_batches, criterion, seconds)

    def refined(self, rows: IntArray) -> Candidate | None:
        """The fastest plan with the partitions `rows`: any number of micro-batches, degrees by least time.

        Where memory kept partitions of less bias out of `rows`, the frontiers of all numbers of micro-batches count.
        """
        if not rows.size:
            return None
        counts = tuple(sorted(self.num_micro_batches))
        if self.bias[rows[0]] > self.bias.min():
            rows = np.unique(np.concatenate([rows, *(self._pareto(count) for count in counts)]))
        seconds = self._seconds(counts, rows, Criterion.TIME)
        b, k = np.unravel_index(seconds.argmin(), seconds.shape)
        return next(iter(self._candidates(rows[k : k + 1], counts[b], Criterion.TIME, seconds[b, k : k + 1])), None)

    def sizes(self, row: int) -> IntArray:
        """GPUs of every stage of a partition."""
        return np.asarray(self.space.degrees.sizes[self.size_index[:, row]])

    def closest(self) -> Closest | None:
        """What needs least memory, of all partitions and numbers of micro-batches; None when no batch divides."""
        found = []
        for count in self.num_micro_batches:
            needed = self._gather(self.pipelines.operators.least_bytes(count)).max(axis=1)
            row = int(needed.argmin())
            found.append((float(needed[row]), count, row))
        needed_bytes, count, row = min(found, default=(np.inf, 1, 0))
        if not np.isfinite(needed_bytes):
            return None
        return Closest(
            layers=self.pipelines.layers(row),
            sizes=tuple(self.sizes(row).tolist()),
            num_micro_batches=count,
            needed_bytes=needed_bytes,
        )

    def _pareto(self, num_micro_batches: int) -> IntArray:
        """The whole frontier."""
        fitting = self._fitting(num_micro_batches)
        if not fitting.size:
            return fitting
        every = fitting.size == self.bias.size
        load = self._communication_load(num_micro_batches, slice(None) if every else fitting, Criterion.COMMUNICATION)
        return fitting[pareto_frontier(self.bias[fitting], load)]

    def _fitting(self, num_micro_batches: int) -> IntArray:
        """Partitions whose stages all fit."""
        if num_micro_batches not in self._fit:
            (fits,) = self._fits((num_micro_batches,), slice(None), Criterion.COMMUNICATION)
            self._fit[num_micro_batches] = np.flatnonzero(fits)
        return self._fit[num_micro_batches]

    @cached_property
    def _flat(self) -> IntArray:
        """Index of every stage into the flat (Q, G) axes of tables (s, P)."""
        return self.pipelines.stages * len(self.space.degrees.sizes) + self.size_index

    def _gather(self, values: npt.NDArray[Number], rows: Rows = slice(None)) -> npt.NDArray[Number]:
        """Entries of a table (..., Q, G) for the stages of the partitions `rows`, (..., R, s)."""
        flat = values.reshape(*values.shape[:-2], -1).take(self._flat[:, rows], axis=-1)
        return np.asarray(np.swapaxes(flat, -1, -2))

    def _communication_load(self, num_micro_batches: int, rows: Rows, criterion: Criterion) -> FloatArray:
        """l_comm (R,) of partitions that fit."""
        choices = self.pipelines.operators.choices((num_micro_batches,), criterion)
        (communication,), (once,) = (self._gather(part, rows) for part in (choices.communication_s, choices.once_s))
        repeated = (num_micro_batches - 1) * communication.max(axis=1)
        return np.asarray(repeated + communication.sum(axis=1) + once.sum(axis=1))

    def _seconds(self, counts: tuple[int, ...], rows: Rows, criterion: Criterion) -> FloatArray:
        """Iteration time (B, R) by the performance model; infinite where a stage does not fit."""
        choices = self.pipelines.operators.choices(counts, criterion)
        warm_up, steady, extra = pipeline_s(
            self._gather(choices.forward_s, rows),
            self._gather(choices.backward_s, rows),
            self._gather(choices.extra_s, rows),
            np.array(counts, dtype=np.float64)[:, None],
        )
        return np.where(self._fits(counts, rows, criterion), warm_up + steady + extra, np.inf)

    def _fits(self, counts: tuple[int, ...], rows: Rows, criterion: Criterion) -> Mask:
        """Whether all stages fit (B, R), and, where the job fixes its micro-batch, the largest stage has it."""
        choices = self.pipelines.operators.choices(counts, criterion)
        fits = self._gather(choices.fits, rows).all(axis=-1)
        profile = self.space.model.profile
        if profile.micro_batch is None:
            return np.asarray(fits)
        dp = self.space.degrees.dp[self.size_index[:, rows].T, self._gather(choices.option, rows)].max(axis=-1)
        return np.asarray(fits & (dp * profile.micro_batch * np.array(counts)[:, None] == profile.global_batch))

    def _candidates(
        self, rows: IntArray, num_micro_batches: int, criterion: Criterion, seconds: FloatArray
    ) -> list[Candidate]:
        """Plans of the partitions `rows` whose seconds (R,) are finite."""
        rows, seconds = rows[np.isfinite(seconds)], seconds[np.isfinite(seconds)]
        if not rows.size:
            return []
        load = self._communication_load(num_micro_batches, rows, criterion)
        (options,) = self._gather(self.pipelines.operators.choices((num_micro_batches,), criterion).option, rows)
        sizes = self.size_index[:, rows].T
        return [
            Candidate(
                layers=self.pipelines.layers(row),
                degrees=tuple(self.space.degrees.degrees(g, t) for g, t in zip(*degrees, strict=True)),
                num_micro_batches=num_micro_batches,
                computation_bias=bias,
                communication_load_s=of_row,
                seconds=time_s,
            )
            for row, degrees, bias, of_row, time_s in zip(
                rows.tolist(),
                zip(sizes.tolist(), options.tolist(), strict=True),
                self.bias[rows].tolist(),
                load.tolist(),
                seconds.tolist(),
                strict=True,
            )
        ]


@lru_cache(maxsize=1024)
def packing_sets(num_gpus: int, num_stages: int, gpus_per_node: int) -> IntArray:
    """Sets of stage sizes that add up to n and pack into nodes."""
    sets = gpu_sets(num_gpus, num_stages)
    powers = (sets & (sets - 1)) == 0
    if odd_part(gpus_per_node) == 1 and powers.all():
        return sets
    return sets[[packs(tuple(sizes), gpus_per_node) for sizes in sets.tolist()]]
