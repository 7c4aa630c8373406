r"""Iteration time of a 3D plan (Suika appendix A.2) as functions of arrays: everything broadcasts, times in seconds.

Notation: stage i with l_i layers, DP_i replicas of TP_i GPUs, local batch b_ij, N_b micro-batches.

TP   forward computation    k_comp b c / TP                 c: share of the stage, l_i where all layers are equal
     forward communication  2 k_activ b t 2 (1 - 1/TP) / bandwidth      t: share of the stage, l_i likewise
     bandwidth              intra-node x min(log2 V' / log2 saturation, 1), V' = k_activ b 2 (1 - 1/TP)
     backward               k_backward x computation + r x forward communication    r: 1, 2 if the forward is repeated
     optimiser              k_optim p / TP / Z1             p: share of the stage's parameters
DP   times are the maxima over the replicas;
     reduction              (1 - 1/DP - x) p (z_g k_param + z_w weights) / bandwidth
                            x: part of p that are experts of other replicas; an expert is reduced over every e-th only
     exposed part           (hidden behind^k + reduction^k)^(1/k) - hidden behind
PP   T = sum_i c_i + (N_b - 1) max_i c_i + max_i (extra_i - sum_{j<i} backward_j)
     c_i: forward + backward of a stage; extra_i: exposed part + optimiser

Kernels (`kernels`) are slower at some sizes than at others: where they are known, the computation of both passes is
multiplied by their slowdowns at (b, TP). Stragglers and congestion (`scaling`) grow with the number of GPUs.

ZeRO is an extension: from stage 1 on every replica updates its part of the parameters (Z1 = DP, else 1). Gradients are
reduced z_g and gathered z_w times: at stage 0 the gradients themselves (z_g = 2, an all-reduce), from stage 1 on the
weights (1 and 1). Stage 2 reduces behind every micro-batch, since no replica keeps all gradients (N_b and 1); stage 3
also gathers the weights before every forward and every backward pass (N_b and 2 N_b). The last backward pass hides of
it what the overlap says; what happens with every micro-batch is hidden behind every backward pass (stage 2), and
behind every forward pass too (stage 3).

Of tied embeddings (an extension too, see `shares`), p of the last of several stages has the copy. The all-reduce that
keeps the copies equal, of the embedding's gradients between first and last stage once per step, is neglected: it
depends on where these two stages sit, while everything above is of one stage. It moves V h gradients, at most what the
first stage's own reduction moves with two replicas, and half of it with many.

Readings where the print cannot hold:
- The exponent of the overlap is printed as -1; 1/k makes it no overlap at k = 1 (backward + reduction) and
  max(backward, reduction) as k grows, which is what the text and the works it cites say.
- The reduction volume is printed with 1 - 1/TP_i; a ring over DP_i replicas moves 2 (1 - 1/DP_i) of the gradients, and
  nothing when there is one replica.
- It is printed without / TP_i. Across nodes that is right: the tensor ranks of a node reduce at the same time over the
  node's network bandwidth, which they share. Inside a node every GPU has links of its own, so there we divide.
- The extra times are of the first stage at least: stage i ends its last backward pass sum_{j<i} backward_j earlier.
"""

import numpy as np

from stowplan.arrays import FloatArray, in_order

Floats = FloatArray | float


def all_reduce_bytes(payload_bytes: Floats, members: Floats) -> Floats:
    """Bytes that each member of a ring all-reduce sends for a payload; 0 for one member."""
    return 2.0 * payload_bytes * (1.0 - 1.0 / members)


def saturated_bandwidth(peak_bytes_per_s: Floats, message_bytes: Floats, saturation_bytes: Floats) -> Floats:
    """Effective bandwidth of messages too small to fill the links, linear in log2 of their size (A.2)."""
    reached = np.log2(np.maximum(message_bytes, 2.0)) / np.log2(np.maximum(saturation_bytes, 4.0))
    return peak_bytes_per_s * np.minimum(reached, 1.0)


def tensor_communication_s(
    activation_bytes: Floats,
    local_batch: Floats,
    share: Floats,
    tp: Floats,
    intra_bytes_per_s: Floats,
    saturation_bytes: Floats,
) -> Floats:
    """Time of the tensor-parallel all-reduces of one forward pass: two for every layer; 0 at TP 1.

    Parameters
    ----------
    activation_bytes
        k_activ: what one all-reduce carries for one sample.
    share
        Layers of the stage, or what they count of the mean layer.
    """
    message = all_reduce_bytes(activation_bytes * local_batch, tp)
    return 2.0 * share * message / saturated_bandwidth(intra_bytes_per_s, message, saturation_bytes)


def reduction_volume_bytes(
    gradient_bytes: Floats,
    weight_bytes: Floats,
    dp: Floats,
    zero_stage: int,
    num_micro_batches: Floats,
    elsewhere: Floats = 0.0,
) -> Floats:
    """Bytes that each replica sends in an iteration to have the same weights as the others; 0 at DP 1.

    `elsewhere`: part of the weights that are experts of other replicas.
    """
    once: Floats = 1.0
    gradients = (2.0, once, num_micro_batches, num_micro_batches)[zero_stage]
    weights = (0.0, once, once, 2.0 * num_micro_batches)[zero_stage]
    return (gradients * gradient_bytes + weights * weight_bytes) * np.maximum(1.0 - 1.0 / dp - elsewhere, 0.0)


def hiding_s(forward_s: Floats, backward_s: Floats, zero_stage: int, num_micro_batches: Floats) -> Floats:
    """Computation that the gradient reduction (and at stage 3 the gathering of weights) may be hidden behind."""
    if zero_stage < 2:
        return backward_s
    return num_micro_batches * (backward_s if zero_stage == 2 else forward_s + backward_s)


def scaling(num_gpus: Floats, scale_loss: float) -> FloatArray:
    """Factor on the iteration time: what stragglers and congestion cost, for every doubling of more than 8 GPUs."""
    return np.asarray(1.0 + scale_loss * np.maximum(np.log2(np.asarray(num_gpus) / 8.0), 0.0))


def exposed_reduction_s(backward_s: Floats, reduction_s: Floats, overlap: Floats) -> FloatArray:
    """Part of the gradient reduction that `backward_s` of computation does not hide; falls with `overlap` (k >= 1)."""
    longer = np.maximum(backward_s, reduction_s)
    shorter = np.minimum(backward_s, reduction_s)
    # Scaled by the longer one, powers of small times do not underflow; by log1p and expm1, small parts keep digits.
    ratio = np.divide(shorter, longer, out=np.zeros(np.shape(longer)), where=np.asarray(longer > 0))
    joined = np.expm1(np.log1p(ratio**overlap) / overlap)
    return np.asarray(longer * joined + np.maximum(np.subtract(reduction_s, backward_s), 0.0))


def pipeline_s(
    forward_s: FloatArray, backward_s: FloatArray, extra_s: FloatArray, num_micro_batches: Floats
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Warm-up, steady and extra time of 1F1B pipelines.

    Parameters
    ----------
    forward_s, backward_s, extra_s
        (..., S) per stage and micro-batch; `extra_s` is exposed reduction plus optimiser. Stages that a plan does not
        have are 0, and stand behind those that it has.
    num_micro_batches
        (...)
    """
    both = forward_s + backward_s
    warm_up = in_order(both)
    steady = (num_micro_batches - 1.0) * both.max(axis=-1)
    before = np.cumsum(backward_s, axis=-1) - backward_s
    return warm_up, np.asarray(steady), (extra_s - before).max(axis=-1)
