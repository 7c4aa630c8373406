r"""What a plan makes of its GPUs.

    MFU = model FLOPs per second / peak of all GPUs of the plan at the precision of the products

Model FLOPs are three times those of the forward pass (`architecture`): per token 6 for every weight of a product that
works on it, the head's included and the embedding's not, and 12 x heads x head size x length of the sequence per layer
for attention, whose causal mask does not halve them (Chowdhery et al. 2022, PaLM, appendix B). What checkpointing
repeats does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from models.parallel_plan import ParallelPlan
from models.performance.iteration.architecture import profile_of
from models.performance.iteration.whitebox import peak_flops_per_s
from models.transformer import JobModel, Transformer

_S_PER_DAY = 86_400.0
_PASSES = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """`mfu` None: the peak is not known. `tokens_per_s_per_gpu` None: the model has no sequences. `days` None: no
    number of tokens was given."""

    mfu: float | None
    tokens_per_s_per_gpu: float | None
    days: float | None


def efficiency_of(
    model: JobModel,
    plan: ParallelPlan,
    throughput: float,
    peaks: Mapping[str, float],
    num_tokens: int | None = None,
) -> Efficiency:
    """Rate a plan.

    Parameters
    ----------
    throughput
        Samples per second.
    peaks
        GPU type -> FLOP/s, for types that the catalogue does not have.
    num_tokens
        Tokens to train on.
    """
    profile = profile_of(model)
    peak: float | None = 0.0
    for replica in (replica for stage in plan.stages for replica in stage.replicas):
        known = peak_flops_per_s(replica.gpu_type, profile.flops_precision, peaks.get(replica.gpu_type))
        peak = None if peak is None or known is None else peak + known * len(replica.gpus)
    flops_per_s = _PASSES * float(profile.prefix.forward_flops[-1]) * throughput
    tokens_per_s = throughput * model.sequence_length if isinstance(model, Transformer) else None
    return Efficiency(
        mfu=flops_per_s / peak if peak else None,
        tokens_per_s_per_gpu=None if tokens_per_s is None else tokens_per_s / plan.num_gpus,
        days=None if num_tokens is None or tokens_per_s is None else num_tokens / tokens_per_s / _S_PER_DAY,
    )
