"""From what a job trains and where it may run to its performance model."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from models.performance.iteration.adjustment import adjusted
from models.performance.iteration.architecture import profile_of
from models.performance.iteration.coefficients import Calibration, GpuCoefficients, JobCoefficients
from models.performance.iteration.fabric import Fabric, fabric_of, flat_fabric
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.priors import Priors, priors
from models.performance.iteration.whitebox import peak_flops_per_s, white_box
from models.transformer import Checkpointing, JobModel, Transformer
from topology.cluster import Cluster, GpuType


def performance_model(
    model: JobModel, cluster: Cluster, calibration: Calibration | None = None, fabric: Fabric | None = None
) -> PerformanceModel:
    """Performance of a job on the nodes of a cluster; `fabric`: that of the cluster, where it is known already."""
    return _assemble(model, cluster.gpu_types, fabric or fabric_of(cluster), calibration, None)


def unplaced_model(
    model: JobModel, gpu_types: tuple[GpuType, ...], calibration: Calibration | None = None
) -> PerformanceModel:
    """Performance of a job on GPUs of these types, on no node yet: see `PerformanceModel.on`."""
    return _assemble(model, gpu_types, Fabric(hosts={}), calibration, None)


def virtual_model(
    model: JobModel,
    gpu_type: GpuType,
    gpus_per_node: int,
    num_nodes: int,
    calibration: Calibration | None = None,
    known: Priors | None = None,
) -> PerformanceModel:
    """Performance of a job on equal nodes under one switch, named `0`, `1`, ...; `known`: other priors than the
    shipped ones."""
    nodes = {str(k): gpu_type for k in range(num_nodes)}
    return _assemble(model, (gpu_type,), flat_fabric(nodes, gpus_per_node), calibration, known)


def calibrated(
    white: JobCoefficients, calibration: Calibration, gpu_types: Iterable[GpuType], precision: str
) -> JobCoefficients:
    """White-box coefficients with everything that measurements say in their place (Suika A.4.2).

    A type that was not measured is scaled from the one that is nearest to it in peak FLOP/s; where the peak of none of
    those measured is known, it keeps its white-box coefficients.
    """
    gpus = dict(white.gpus)
    stated = {kind.name: kind.peak_flops_per_s for kind in gpu_types}
    measured = {name.lower(): found for name, found in sorted(calibration.gpus.items())}
    peaks = {
        name: peak
        for name in [*stated, *calibration.gpus]
        if (peak := peak_flops_per_s(name, precision, stated.get(name))) is not None
    }
    for name in stated:
        own = measured.get(name.lower())
        gpus[name] = own if own is not None else _scaled_from_nearest(name, calibration.gpus, peaks) or gpus[name]
    return replace(white, gpus=gpus, sizes=calibration.sizes or white.sizes)


def scaled(coefficients: GpuCoefficients, speed_up: float) -> GpuCoefficients:
    """One-shot approximation for a GPU with `speed_up` times the peak FLOP/s (A.4.2): same ratio, same overlap."""
    return GpuCoefficients(
        compute_s=coefficients.compute_s / speed_up,
        backward_ratio=coefficients.backward_ratio,
        optimizer_s=coefficients.optimizer_s / speed_up,
        overlap=coefficients.overlap,
    )


def _scaled_from_nearest(
    name: str, measured: Mapping[str, GpuCoefficients], peaks: Mapping[str, float]
) -> GpuCoefficients | None:
    known = sorted(other for other in measured if other in peaks)
    if not known:
        return None
    nearest = min(known, key=lambda other: abs(math.log(peaks[name] / peaks[other])))
    return scaled(measured[nearest], peaks[name] / peaks[nearest])


def _assemble(
    job: JobModel,
    gpu_types: tuple[GpuType, ...],
    fabric: Fabric,
    calibration: Calibration | None,
    known: Priors | None,
) -> PerformanceModel:
    profile = profile_of(job)
    found = known or priors()
    adjustment = None if calibration is None else calibration.adjustment
    if adjustment is not None:
        found = adjusted(found, adjustment)
    coefficients = white_box(profile, gpu_types, found)
    if calibration is not None:
        coefficients = calibrated(coefficients, calibration, gpu_types, profile.flops_precision)
    if adjustment is not None:
        slower = {
            name: replace(own, compute_s=adjustment.computation * own.compute_s)
            for name, own in coefficients.gpus.items()
        }
        coefficients = replace(coefficients, gpus=slower)
    if profile.kernels:
        fabric = replace(fabric, intra_share=found.link, inter_share=found.network)
    model = PerformanceModel(
        profile=profile,
        coefficients=coefficients,
        fabric=fabric,
        memory_bytes={kind.name: float(kind.memory_bytes) for kind in gpu_types},
        send_receive=bool(profile.kernels),
        overhead_bytes=found.software[profile.software].overhead_bytes,
    )
    if isinstance(job, Transformer):
        return replace(model, retrained=partial(_retrained, model, job, gpu_types, found))
    return model


def _retrained(
    model: PerformanceModel, job: Transformer, gpu_types: tuple[GpuType, ...], known: Priors, kind: Checkpointing
) -> PerformanceModel:
    """The model of the job with another checkpointing. What was measured holds of what it does not change: forward
    passes, optimiser and overlap; backward passes change as white-box ones do."""
    profile = profile_of(replace(job, checkpointing=kind))
    own, white = (white_box(other, gpu_types, known) for other in (model.profile, profile))
    gpus = {
        name: replace(
            found, backward_ratio=found.backward_ratio * white.gpus[name].backward_ratio / own.gpus[name].backward_ratio
        )
        for name, found in model.coefficients.gpus.items()
    }
    sizes = replace(
        model.coefficients.sizes,
        partitioned_activation_bytes=white.sizes.partitioned_activation_bytes,
        replicated_activation_bytes=white.sizes.replicated_activation_bytes,
    )
    coefficients = replace(model.coefficients, gpus=gpus, sizes=sizes, curves=white.curves)
    return replace(model, profile=profile, coefficients=coefficients)
