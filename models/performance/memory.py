r"""Peak memory of a stage (Suika appendix A.3), with ZeRO and activation checkpointing.

    M = M_param-optim + M_activ + M_grad,   held against (1 - headroom) of the GPU's memory

    M_param-optim  (parameters / Z3 + optimiser states / Z1) p / TP
    M_activ        b min(PP - i, N_b) (k_activ-p q / TP + k_activ-np r)
    M_grad         k_param p / TP / Z2, 0 when all forward passes end before the first backward pass (N_b <= PP - i)

p, q, r: shares of the stage in parameters and activations. ZeRO stage z shards over the replicas: Z1 = DP from z = 1,
Z2 from z = 2, Z3 from z = 3, else 1. Checkpointing is in k_activ-p and k_activ-np of the profile.
"""

from dataclasses import dataclass
from typing import Protocol

from models.performance.coefficients import SizeCoefficients
from models.performance.profile import ModelProfile


class Shares(Protocol):
    """The part of `StageShares` that memory depends on."""

    @property
    def parameters(self) -> float:
        """Parameters in mean layers."""

    @property
    def partitioned(self) -> float:
        """Partitioned activations in mean layers."""

    @property
    def replicated(self) -> float:
        """Replicated activations in mean layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Peak memory of a GPU of one stage in bytes, and its parts."""

    parameter_bytes: float
    optimizer_bytes: float
    gradient_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        """The sum of the parts."""
        return self.parameter_bytes + self.optimizer_bytes + self.gradient_bytes + self.activation_bytes


def stage_memory(
    *,
    profile: ModelProfile,
    sizes: SizeCoefficients,
    shares: Shares,
    tp: int,
    dp: int,
    local_batch: int,
    stages_behind: int,
    num_micro_batches: int,
) -> StageMemory:
    """Peak memory of a GPU.

    Parameters
    ----------
    stages_behind
        PP - i: this stage and all behind it, as many micro-batches as it holds at a time.
    """
    in_flight = min(stages_behind, num_micro_batches)
    activation = sizes.partitioned_activation_bytes * shares.partitioned / tp
    activation += sizes.replicated_activation_bytes * shares.replicated
    shard = shares.parameters / tp
    zero = profile.zero_stage
    coexist = num_micro_batches > stages_behind
    return StageMemory(
        parameter_bytes=sizes.parameter_bytes * shard / (dp if zero >= 3 else 1),
        optimizer_bytes=sizes.optimizer_bytes * shard / (dp if zero >= 1 else 1),
        gradient_bytes=sizes.gradient_bytes * shard / (dp if zero >= 2 else 1) if coexist else 0.0,
        activation_bytes=local_batch * in_flight * activation,
    )
