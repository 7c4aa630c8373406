r"""Peak memory of a stage (Suika appendix A.3), with ZeRO and activation checkpointing.

    M = M_param-optim + M_activ + M_grad,   held against (1 - headroom) of the GPU's memory

    M_param-optim  (parameters / Z3 + optimiser states / Z1) p / TP
    M_activ        b (min(PP - i, N_b) + g) (k_activ-p q / TP + k_activ-np r / S) + b (w_p / TP + w_np / S)
    M_grad         k_param p / TP / Z2 where gradients and all activations coexist, N_b > PP - i

p, q, r: shares of the stage in parameters and activations. ZeRO stage z shards over the replicas: Z1 = DP from z = 1,
Z2 from z = 2, Z3 from z = 3, else 1. Of the layer at work gradients are there in full from z = 2, weights at z = 3: one
mean layer more. What is reduced of the layer before and gathered of the next one meanwhile is left to the headroom:
with it, 14 of 302 published plans would not fit that ran, 8 without.
Of experts that replicas share (`elsewhere`: the part of p that others hold) there is less: p (1 - elsewhere) where ZeRO
does not shard, and p / DP as without sharing where it does, since fewer replicas have the same experts. b counts parts
of sequences with context parallelism, and the activations are those of a part. g: what waits for passes of weights, 0
but for zero-bubble schedules (`models.pipeline_schedule`, also PP - i of schedules other than 1F1B).
Checkpointing is in k_activ-p and k_activ-np of the profile; w_p and w_np are what the layer keeps that is being
repeated. S: TP with sequence parallelism, else 1. Where a stage has a checkpointing of its own, its layers keep what
those of a job with that checkpointing do.

Reading: where N_b <= PP - i, all forward passes end before the first backward pass, and the paper counts no gradients.
They grow while the activations go, and stay when these are gone: the peak is the larger of the two, not the
activations alone, which differs where activations are small.
"""

from dataclasses import dataclass

import numpy as np

from models.performance.iteration.coefficients import SizeCoefficients
from models.performance.iteration.formulas import Floats
from models.performance.iteration.profile import ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Peak memory of a GPU of one stage in bytes, and its parts; `gradient_bytes` is what gradients add to the peak."""

    parameter_bytes: float
    optimizer_bytes: float
    gradient_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        """The sum of the parts."""
        return self.parameter_bytes + self.optimizer_bytes + self.gradient_bytes + self.activation_bytes


def shard(share: Floats, tp: Floats, dp: Floats, sharded: bool, elsewhere: Floats = 0.0) -> Floats:
    """What one GPU holds of a stage's state in mean layers; `sharded`: ZeRO spreads it over the replicas; `elsewhere`:
    the part of it that are experts of other replicas."""
    return share / tp / dp if sharded else share / tp * (1.0 - elsewhere)


def in_full(tp: Floats, dp: Floats, sharded: bool, elsewhere: Floats = 0.0) -> Floats:
    """What a GPU has of the layer at work beside its shard of it, in mean layers."""
    return (1.0 - 1.0 / dp - elsewhere) / tp if sharded else 0.0


def parameter_shard(share: Floats, tp: Floats, dp: Floats, zero_stage: int, elsewhere: Floats = 0.0) -> Floats:
    """Weights on one GPU at the peak in mean layers."""
    is_sharded = zero_stage >= 3
    return shard(share, tp, dp, is_sharded, elsewhere) + in_full(tp, dp, is_sharded, elsewhere)


def gradient_shard(share: Floats, tp: Floats, dp: Floats, zero_stage: int, elsewhere: Floats = 0.0) -> Floats:
    """Gradients on one GPU in mean layers, without those that are in full for a while."""
    return shard(share, tp, dp, zero_stage >= 2, elsewhere)


def optimizer_shard(share: Floats, tp: Floats, dp: Floats, zero_stage: int, elsewhere: Floats = 0.0) -> Floats:
    """Optimiser states on one GPU in mean layers, and what it updates."""
    return shard(share, tp, dp, zero_stage >= 1, elsewhere)


def activation_bytes(
    profile: ModelProfile, sizes: SizeCoefficients, tp: Floats, partitioned: Floats, replicated: Floats
) -> Floats:
    """What a sample in flight keeps on a GPU, for shares of activations."""
    split = tp if profile.sequence_parallel else 1.0
    return (
        sizes.partitioned_activation_bytes * partitioned / tp + sizes.replicated_activation_bytes * replicated / split
    )


def working_bytes(profile: ModelProfile, tp: Floats) -> Floats:
    """What a sample keeps on a GPU in the layer that is being repeated."""
    split = tp if profile.sequence_parallel else 1.0
    return profile.working_partitioned_bytes / tp + profile.working_replicated_bytes / split


def peak_parts(
    *,
    profile: ModelProfile,
    sizes: SizeCoefficients,
    parameters: Floats,
    partitioned: Floats,
    replicated: Floats,
    tp: Floats,
    dp: Floats,
    local_batch: Floats,
    stages_behind: Floats,
    num_micro_batches: Floats,
    elsewhere: Floats = 0.0,
    kept: tuple[Floats, Floats] | None = None,
    waiting: Floats = 0.0,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Parameters, optimiser states, what gradients add to the peak, and activations of a GPU in bytes.

    Parameters
    ----------
    parameters, partitioned, replicated
        Shares of the stage (p, q, r).
    stages_behind
        PP - i: this stage and all behind it.
    elsewhere
        Part of the stage's parameters that are experts of other replicas.
    kept
        What a sample in flight keeps and what the layer keeps that is being repeated, in bytes; None: by the shares.
    waiting
        g.
    """
    zero_stage = profile.zero_stage
    per_sample, working = kept or (
        activation_bytes(profile, sizes, tp, partitioned, replicated),
        working_bytes(profile, tp),
    )
    activation = local_batch * ((np.minimum(num_micro_batches, stages_behind) + waiting) * per_sample + working)
    gradient = sizes.gradient_bytes * gradient_shard(parameters, tp, dp, zero_stage, elsewhere)
    passing = sizes.gradient_bytes * in_full(tp, dp, zero_stage >= 2, elsewhere)
    coexist = np.greater(num_micro_batches, stages_behind)
    return (
        sizes.parameter_bytes * parameter_shard(parameters, tp, dp, zero_stage, elsewhere),
        sizes.optimizer_bytes * optimizer_shard(parameters, tp, dp, zero_stage, elsewhere),
        passing + np.where(coexist, gradient, np.maximum(np.subtract(gradient, activation), 0.0)),
        activation,
    )
