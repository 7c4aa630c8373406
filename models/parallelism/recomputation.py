"""What the stages of a plan recompute: of everything that fits, what takes least time.

A stage keeps everything, recomputes selectively, or its first n layers in full (of every virtual stage as many), none
of which the job's model excludes. Time and memory are those of `StageTable`, where each of these is a row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from models.parallel_plan import ParallelPlan
from models.parallelism.grid.degrees import DegreeTable, compact_degrees
from models.parallelism.grid.stage_table import Recomputation, StageTable
from models.performance.iteration.model import PerformanceModel
from models.transformer import Checkpointing
from stowplan.arrays import FloatArray, IntArray, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheapestStages:
    """The row of the least forward and backward pass that fits for S stages and T tensor degrees: (S, T) each.

    Where none fits, the others mean nothing. `extra_s`: reduction that is not hidden, and optimiser. `least_s`: the
    least forward pass, backward pass, part of it that is of weights, and extra time of all rows that fit, without sends
    (4, S, T).
    """

    row: IntArray
    fits: Mask
    forward_s: FloatArray
    backward_s: FloatArray
    extra_s: FloatArray
    least_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageChoices:
    """Stages that may recompute one thing or another.

    Attributes
    ----------
    table
        Rows: what each of the stages may recompute.
    behind, waiting
        (R,) micro-batches that the stage of a row has in flight; what waits for passes of weights beyond them.
    rows
        (S, C) of every stage, the last one repeated where it has fewer than others.
    """

    table: StageTable
    behind: FloatArray
    waiting: FloatArray
    rows: IntArray

    @classmethod
    def of(
        cls,
        model: PerformanceModel,
        gpu_type: str,
        degrees: DegreeTable,
        intervals: Sequence[tuple[int, int]],
        behind: Sequence[float],
        parts: Sequence[int] | None,
        rejoined: Sequence[tuple[int, int]] | None = None,
        waiting: Sequence[float] | None = None,
    ) -> "StageChoices":
        """Choices of stages with these layers, micro-batches in flight and virtual stages; `parts` None: none, all
        recompute what the job's model says, and may have further layers (`StageTable.rejoined`)."""
        options: list[list[Recomputation]] | None = None
        if parts is not None:
            lengths = zip(intervals, parts, strict=True)
            options = [list(recomputations(last - first, step)) for (first, last), step in lengths]
        counts = [1] * len(intervals) if options is None else [len(of_stage) for of_stage in options]
        of_row = np.repeat(np.arange(len(intervals)), counts)
        ends = np.cumsum(counts)
        within = np.minimum(np.arange(max(counts)), np.array(counts)[:, None] - 1)
        return cls(
            table=StageTable(
                model=model,
                gpu_type=gpu_type,
                intervals=tuple(intervals[stage] for stage in of_row.tolist()),
                degrees=degrees,
                recomputation=None if options is None else tuple(one for of_stage in options for one in of_stage),
                rejoined=None if rejoined is None else tuple(rejoined),
            ),
            behind=np.array(behind, dtype=np.float64)[of_row],
            waiting=np.zeros(len(of_row)) if waiting is None else np.array(waiting, dtype=np.float64)[of_row],
            rows=(ends - counts)[:, None] + within,
        )

    def cheapest(self, num_micro_batches: int) -> CheapestStages:
        """What every stage recomputes with so many micro-batches; stages are of one number of GPUs."""
        costs = self.table.costs(num_micro_batches)
        fits = self.table.fits(self.table.own_memory_bytes(num_micro_batches, self.behind, self.waiting))[:, 0]
        both = np.where(fits, costs.forward_s[:, 0] + costs.backward_s[:, 0], np.inf)
        at = both[self.rows].argmin(axis=1)
        row = np.take_along_axis(self.rows, at, axis=1)
        extra_s = costs.once_s + costs.optimizer_s
        parts = np.where(fits, np.stack([*costs.computing_s, extra_s])[:, :, 0], np.inf)
        column = np.arange(row.shape[1])
        return CheapestStages(
            row=row,
            fits=fits[row, column],
            forward_s=costs.forward_s[row, 0, column],
            backward_s=costs.backward_s[row, 0, column],
            extra_s=extra_s[row, 0, column],
            least_s=np.where(fits[row, column], parts[:, self.rows].min(axis=2), 0.0),
        )

    def recomputation(self, rows: IntArray) -> tuple[Recomputation, ...] | None:
        """What the rows of stages recompute; None where all layers do alike, as those of a job do."""
        if self.table.recomputation is None:
            return None
        found = tuple(self.table.recomputation[row] for row in rows.tolist())
        return None if len(set(found)) == 1 and found[0][1] is None else found


def recomputations(num_layers: int, virtual_stages: int = 1) -> Iterator[Recomputation]:
    """All that a stage of so many layers may recompute."""
    yield Checkpointing.NONE, None
    yield Checkpointing.SELECTIVE, None
    for count in range(virtual_stages, num_layers, virtual_stages):
        yield Checkpointing.FULL, count
    yield Checkpointing.FULL, None


def recomputing(plan: ParallelPlan, recomputation: Sequence[Recomputation]) -> ParallelPlan:
    """The plan with this recomputation of its stages."""
    return replace(
        plan,
        stages=tuple(
            replace(stage, checkpointing=kind, recomputed_layers=count)
            for stage, (kind, count) in zip(plan.stages, recomputation, strict=True)
        ),
    )


def with_cheapest(plan: ParallelPlan, model: PerformanceModel, gpus_per_node: int) -> ParallelPlan | None:
    """A symmetric plan on equal nodes, each of its stages with the cheapest recomputation that fits; None where there
    is none, or it is that of all layers alike."""
    first, bounds = plan.stages[0], [*accumulate((stage.num_layers for stage in plan.stages), initial=0)]
    choices = StageChoices.of(
        model,
        first.replicas[0].gpu_type,
        compact_degrees(model.profile, (first.num_gpus,), gpus_per_node),
        list(pairwise(bounds)),
        [plan.in_flight(i) for i in range(plan.pp)],
        [plan.virtual_stages] * plan.pp,
    )
    column = choices.table.degrees.tp.tolist().index(first.tp)
    cheapest = choices.cheapest(plan.num_micro_batches)
    found = choices.recomputation(cheapest.row[:, column])
    return None if found is None or not cheapest.fits[:, column].all() else recomputing(plan, found)
