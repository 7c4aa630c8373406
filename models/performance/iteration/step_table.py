"""What the ranks of one launch measured, step by step, and the part of it that tells how fast they settled."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from models.parallel_plan import ParallelPlan
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import performance_model
from models.transformer import Transformer
from stowplan.arrays import FloatArray, IntArray
from topology.cluster import Cluster

# Steps at the start of a launch that are left out: allocation, compilation, cold caches.
WARM_UP_STEPS = 3
# Fewer settled steps are not told apart from noise.
MIN_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTable:
    """Records of one launch, (K,) each, in any order; or settled steps, (T, R) each but `rank` (R,) and `step` (T,).

    Times in seconds as in `executor.metrics.StepMetrics`: forward and backward are sums over the micro-batches.
    `small_square`, `large_square`: squared gradient norms over the batch of one replica and over the global batch.
    """

    rank: IntArray
    step: IntArray
    started_at_s: FloatArray
    step_s: FloatArray
    forward_s: FloatArray
    backward_s: FloatArray
    reduction_s: FloatArray
    optimizer_s: FloatArray
    peak_memory_bytes: FloatArray
    small_square: FloatArray
    large_square: FloatArray

    @classmethod
    def of_whole_steps(cls, step: IntArray, started_at_s: FloatArray, step_s: FloatArray) -> Self:
        """Steps (K,) of which no part is known, as one rank tells of them; what is not known is no number."""
        unknown = np.full(len(step), np.nan)
        rest = {field.name: unknown for field in fields(cls)}
        known = {"rank": np.zeros(len(step), np.int64), "step": step, "started_at_s": started_at_s, "step_s": step_s}
        return cls(**{**rest, **known})

    def settled(self, first_step: int) -> Self | None:
        """Steps behind the warm-up that all ranks have reported; None when there are fewer than `MIN_STEPS`.

        Parameters
        ----------
        first_step
            First step of the launch.
        """
        ranks, column = np.unique(self.rank, return_inverse=True)
        steps, row = np.unique(self.step, return_inverse=True)
        seen = np.zeros((len(steps), len(ranks)), dtype=bool)
        seen[row, column] = True
        kept = seen.all(axis=1) & (steps >= first_step + WARM_UP_STEPS)
        if np.count_nonzero(kept) < MIN_STEPS:
            return None
        grids: dict[str, FloatArray] = {}
        for field in fields(self):
            if field.name not in ("rank", "step"):
                grid = np.zeros(seen.shape)
                grid[row, column] = getattr(self, field.name)
                grids[field.name] = grid[kept]
        return type(self)(rank=ranks, step=steps[kept], **grids)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One launch of a job: what ran where, and what its ranks measured.

    `launch`: start in ms since 1970. `cluster`: at least the nodes of the plan. `records`: all or the newest ones.
    `first_step`: of the launch, recorded or not. `tensor_memory`: the peak memory is that of tensors (on CUDA), not
    that of a process. `whole_steps`: a program of the user's own has told how long steps took, and of no part of them.
    """

    launch: int
    job: Transformer
    plan: ParallelPlan
    cluster: Cluster
    records: StepTable
    first_step: int
    tensor_memory: bool = False
    whole_steps: bool = False

    @property
    def white_box(self) -> PerformanceModel:
        """The model before anything was measured."""
        return performance_model(self.job, self.cluster)

    def settled(self) -> StepTable | None:
        """Settled steps."""
        return self.records.settled(self.first_step)
