"""The goodput of one job on one configuration, literally from the formulas, one number at a time."""

import math

import numpy as np

from models.performance.goodput.spec import GoodputModel, ThroughputParameters


def iteration_s(p: ThroughputParameters, nodes: int, replicas: int, local_batch: int, accumulation: int) -> float:
    gradient_s = p.alpha_c + p.beta_c * local_batch
    if replicas == 1:
        sync_s = 0.0
    elif nodes == 1:
        sync_s = p.alpha_r + p.beta_r * max(replicas - 2, 0)
    else:
        sync_s = p.alpha_n + p.beta_n * max(replicas - 2, 0)
    return accumulation * gradient_s + math.pow(math.pow(gradient_s, p.gamma) + math.pow(sync_s, p.gamma), 1 / p.gamma)


def source(model: GoodputModel, gpu_type: str) -> ThroughputParameters | None:
    """Parameters of the type that Eq. 1 scales; None for perfect scaling."""
    own = model.profiles[gpu_type]
    if not own.single_gpu_only:
        return own.parameters
    best = None
    for name in sorted(model.profiles):
        other = model.profiles[name]
        if other.single_gpu_only:
            continue
        m = min(own.max_local_batch, other.max_local_batch)
        ratio = iteration_s(own.parameters, 1, 1, m, 0) / iteration_s(other.parameters, 1, 1, m, 0)
        distance = abs(math.log(ratio))
        if best is None or distance < best[0] - 1e-12:
            best = distance, other.parameters
    return None if best is None else best[1]


def full_steps_per_s(
    model: GoodputModel, gpu_type: str, nodes: int, replicas: int, local_batch: int, accumulation: int
) -> float:
    """Steps/s; for a bootstrapped type by Eq. 1 with all throughputs at this local batch and accumulation."""
    own = model.profiles[gpu_type].parameters
    other = source(model, gpu_type)
    samples = local_batch * (accumulation + 1)

    def xput(p: ThroughputParameters, num: int, on_nodes: int) -> float:
        return num * samples / iteration_s(p, on_nodes, num, local_batch, accumulation)

    if other is None:
        estimate = replicas * xput(own, 1, 1)
    else:
        estimate = xput(own, 1, 1) / xput(other, 1, 1) * xput(other, replicas, nodes)
    return estimate / (replicas * samples)


def goodput(
    model: GoodputModel, gpu_type: str, nodes: int, replicas: int, local_batch: int, accumulation: int, *, maximum: int
) -> tuple[float, float, int]:
    """Goodput, throughput and batch size of one choice."""
    batch = min(replicas * local_batch * (accumulation + 1), maximum)
    throughput = batch * full_steps_per_s(model, gpu_type, nodes, replicas, local_batch, accumulation)
    scale = batch / model.batch.initial
    sqr, var = model.gradient.squared_norm, model.gradient.variance
    return throughput * ((var + sqr) / (var / scale + sqr) / scale), throughput, batch


def best_goodput(model: GoodputModel, gpu_type: str, nodes: int, num_gpus: int, *, elastic: bool) -> float:
    """The largest goodput of the candidates, 0 when there is none."""
    profile = model.profiles.get(gpu_type)
    if profile is None or num_gpus % profile.gpus_per_replica:
        return 0.0
    replicas = num_gpus // profile.gpus_per_replica
    maximum = model.batch.maximum if elastic else model.batch.initial
    lowest = max(model.batch.initial, profile.min_local_batch * replicas)
    if lowest > maximum:
        return 0.0
    best = 0.0
    for candidate in np.geomspace(lowest, maximum, 50).tolist():
        per_replica = candidate / replicas
        accumulation = max(math.ceil(per_replica / profile.max_local_batch - 1e-8) - 1, 0)
        if replicas == 1 and candidate > model.batch.initial * (1 + 1e-8):
            accumulation = max(accumulation, 1)
        local_batch = math.ceil(per_replica / (accumulation + 1) - 1e-8)
        if local_batch >= profile.min_local_batch:
            found = goodput(model, gpu_type, nodes, replicas, local_batch, accumulation, maximum=maximum)
            best = max(best, found[0])
    return best
