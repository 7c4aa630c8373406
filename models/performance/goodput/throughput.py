"""Time of a training step and samples per second (Pollux section 3.2, as used by Sia section 3.2).

R replicas on n nodes, local batch m, s accumulation steps before the step that synchronises:

    T_grad = alpha_c + beta_c m
    T_sync = 0                              R = 1
             alpha_r + beta_r max(R-2, 0)   R > 1, n = 1
             (alpha_n + beta_n max(R-2, 0)) / f   R > 1, n > 1
    T_iter = s T_grad + (T_grad^gamma + T_sync^gamma)^(1/gamma)
    throughput = R m (s+1) / T_iter

f is the share of the inter-node bandwidth that the nodes have between them (`topology.bandwidth`), 1 unless the cluster
has slow tiers: alpha_n and beta_n hold for f = 1. An all-reduce takes its volume over the bandwidth of its worst link
(Suika appendix A.2), and the volume is the same wherever the nodes are. Latency would not grow with 1/f, but the model
does not tell it from bandwidth; all of T_sync across nodes counts as bandwidth, so that a slow tier is never thought
too fast. What a replica of several nodes sends inside itself is part of T_grad, and stays.

Times in seconds, throughput in samples/s. Every function takes arrays of any shapes that broadcast.
"""

from dataclasses import dataclass, replace

import numpy as np

from models.performance.goodput.spec import ThroughputParameters
from stowplan.arrays import FloatArray, IntArray

Number = float | FloatArray | IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coefficients:
    """`ThroughputParameters` of many (job, GPU type) pairs; every field is float64 of one shape."""

    alpha_c: FloatArray
    beta_c: FloatArray
    alpha_r: FloatArray
    beta_r: FloatArray
    alpha_n: FloatArray
    beta_n: FloatArray
    gamma: FloatArray


def gradient_time_s(alpha_c: Number, beta_c: Number, local_batch: Number) -> FloatArray:
    """T_grad: one forward and backward pass over the local batch."""
    return np.asarray(alpha_c + beta_c * local_batch, dtype=np.float64)


def sync_time_s(
    parameters: ThroughputParameters | Coefficients,
    num_nodes: Number,
    num_replicas: Number,
    bandwidth_fraction: Number = 1.0,
) -> FloatArray:
    """T_sync: one synchronisation of the gradients, by itself."""
    beyond_two = np.maximum(np.subtract(num_replicas, 2), 0)
    inside = parameters.alpha_r + parameters.beta_r * beyond_two
    across = (parameters.alpha_n + parameters.beta_n * beyond_two) / bandwidth_fraction
    together = np.where(np.greater(num_nodes, 1), across, inside)
    return np.where(np.greater(num_replicas, 1), together, 0.0)


def overlapped_time_s(gradient_s: Number, sync_s: Number, gamma: Number) -> FloatArray:
    """(T_grad^gamma + T_sync^gamma)^(1/gamma): the step that synchronises; T_grad is positive.

    The larger time is factored out, so that no power overflows.
    """
    longer = np.maximum(gradient_s, sync_s)
    ratio = np.minimum(gradient_s, sync_s) / longer
    return np.asarray(longer * (1.0 + ratio**gamma) ** (1.0 / gamma), dtype=np.float64)


def iteration_time_s(
    parameters: ThroughputParameters | Coefficients,
    num_nodes: Number,
    num_replicas: Number,
    local_batch: Number,
    accumulation_steps: Number,
    bandwidth_fraction: Number = 1.0,
) -> FloatArray:
    """T_iter: the accumulation steps and the step that synchronises."""
    gradient_s = gradient_time_s(parameters.alpha_c, parameters.beta_c, local_batch)
    sync_s = sync_time_s(parameters, num_nodes, num_replicas, bandwidth_fraction)
    return accumulation_steps * gradient_s + overlapped_time_s(gradient_s, sync_s, parameters.gamma)


def throughput(
    parameters: ThroughputParameters | Coefficients,
    num_nodes: Number,
    num_replicas: Number,
    local_batch: Number,
    accumulation_steps: Number,
) -> FloatArray:
    """Samples/s with the same local batch on every replica."""
    samples = num_replicas * local_batch * np.add(accumulation_steps, 1)
    time_s = iteration_time_s(parameters, num_nodes, num_replicas, local_batch, accumulation_steps)
    return np.asarray(samples / time_s, dtype=np.float64)


def slowed(parameters: ThroughputParameters, factor: float) -> ThroughputParameters:
    """The model where every step takes so many times longer."""
    times = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n")
    return replace(parameters, **{name: factor * getattr(parameters, name) for name in times})
