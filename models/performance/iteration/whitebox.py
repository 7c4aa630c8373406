"""White-box coefficients: what the model and the data sheets say before anything was measured, with the shares of it
that published step times show (`priors`).

k_comp      mean over the layers of the time of their kernels for many samples (`kernels`); where only sums are known,
            of max(FLOPs / (share x peak), traffic / memory bandwidth): the roofline
k_backward  the same of the backward pass over that; of sums FLOPs: 2, more where the forward pass is repeated
k_optim     bytes that the optimiser step moves over memory bandwidth: gradients are read, optimiser states read and
            written, weights written
k_overlap   that of the software: 1, none, where gradients are reduced after the last backward pass
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients
from models.performance.iteration.kernels import KernelCurve, Machine
from models.performance.iteration.priors import Priors, SoftwarePrior, priors
from models.performance.iteration.profile import ModelProfile
from models.performance.iteration.sizes import size_coefficients
from models.transformer import Precision
from stowplan.arrays import FloatVector
from topology.cluster import GpuType
from topology.gpu_catalogue import GpuProduct, known_product

# Share of the dense peak that operators reach of which only FLOPs and bytes are known. Wide-ResNets of Arena's artifact
# reach 44 % of the FP32 peak of an A100; V100s less than newer GPUs (30 % end to end: Megatron-LM, 2019).
ATTAINABLE_SHARE = 0.5
_ATTAINABLE_BY_PRODUCT = MappingProxyType({"v100": 0.35})

# Share of the memory bandwidth that streaming kernels reach.
MEMORY_SHARE = 0.8

# The most that fused attention is known to reach of a dense peak: FlashAttention-3 on an H100 (Shah et al. 2024).
# Factors of software that one family of GPUs told would say more of others.
_ATTENTION_SHARE = 0.75

# Peak FLOP/s over memory bytes/s of a GPU that the catalogue does not have: between A10, A100 and A40 (200 to 215), and
# near the middle of the catalogue (V100 139, H100 295).
FLOPS_PER_BYTE = 210.0


def white_box(profile: ModelProfile, gpu_types: Iterable[GpuType], known: Priors | None = None) -> JobCoefficients:
    """Coefficients of a job for GPU types; `known`: other priors than the shipped ones.

    Peak and memory bandwidth are those of the product that a type is named after (in any case and notation), at the
    precision of the profile; a type of another name has the peak that it states and, for want of better, the memory
    bandwidth of an average product with that peak.
    """
    found = known or priors()
    kinds, software = tuple(gpu_types), found.software[profile.software]
    curves = {kind.name: _curve(profile, kind, found) for kind in kinds} if profile.kernels else {}
    return JobCoefficients(
        gpus={kind.name: _of_type(profile, kind, curves.get(kind.name), software) for kind in kinds},
        sizes=size_coefficients(profile),
        curves=curves,
        tensor_exposed=software.tensor_exposed,
        scale_loss=found.scale_loss if curves else 0.0,
    )


def peak_flops_per_s(gpu_type: str, precision: str, stated: float | None = None) -> float | None:
    """Peak of a type at a precision: that of its product, else the stated one."""
    product = known_product(gpu_type)
    return product.peak(precision) if product is not None else stated


def roofline_s(profile: ModelProfile, kind: GpuType) -> FloatVector:
    """Forward time of every layer for one sample on one GPU, (L,): the slower of computing and moving.

    The embedding is part of the first layer, the head of the last one.
    """
    machine, prefix = _sums_machine(profile, kind), profile.prefix
    return np.maximum(
        np.diff(prefix.forward_flops) / machine.flops_per_s, np.diff(prefix.memory_traffic_bytes) / machine.bytes_per_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SumsMachine:
    """What one GPU reaches where only sums are known."""

    flops_per_s: float
    bytes_per_s: float


def _sums_machine(profile: ModelProfile, kind: GpuType) -> _SumsMachine:
    product = known_product(kind.name)
    share = ATTAINABLE_SHARE if product is None else _ATTAINABLE_BY_PRODUCT.get(product.name, ATTAINABLE_SHARE)
    return _SumsMachine(
        flops_per_s=share * _peak(product, kind, profile.flops_precision),
        bytes_per_s=MEMORY_SHARE * _memory_bytes_per_s(product, kind),
    )


def _peak(product: GpuProduct | None, kind: GpuType, precision: str) -> float:
    return kind.peak_flops_per_s if product is None else product.peak(precision)


def _memory_bytes_per_s(product: GpuProduct | None, kind: GpuType) -> float:
    return kind.peak_flops_per_s / FLOPS_PER_BYTE if product is None else product.memory_bandwidth_bytes_per_s


def _curve(profile: ModelProfile, kind: GpuType, known: Priors) -> KernelCurve:
    """Kernels of a profile on a GPU type."""
    product = known_product(kind.name)
    of_gpu, software = known.gpu(None if product is None else product.architecture), known.software[profile.software]
    precision = Precision(profile.flops_precision)
    in_8_bits = precision.in_8_bits
    # Scales are written and read with the numbers that they belong to.
    converting = (known.fp8_traffic - 1.0) * (1.0 + precision.scale_bytes) if in_8_bits else 0.0
    peak = _peak(product, kind, profile.flops_precision)
    plain_peak = _peak(product, kind, "bf16") if in_8_bits else peak
    return KernelCurve(
        layers=profile.kernels,
        machine=Machine(
            flops_per_s=peak * (of_gpu.fp8 if in_8_bits else of_gpu.matrix * software.matrix),
            attention_flops_per_s=min(
                plain_peak * of_gpu.attention * software.attention, plain_peak * _ATTENTION_SHARE
            ),
            plain_flops_per_s=plain_peak * of_gpu.matrix * software.matrix,
            misaligned=known.misaligned,
            bytes_per_s=_memory_bytes_per_s(product, kind) * known.memory,
            traffic=software.traffic * (1.0 + converting),
            launch_s=0.0 if product is None else known.launch_s,
            num_multiprocessors=None if product is None else product.num_multiprocessors,
            host_s=0.0 if product is None else software.host_s,
        ),
        sequence_parallel=profile.sequence_parallel,
    )


def _of_type(
    profile: ModelProfile, kind: GpuType, curve: KernelCurve | None, software: SoftwarePrior
) -> GpuCoefficients:
    moved = profile.gradient_bytes + 2.0 * profile.optimizer_bytes + profile.parameter_bytes
    parameters = float(profile.prefix.parameters[-1]) / profile.num_layers
    if curve is None:
        compute_s, ratio = float(roofline_s(profile, kind).mean()), profile.backward_ratio
    else:
        forward_s, backward_s = curve.reference_s
        compute_s, ratio = forward_s / profile.num_layers, backward_s / forward_s
    return GpuCoefficients(
        compute_s=compute_s,
        backward_ratio=ratio,
        optimizer_s=moved * parameters / _sums_machine(profile, kind).bytes_per_s,
        overlap=software.overlap,
    )
