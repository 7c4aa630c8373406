r"""Layers of equal stages and what each of them recomputes, chosen together: exact, in polynomial time.

Sets
  i            stages 0..p-1 of equal degrees, in order; N micro-batches
  (a,b)        layers a..b-1 of a stage, at most `most_layers` of them
Data
  f(a,b)       forward pass of a micro-batch in seconds: a sum over the layers, whatever is recomputed
  b_i(a,b)     the least backward pass of all recomputations that fit beside what stage i has in flight
  e_i(a,b)     what the last gradients leave to be done then

What is minimised is `formulas.pipeline_s`, sum (f + b) + (N - 1) max (f + b) + max_i (e_i - sum_{j<i} b_j). With

    G_i(k) = min over a of max(G_{i-1}(a), e_i(a,k)) + b_i(a,k)        G_{-1}(0) = 0

over the (a,k) whose f + b is at most M, G_{p-1}(L) is the least sum of backward passes and of the last term, so that
F + G_{p-1}(L) + (N - 1) M, F the sum of all forward passes, is the least time of plans whose slowest stage takes M. It
is one of the times of stages: of these, the least that leads to a plan and all larger ones that may still be better are
looked at.

Where stages are cut into v parts, the bubble is v times shorter: F and b are divided by v, and M counts N - 1/v times.
That is the time that `even` ranks by (with a last term that is less hidden), and no more than an order: what such a
plan takes, the schedule says.

Up to ZeRO 1 no other recomputation of a stage is better than the least backward pass: a backward pass that is longer by
d hides d of the reduction at most. From ZeRO 2 on, where every micro-batch hides some, this is a choice, as in
`recomputation`. Sends are not part of it. `recomputation_mip` is the program of the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from models.parallelism.grid.degrees import DegreeTable
from models.parallelism.grid.stage_table import Recomputation, StageTable
from models.parallelism.recomputation import recomputations
from models.performance.iteration.formulas import pipeline_s, scaling
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.shares import SUMS
from models.pipeline_schedule import in_flight
from models.transformer import Checkpointing
from stowplan.arrays import FloatArray, IntArray, Mask

# Slowest stages that are looked at together.
_TOGETHER = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class JointStages:
    """Layers of every stage, and what it recomputes (None: what the job's model says). `seconds`: of an iteration,
    by this formula; no other layers and recomputations take less (from ZeRO 2 on: no other layers)."""

    layers: tuple[int, ...]
    recomputation: tuple[Recomputation, ...] | None
    seconds: float


# No slots: what is known of rows is cached in the instance.
@dataclass(frozen=True, kw_only=True, eq=False)
class LayerChoices:
    """All layers that the stages of a pipeline may have, with all that they may recompute.

    Attributes
    ----------
    table
        Rows: layers of a stage (of those that cost the same one alone), and what it recomputes.
    kind
        (L + 1, n) what the last m + 1 layers before a bound cost, by number; -1 where no stage has them.
    rows
        (K, C) rows of every kind, the last one repeated where it has fewer than others.
    """

    table: StageTable
    num_stages: int
    parts: int
    kind: IntArray
    rows: IntArray

    @classmethod
    def of(
        cls,
        model: PerformanceModel,
        gpu_type: str,
        degrees: DegreeTable,
        num_stages: int,
        most_layers: int,
        *,
        by_stage: bool,
        parts: int = 1,
    ) -> "LayerChoices":
        """Choices of stages with at most so many layers each, cut into parts; not `by_stage`: all recompute what the
        job's model says."""
        most = min(most_layers, model.profile.num_layers - parts * (num_stages - 1))
        kinds, intervals = _kinds(model, most, parts, by_stage=by_stage)
        options = [[*recomputations(b - a, parts)] if by_stage else [None] for a, b in intervals]
        counts = np.array([len(of_kind) for of_kind in options])
        of_row = np.repeat(np.arange(len(intervals)), counts)
        every = [one for of_kind in options for one in of_kind if one is not None]
        within = np.minimum(np.arange(counts.max()), counts[:, None] - 1)
        return cls(
            table=StageTable(
                model=model,
                gpu_type=gpu_type,
                intervals=tuple(intervals[k] for k in of_row.tolist()),
                degrees=degrees,
                recomputation=tuple(every) if by_stage else None,
            ),
            num_stages=num_stages,
            parts=parts,
            kind=kinds,
            rows=(np.cumsum(counts) - counts)[:, None] + within,
        )

    def optimum(self, num_micro_batches: int, column: int) -> JointStages | None:
        """The stages of least time with so many micro-batches and the tensor degree of a column; None: nothing fits."""
        if num_micro_batches not in self._known:
            self._known[num_micro_batches] = self._of_rows(num_micro_batches)
        times, every = self._known[num_micro_batches]
        (forward, backward, extra), fits = times[:, :, column], every[:, :, column]
        at = np.where(fits, backward, np.inf)[:, self.rows].argmin(axis=-1)
        row = self.rows[np.arange(len(self.rows)), at]
        lines = _Lines(
            backward=np.where(np.take_along_axis(fits, row, axis=1), backward[row], np.inf),
            forward=forward[row],
            extra=extra[row],
            kind=self.kind,
            num_micro_batches=num_micro_batches,
            parts=self.parts,
        )
        bounds = lines.best_bounds()
        if bounds is None:
            return None
        lengths = np.diff(bounds)
        chosen = row[np.arange(self.num_stages), self.kind[bounds[1:], lengths - 1]]
        seconds = lines.seconds(forward[chosen], backward[chosen], extra[chosen])
        num_gpus = self.num_stages * int(self.table.degrees.sizes[0])
        found = self.table.recomputation
        return JointStages(
            layers=tuple(lengths.tolist()),
            recomputation=None if found is None else tuple(found[k] for k in chosen.tolist()),
            seconds=float(seconds * scaling(num_gpus, self.table.model.coefficients.scale_loss)),
        )

    @cached_property
    def _known(self) -> dict[int, tuple[FloatArray, Mask]]:
        return {}

    def _of_rows(self, num_micro_batches: int) -> tuple[FloatArray, Mask]:
        """Forward and backward pass and what is left behind the last one, of all rows and tensor degrees (3, I, T), and
        where they fit, (p, I, T)."""
        costs = self.table.costs(num_micro_batches)
        behind = [in_flight(self.num_stages, i, self.parts) for i in range(self.num_stages)]
        fits = self.table.fits(self.table.memory_bytes(num_micro_batches, behind))
        return np.stack([*costs.computing_s[:2], costs.once_s + costs.optimizer_s])[:, :, 0], fits[:, :, 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Lines:
    """Times of every stage with layers of every kind, (p, K) each, infinite where nothing fits; `kind`: see
    `LayerChoices`."""

    backward: FloatArray
    forward: FloatArray
    extra: FloatArray
    kind: IntArray
    num_micro_batches: int
    parts: int

    def seconds(self, forward_s: FloatArray, backward_s: FloatArray, extra_s: FloatArray) -> float:
        """Time of stages, (p,) each."""
        warm_up, _, extra = pipeline_s(forward_s / self.parts, backward_s / self.parts, extra_s, 1.0)
        slowest = (forward_s + backward_s).max()
        return float(warm_up + self._steady * slowest + extra)

    @property
    def _steady(self) -> float:
        """What the slowest stage counts beside the passes of all stages."""
        return self.num_micro_batches - 1.0 / self.parts

    @cached_property
    def _both(self) -> FloatArray:
        return self.forward + self.backward

    @cached_property
    def _num_layers(self) -> IntArray:
        """Of every kind, (K,)."""
        found = np.zeros(self.backward.shape[1], dtype=np.int64)
        for m, kinds in enumerate(self.kind.T):
            found[kinds[kinds >= 0]] = m + 1
        return found

    def best_bounds(self) -> IntArray | None:
        """Bounds of the layers of the stages of least time, (p + 1,); None: nothing fits."""
        # Quick to see, and most of what does not fit: too few layers have room.
        layers = np.where(np.isfinite(self.backward), self._num_layers, 0).max(axis=1)
        slowest = self._least_slowest() if layers.sum() >= len(self.kind) - 1 else np.inf
        if np.isinf(slowest):
            return None
        steady = self._steady
        best, best_s = slowest, float(self._sums(np.array([slowest]))[0]) + steady * slowest
        least = float(self._sums(np.array([np.inf]))[0])
        # The sum of all forward passes is the same everywhere, and left out.
        others = np.unique(self._both[np.isfinite(self._both)])
        others = others[(others > slowest) & (least + steady * others < best_s)]
        for first in range(0, len(others), _TOGETHER):
            some = others[first : first + _TOGETHER]
            if least + steady * some[0] >= best_s:
                break
            times = self._sums(some) + steady * some
            if times.min() < best_s:
                best, best_s = float(some[times.argmin()]), float(times.min())
        return self._bounds(best)

    def _of_stage(self, values: FloatArray) -> FloatArray:
        """Of the last m + 1 layers before every bound, (L + 1, n); infinite where no stage has them."""
        return np.where(self.kind >= 0, values[self.kind], np.inf)

    def _before(self, found: FloatArray) -> FloatArray:
        """What was found m + 1 layers before every bound, (..., L + 1, n)."""
        wide = np.full((*found.shape[:-1], self.kind.shape[1]), np.inf)
        every = sliding_window_view(np.concatenate([wide, found], axis=-1)[..., :-1], self.kind.shape[1], axis=-1)
        return every[..., ::-1]

    def _start(self, *shape: int) -> FloatArray:
        found = np.full((*shape, len(self.kind)), np.inf)
        found[..., 0] = 0.0
        return found

    def _least_slowest(self) -> float:
        found = self._start()
        for both in self._both:
            found = np.maximum(self._before(found), self._of_stage(both)).min(axis=-1)
        return float(found[-1])

    def _sums(self, slowest: FloatArray) -> FloatArray:
        """G_{p-1}(L) of plans whose slowest stage takes at most so long, (M,)."""
        found = self._start(len(slowest))
        for i in range(len(self.backward)):
            found = self._next(found, i, slowest[:, None, None]).min(axis=-1)
        return np.asarray(found[:, -1])

    def _next(self, found: FloatArray, i: int, slowest: FloatArray | float) -> FloatArray:
        backward, extra, both = (self._of_stage(values[i]) for values in (self.backward, self.extra, self._both))
        return np.asarray(
            np.maximum(self._before(found), extra) + np.where(both <= slowest, backward / self.parts, np.inf)
        )

    def _bounds(self, slowest: float) -> IntArray:
        found, lengths = self._start(), []
        for i in range(len(self.backward)):
            every = self._next(found, i, slowest)
            lengths.append(every.argmin(axis=-1) + 1)
            found = every.min(axis=-1)
        bounds = [len(self.kind) - 1]
        for of_stage in reversed(lengths):
            bounds.append(bounds[-1] - int(of_stage[bounds[-1]]))
        return np.array(bounds[::-1])


def _kinds(
    model: PerformanceModel, most_layers: int, parts: int, *, by_stage: bool
) -> tuple[IntArray, Sequence[tuple[int, int]]]:
    """Which layers cost the same: numbers as in `LayerChoices.kind`, and layers [a, b) of every number. Parts of a
    stage have as many layers each, but where parts do not divide the model one less in front or at its end: beside
    embedding and head."""
    num_layers = model.profile.num_layers
    tables = [model.kept_as(kind).share_table for kind in Checkpointing] if by_stage else [model.share_table]
    shares = np.diff([getattr(table, name) for table in tables for name in SUMS])
    # Sums that run have errors of rounding.
    relative = np.round(shares / np.maximum(shares.max(axis=1, keepdims=True), 1e-300), 9)
    layers = np.unique(relative, axis=1, return_inverse=True)[1].reshape(-1)
    # The last stage may have a copy of the embedding, unless it is the first one.
    layers[0], layers[-1] = layers.max() + 1, layers.max() + 2
    found = np.full((num_layers + 1, most_layers), -1)
    intervals: list[tuple[int, int]] = []
    ids = np.zeros(num_layers + 1, dtype=np.int64)
    for m in range(most_layers):
        # Of layers a .. a + m, from what a .. a + m - 1 are.
        joined = ids[: num_layers - m] * (layers.max() + 1) + layers[m:]
        _, first, ids = np.unique(joined, return_index=True, return_inverse=True)
        is_whole, lacks_one = (m + 1) % parts == 0, num_layers % parts and m + 1 >= parts and (m + 2) % parts == 0
        if not is_whole and not lacks_one:
            continue
        ends = np.arange(m + 1, num_layers + 1) if is_whole else np.array([m + 1, num_layers])
        found[ends, m] = len(intervals) + ids[ends - m - 1]
        intervals += [(a, a + m + 1) for a in first.tolist()]
    return found, intervals
