"""Times and memory of every stage that a job could have on one GPU type: the performance model as arrays.

Axes: I intervals of layers, G stage sizes, T options (tensor degree and where the replicas sit), K stages from here to
the end of the pipeline (1 to K).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.parallelism.grid.degrees import DegreeTable
from models.performance.iteration.formulas import exposed_reduction_s, reduction_volume_bytes, tensor_communication_s
from models.performance.iteration.memory import peak_parts, shard
from models.performance.iteration.model import PerformanceModel
from stowplan.arrays import FloatArray, Mask

_SUMS = ("compute", "tensor", "partitioned", "replicated")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageCosts:
    """Seconds, (I, G, T) each: per micro-batch, `once_s` and `optimizer_s` per iteration.

    Only those with `valid` (G, T) mean something: degrees that divide GPUs, model and batch. `communication_s`:
    tensor-parallel, both passes; part of `forward_s` and `backward_s`. `once_s`: reduction that the backward pass does
    not hide.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    communication_s: FloatArray
    once_s: FloatArray
    optimizer_s: FloatArray
    valid: Mask


@dataclass(frozen=True, kw_only=True, eq=False)
class StageTable:
    """Every stage of a job on nodes `0`, `1`, ... of one GPU type.

    `intervals`: (first, last) layers of every stage, last excluded. `even_batches`: micro-batches must divide into
    equal local batches; otherwise the largest of nearly equal ones counts.
    """

    model: PerformanceModel
    gpu_type: str
    intervals: tuple[tuple[int, int], ...]
    degrees: DegreeTable
    even_batches: bool = True

    def costs(self, num_micro_batches: int) -> StageCosts:
        """Costs of all stages when the global batch is cut into so many micro-batches."""
        model, shares, of_type = self.model, self._shares, self.model.coefficients_of(self.gpu_type)
        tp, dp = self.degrees.tp.astype(float), self.degrees.dp.astype(float)
        local, valid = self._local_batch(num_micro_batches)
        computation = of_type.compute_s * shares["compute"] * local / tp
        communication = tensor_communication_s(
            model.coefficients.sizes.activation_bytes,
            local,
            shares["tensor"],
            tp,
            model.fabric.intra_bytes_per_s("0"),
            model.fabric.saturation_bytes,
        )
        backward = of_type.backward_ratio * computation + model.profile.backward_all_reduces * communication
        # Without ZeRO the number of replicas makes no difference.
        optimizer = shard(shares["parameters"], tp, dp, model.profile.zero_stage >= 1) * np.ones_like(dp)
        return StageCosts(
            forward_s=computation + communication,
            backward_s=backward,
            communication_s=np.asarray(communication) * (1.0 + model.profile.backward_all_reduces),
            once_s=exposed_reduction_s(backward, self._reduction_s(num_micro_batches), of_type.overlap),
            optimizer_s=of_type.optimizer_s * np.asarray(optimizer),
            valid=valid,
        )

    def memory_bytes(self, num_micro_batches: int, stages_behind: Sequence[int]) -> FloatArray:
        """Peak memory of a GPU, (K, I, G, T) for K numbers of stages to the end; infinite for what is not valid."""
        local, valid = self._local_batch(num_micro_batches)
        parts = peak_parts(
            zero_stage=self.model.profile.zero_stage,
            sizes=self.model.coefficients.sizes,
            parameters=self._shares["parameters"],
            partitioned=self._shares["partitioned"],
            replicated=self._shares["replicated"],
            tp=self.degrees.tp.astype(float),
            dp=self.degrees.dp.astype(float),
            local_batch=local,
            stages_behind=np.array(stages_behind, dtype=np.float64)[:, None, None, None],
            num_micro_batches=num_micro_batches,
        )
        return sum(parts) + np.where(valid, 0.0, np.inf)

    def fits(self, memory_bytes: FloatArray) -> Mask:
        """Where the memory is enough."""
        return memory_bytes <= self.model.usable_bytes(self.gpu_type)

    def _local_batch(self, num_micro_batches: int) -> tuple[FloatArray, Mask]:
        """Largest local batch (G, T), and whether the batch divides and is not below the one that the job fixes."""
        profile, dp = self.model.profile, self.degrees.dp
        micro_batch = profile.global_batch // num_micro_batches
        divides = micro_batch % dp == 0 if self.even_batches else micro_batch >= dp
        local = np.ceil(micro_batch / dp)
        return local, self.degrees.possible & divides & (local >= (profile.micro_batch or 1))

    @property
    def _shares(self) -> dict[str, FloatArray]:
        """Shares of the intervals in mean layers, (I, 1, 1) each."""
        table = self.model.share_table
        first, last = np.array(self.intervals, dtype=np.int64).T
        shares = {name: getattr(table, name)[last] - getattr(table, name)[first] for name in _SUMS}
        shares["parameters"] = table.parameters_of(first, last)
        return {name: share[:, None, None] for name, share in shares.items()}

    def _reduction_s(self, num_micro_batches: int) -> FloatArray:
        """Time of the gradient reduction (I, G, T): the slower of links inside nodes and network."""
        fabric, degrees = self.model.fabric, self.degrees
        gradient_bytes = self.model.coefficients.sizes.gradient_bytes * self._shares["parameters"]
        zero = self.model.profile.zero_stage
        volume = reduction_volume_bytes(gradient_bytes, degrees.dp.astype(float), zero, num_micro_batches)
        inside = volume / degrees.tp / fabric.intra_bytes_per_s("0")
        across = volume / fabric.group_bytes_per_s(fabric.hosts)
        return np.maximum(np.where(degrees.inside, inside, 0.0), np.where(degrees.across, across, 0.0))
