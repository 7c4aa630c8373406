"""White-box coefficients: what the model and the data sheets say before anything was measured.

k_comp      mean over the layers of max(FLOPs / (attainable share x peak), traffic / memory bandwidth): the roofline
k_backward  FLOPs of the backward pass over those of the forward pass: 2, more where the forward pass is repeated
k_optim     bytes that the optimiser step moves over memory bandwidth: gradients are read, optimiser states read and
            written, weights written
k_overlap   1, no overlap: the paper's fallback without measurements (A.4.2), and what pipeline engines do that
            reduce after the last backward pass
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients
from models.performance.iteration.profile import ModelProfile
from models.performance.iteration.sizes import size_coefficients
from stowplan.arrays import FloatVector
from topology.cluster import GpuType
from topology.gpu_catalogue import known_product

# Share of the dense tensor-core peak that the layers of a transformer reach on one GPU. Published end-to-end figures
# are lower bounds, since they count communication, bubbles and the optimiser too: 30 % for 1.2 B parameters on one V100
# (Megatron-LM, 2019), 44 to 52 % on A100 (Megatron-LM, SC 2021) and 42 to 56 % (Korthikanti et al., 2022), up to 47 %
# on H100 (Megatron-Core). None were found for Ada and Blackwell, which get the same as Ampere and Hopper.
ATTAINABLE_SHARE = 0.5
_ATTAINABLE_BY_PRODUCT = MappingProxyType({"v100": 0.35})

# Share of the memory bandwidth that streaming kernels reach.
MEMORY_SHARE = 0.8

# Peak FLOP/s over memory bytes/s of a GPU that the catalogue does not have: between A10, A100 and A40 (200 to 215), and
# near the middle of the catalogue (V100 139, H100 295).
FLOPS_PER_BYTE = 210.0

DEFAULT_OVERLAP = 1.0


def white_box(profile: ModelProfile, gpu_types: Iterable[GpuType]) -> JobCoefficients:
    """Coefficients of a job for GPU types.

    Peak and memory bandwidth are those of the product that a type is named after (in any case and notation), at the
    precision of the profile; a type of another name has the peak that it states and, for want of better, the memory
    bandwidth of an average product with that peak.
    """
    return JobCoefficients(
        gpus={kind.name: _of_type(profile, kind) for kind in gpu_types}, sizes=size_coefficients(profile)
    )


def peak_flops_per_s(gpu_type: str, precision: str, stated: float | None = None) -> float | None:
    """Peak of a type at a precision: that of its product, else the stated one."""
    product = known_product(gpu_type)
    return product.peak(precision) if product is not None else stated


def roofline_s(profile: ModelProfile, kind: GpuType) -> FloatVector:
    """Forward time of every layer for one sample on one GPU, (L,): the slower of computing and moving.

    The embedding is part of the first layer, the head of the last one.
    """
    machine, prefix = _machine(profile, kind), profile.prefix
    return np.maximum(
        np.diff(prefix.forward_flops) / machine.flops_per_s, np.diff(prefix.memory_traffic_bytes) / machine.bytes_per_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """What one GPU reaches."""

    flops_per_s: float
    bytes_per_s: float


def _machine(profile: ModelProfile, kind: GpuType) -> _Machine:
    product = known_product(kind.name)
    if product is None:
        return _Machine(
            flops_per_s=ATTAINABLE_SHARE * kind.peak_flops_per_s,
            bytes_per_s=MEMORY_SHARE * kind.peak_flops_per_s / FLOPS_PER_BYTE,
        )
    return _Machine(
        flops_per_s=_ATTAINABLE_BY_PRODUCT.get(product.name, ATTAINABLE_SHARE) * product.peak(profile.flops_precision),
        bytes_per_s=MEMORY_SHARE * product.memory_bandwidth_bytes_per_s,
    )


def _of_type(profile: ModelProfile, kind: GpuType) -> GpuCoefficients:
    moved = profile.gradient_bytes + 2.0 * profile.optimizer_bytes + profile.parameter_bytes
    parameters = float(profile.prefix.parameters[-1]) / profile.num_layers
    return GpuCoefficients(
        compute_s=float(roofline_s(profile, kind).mean()),
        backward_ratio=profile.backward_ratio,
        optimizer_s=moved * parameters / _machine(profile, kind).bytes_per_s,
        overlap=DEFAULT_OVERLAP,
    )
