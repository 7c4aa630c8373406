"""How layers that differ, embedding and head enter formulas of equal layers: as shares of the mean layer."""

from dataclasses import dataclass

import numpy as np

from models.performance.profile import FloatVector, ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShares:
    """Sums over the layers of a stage (embedding and head included) over the mean layer.

    `compute` by FLOPs, `parameters` by weights, `tensor` by tensor-parallel traffic, `partitioned` and `replicated`
    by activations kept. All are the number of layers where layers are equal and there is neither embedding nor head.
    """

    num_layers: int
    compute: float
    parameters: float
    tensor: float
    partitioned: float
    replicated: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareTable:
    """Running sums of the shares, float64 (L + 1,) each: a stage of layers [a, b) has `sums[b] - sums[a]`."""

    compute: FloatVector
    parameters: FloatVector
    tensor: FloatVector
    partitioned: FloatVector
    replicated: FloatVector

    @classmethod
    def of(cls, profile: ModelProfile) -> "ShareTable":
        """Shares of a profile; all 0 where no layer has any of a cost."""
        prefix = profile.prefix
        return cls(
            compute=_in_mean_layers(prefix.forward_flops),
            parameters=_in_mean_layers(prefix.parameters),
            tensor=_in_mean_layers(prefix.tensor_parallel_bytes),
            partitioned=_in_mean_layers(prefix.partitioned_activation_bytes),
            replicated=_in_mean_layers(prefix.replicated_activation_bytes),
        )

    def stage(self, first: int, last: int) -> StageShares:
        """Shares of the stage of layers [first, last)."""
        return StageShares(
            num_layers=last - first,
            compute=float(self.compute[last] - self.compute[first]),
            parameters=float(self.parameters[last] - self.parameters[first]),
            tensor=float(self.tensor[last] - self.tensor[first]),
            partitioned=float(self.partitioned[last] - self.partitioned[first]),
            replicated=float(self.replicated[last] - self.replicated[first]),
        )


def _in_mean_layers(sums: FloatVector) -> FloatVector:
    total = sums[-1]
    return sums * ((len(sums) - 1) / total) if total > 0 else np.zeros_like(sums)
