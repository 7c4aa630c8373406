"""Coefficients of the performance model (Suika Table 2), per GPU type and per job.

Symbols of the paper: k_comp -> `compute_s`, k_backward -> `backward_ratio`, k_optim -> `optimizer_s`, k_overlap ->
`overlap`. Where layers differ (operator lists, the head of a transformer), k_comp and k_optim belong to the mean
layer and a stage counts as the sum of its layers' shares of the mean, see `StageShares`.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.kernels import KernelCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCoefficients:
    """How fast one GPU type runs one job.

    compute_s: forward computation of the mean layer for one of many samples on one GPU. backward_ratio: backward over
    forward computation. optimizer_s: optimiser step of the mean layer on one GPU. overlap: k >= 1, exponent of
    `(backward^k + reduction^k)^(1/k)`; 1 is no overlap, infinity complete overlap.
    """

    compute_s: float
    backward_ratio: float
    optimizer_s: float
    overlap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCoefficients:
    """Sizes of the mean layer in bytes (k_activ, k_param, k_param-optim in two parts, k_activ-p, k_activ-np).

    gradient_bytes is both what a replica reduces and what it keeps; activations are per sample.
    """

    activation_bytes: float
    gradient_bytes: float
    parameter_bytes: float
    optimizer_bytes: float
    partitioned_activation_bytes: float
    replicated_activation_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Coefficients of one job that came from measurements, in place of white-box ones.

    `gpus`: GPU type name -> coefficients; types that were not seen are scaled by `modelling`.
    `sizes` None: the white-box sizes hold. `measured_at_s`: Unix time of the last measurement behind them.
    `adjustment`: factors on times beside them, of all GPU types, from iteration times of plans.
    """

    gpus: Mapping[str, GpuCoefficients] = field(default_factory=dict)
    sizes: SizeCoefficients | None = None
    measured_at_s: float | None = None
    adjustment: Adjustment | None = None

    @property
    def key(self) -> Hashable:
        """Equal for calibrations that say the same, whenever it was measured."""
        return tuple(sorted(self.gpus.items(), key=lambda pair: pair[0])), self.sizes, self.adjustment


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCoefficients:
    """Everything that the formulas need of a job: coefficients for every GPU type in question, and sizes.

    `curves`: how kernels slow down where a plan cuts them small, by GPU type; none where it makes no difference.
    `tensor_exposed`: part of tensor-parallel communication that no computation hides. `scale_loss`: see `scaling`.
    """

    gpus: Mapping[str, GpuCoefficients] = field(default_factory=dict)
    sizes: SizeCoefficients
    curves: Mapping[str, KernelCurve] = field(default_factory=dict)
    tensor_exposed: float = 1.0
    scale_loss: float = 0.0

    def shared(self, cp: int, ep: int) -> "JobCoefficients":
        """Those of replicas that share sequences and experts; a sample is one of the `cp` parts of a sequence."""
        sizes = self.sizes
        return replace(
            self,
            sizes=replace(
                sizes,
                activation_bytes=sizes.activation_bytes / cp,
                partitioned_activation_bytes=sizes.partitioned_activation_bytes / cp,
                replicated_activation_bytes=sizes.replicated_activation_bytes / cp,
            ),
            curves={name: curve.shared(cp, ep) for name, curve in self.curves.items()},
        )
