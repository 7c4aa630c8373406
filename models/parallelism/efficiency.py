r"""What a plan makes of its GPUs.

    MFU = model FLOPs per second / peak of all GPUs of the plan at the precision of the products

Model FLOPs are three times those of the forward pass (`architecture`): per token 6 for every weight of a product that
works on it, the head's included and the embedding's not, and 12 x heads x head size x length of the sequence per layer
for attention, whose causal mask does not halve them (Chowdhery et al. 2022, PaLM, appendix B). What checkpointing
repeats does not count.

    power of a GPU = TDP (w + (1 - w) busy),    busy: share of the iteration in which its stage computes

At work a GPU that trains takes what it is built for; phases in which GPUs wait for others or for the network (bubbles,
exposed communication) take much less (arXiv:2508.14318), between three quarters of it and hardly more than idle, by how
software waits (Patel et al. 2024, POLCA). w = 0.5 is an assumption between these, not a fit: where GPUs are busy for
80 % of the time, 0.2 would make it 7 % less, 0.75 6 % more. Of GPUs alone: hosts, network and cooling come on top; a
node with eight H100 (8 x 700 W) takes 7.8 kW while it trains, 76 % of what it is rated for (Newkirk et al. 2025,
arXiv:2506.14551).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.parallel_plan import ParallelPlan
from models.performance.iteration.architecture import profile_of
from models.performance.iteration.times import IterationTime
from models.performance.iteration.whitebox import peak_flops_per_s
from models.transformer import JobModel, Transformer
from topology.gpu_catalogue import known_product

# What a GPU that waits is taken to need of its TDP.
WAITING = 0.5
_S_PER_DAY = 86_400.0
_J_PER_KWH = 3.6e6
_PASSES = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """`mfu` None: the peak is not known. `tokens_per_s_per_gpu` None: the model has no sequences. `days` None: no
    number of tokens was given. Energy of the GPUs, of an iteration, a token and all tokens: None where the power of a
    GPU is not known, or for the reasons before.
    """

    mfu: float | None
    tokens_per_s_per_gpu: float | None
    days: float | None
    iteration_kwh: float | None
    joules_per_token: float | None
    total_kwh: float | None


def efficiency_of(
    model: JobModel,
    plan: ParallelPlan,
    throughput: float,
    peaks: Mapping[str, float],
    num_tokens: int | None = None,
    busy: Sequence[float] | None = None,
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
    busy
        Of `busy_shares`; None: GPUs are at work all the time.
    """
    profile = profile_of(model)
    peak: float | None = 0.0
    power_w: float | None = 0.0
    for i, stage in enumerate(plan.stages):
        share = WAITING + (1.0 - WAITING) * (1.0 if busy is None else busy[i])
        for replica in stage.replicas:
            known = peak_flops_per_s(replica.gpu_type, profile.flops_precision, peaks.get(replica.gpu_type))
            peak = None if peak is None or known is None else peak + known * len(replica.gpus)
            product = known_product(replica.gpu_type)
            tdp_w = None if product is None else product.tdp_w
            power_w = None if power_w is None or tdp_w is None else power_w + share * tdp_w * len(replica.gpus)
    flops_per_s = _PASSES * float(profile.prefix.forward_flops[-1]) * throughput
    tokens_per_s = throughput * model.sequence_length if isinstance(model, Transformer) else None
    token_j = None if power_w is None or tokens_per_s is None else power_w / tokens_per_s
    return Efficiency(
        mfu=flops_per_s / peak if peak else None,
        tokens_per_s_per_gpu=None if tokens_per_s is None else tokens_per_s / plan.num_gpus,
        days=None if num_tokens is None or tokens_per_s is None else num_tokens / tokens_per_s / _S_PER_DAY,
        iteration_kwh=None if power_w is None else power_w * plan.global_batch / throughput / _J_PER_KWH,
        joules_per_token=token_j,
        total_kwh=None if num_tokens is None or token_j is None else num_tokens * token_j / _J_PER_KWH,
    )


def busy_shares(plan: ParallelPlan, iteration: IterationTime) -> list[float]:
    """Share of a predicted iteration in which the GPUs of every stage compute, (S,)."""
    exchanging = (stage.tensor_communication_s + stage.ring_s + stage.all_to_all_s for stage in iteration.stages)
    computing = (
        plan.num_micro_batches * (stage.forward_s + stage.backward_s - other_s) + stage.optimizer_s
        for stage, other_s in zip(iteration.stages, exchanging, strict=True)
    )
    return [min(seconds / iteration.total_s, 1.0) for seconds in computing]
