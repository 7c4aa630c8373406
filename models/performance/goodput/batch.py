"""Which batch size a job would choose on a configuration (Pollux section 3.2; Sia section 3.1).

Per (job, configuration) pair with R replicas, batches B0..Bmax and local batches m_min..m_max, over K candidates B,
spaced geometrically from max(B0, m_min R) to Bmax:

    s = ceil(B / R / m_max) - 1, at least 1 if R = 1 and B > B0     accumulation steps
    m = ceil(B / R / (s+1))                                         local batch
    batch = min(R m (s+1), Bmax)
    goodput = batch / T_iter(m, s) * efficiency(batch / B0)

and the candidate with the largest goodput is chosen, the smaller batch on a tie. (One replica that accumulates
nothing has one gradient only, from which its noise cannot be estimated; hence the exception for R = 1.) Rounding up
to whole local batches may pass Bmax; the last share is then smaller, while T_iter is that of the full ones.

A fixed batch is the case Bmax = B0. A pair where no candidate has m >= m_min is infeasible.
"""

from dataclasses import dataclass

import numpy as np

from models.performance.goodput.efficiency import efficiency
from models.performance.goodput.throughput import Coefficients, gradient_time_s, overlapped_time_s, sync_time_s
from stowplan.arrays import FloatArray, IntArray

NUM_CANDIDATES = 50
# Quotients this close above a whole number are that number.
_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """N (job, configuration) pairs, every field (N,).

    `bandwidth_fraction`: of the nodes, see `throughput`. `alpha_c`, `beta_c` are those of the configuration's own type;
    the ratio of T_iter to T_grad comes from `scaling` (own or bootstrapped, `bootstrap`). `signal_share`: see
    `efficiency`.
    """

    num_nodes: IntArray
    num_replicas: IntArray
    bandwidth_fraction: FloatArray
    initial_batch: FloatArray
    maximum_batch: FloatArray
    min_local_batch: FloatArray
    max_local_batch: FloatArray
    signal_share: FloatArray
    alpha_c: FloatArray
    beta_c: FloatArray
    scaling: Coefficients


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchChoice:
    """The best candidate of N pairs, every field (N,); all 0 where the pair is infeasible."""

    goodput: FloatArray
    throughput: FloatArray
    batch_size: FloatArray
    local_batch: FloatArray
    accumulation_steps: FloatArray


def choose_batches(pairs: Pairs, num_candidates: int) -> BatchChoice:
    """Evaluate all pairs x candidates; every pair satisfies m_min R <= Bmax. One candidate: the smallest batch."""
    replicas = pairs.num_replicas[:, None].astype(np.float64)
    initial, highest = pairs.initial_batch[:, None], pairs.maximum_batch[:, None]
    lowest = np.maximum(initial, pairs.min_local_batch[:, None] * replicas)
    candidates = lowest * np.exp(np.log(highest / lowest) * np.linspace(0.0, 1.0, num_candidates))
    per_replica = candidates / replicas
    fewest = (replicas == 1) & (candidates > initial * (1.0 + _ROUNDING))
    accumulation = np.maximum(np.ceil(per_replica / pairs.max_local_batch[:, None] - _ROUNDING) - 1.0, fewest)
    local_batch = np.ceil(per_replica / (accumulation + 1.0) - _ROUNDING)
    batch = np.minimum(replicas * local_batch * (accumulation + 1.0), highest)

    throughput = batch / (_gradient_time_s(pairs, local_batch) * (accumulation + _stretch(pairs, local_batch)))
    goodput = throughput * efficiency(pairs.signal_share[:, None], batch / initial)
    goodput = np.where(local_batch >= pairs.min_local_batch[:, None], goodput, 0.0)

    # Positions in the flattened arrays: gathering by them is cheaper than along an axis.
    best = np.argmax(goodput, axis=1) + np.arange(0, goodput.size, num_candidates)
    feasible = goodput.ravel()[best] != 0

    def chosen(values: FloatArray) -> FloatArray:
        return np.where(feasible, values.ravel()[best], 0.0)

    return BatchChoice(
        goodput=chosen(goodput),
        throughput=chosen(throughput),
        batch_size=chosen(batch),
        local_batch=chosen(local_batch),
        accumulation_steps=chosen(accumulation),
    )


def equal_share(batch: int, num_replicas: int, num_micro_batches: int) -> int:
    """Sequences of every micro-batch of a replica with which a step has at most `batch`; 0 where it would have more.

    The last shares of a batch that was cut to the maximum are smaller; no trainer has such.
    """
    return batch // (num_replicas * num_micro_batches)


def _gradient_time_s(pairs: Pairs, local_batch: FloatArray) -> FloatArray:
    return gradient_time_s(pairs.alpha_c[:, None], pairs.beta_c[:, None], local_batch)


def _stretch(pairs: Pairs, local_batch: FloatArray) -> FloatArray:
    """The step that synchronises, in gradient times: at least 1."""
    scaling = pairs.scaling
    gradient_s = gradient_time_s(scaling.alpha_c[:, None], scaling.beta_c[:, None], local_batch)
    sync_s = sync_time_s(scaling, pairs.num_nodes, pairs.num_replicas, pairs.bandwidth_fraction)[:, None]
    return overlapped_time_s(gradient_s, sync_s, scaling.gamma[:, None]) / gradient_s
