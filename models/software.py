"""What trains a model: which parts of a plan a software can run. How fast it is at them: `priors` of the performance
model.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Software(StrEnum):
    """The software that runs a plan.

    deepspeed: DeepSpeed with its pipeline engine, which Stowplan's own executor uses. native: that executor's own
    engine. megatron-lm: Megatron-LM before its core (2021): attention is not fused. megatron-core: Megatron-Core, NeMo
    and Megatron-Bridge, with Transformer Engine. torch: PyTorch's own parallelism, compiled (torchtitan, llm-foundry).
    torch-eager: the same, not compiled.
    """

    DEEPSPEED = "deepspeed"
    NATIVE = "native"
    MEGATRON_LM = "megatron-lm"
    MEGATRON_CORE = "megatron-core"
    TORCH = "torch"
    TORCH_EAGER = "torch-eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a software can run.

    sequence_parallel: activations that tensor parallelism replicates, split over its GPUs. virtual_stages: interleaved
    pipelines. fused_attention: attention that does not write its scores. fused_loss: a loss that keeps logits once, in
    fp32. fp8: 8-bit matrix products; mxfp8: with a scale for every 32 numbers. pipeline_zero: the highest ZeRO stage
    beside a pipeline. splits_sends: tensor ranks send a part of an activation each to the next stage, not the whole of
    it. overlaps_sends: a stage computes while its activations travel. context_parallel, expert_parallel: replicas that
    share sequences, by ring attention, and experts. recomputes_by_stage: stages differ in their activation
    checkpointing, also in how many of their layers it is of. zero_bubble: pipelines whose backward passes leave weights
    to passes of their own.
    """

    sequence_parallel: bool = True
    virtual_stages: bool = True
    fused_attention: bool = True
    fused_loss: bool = True
    fp8: bool = True
    mxfp8: bool = False
    pipeline_zero: int = 1
    splits_sends: bool = True
    overlaps_sends: bool = True
    context_parallel: bool = True
    expert_parallel: bool = True
    recomputes_by_stage: bool = True
    zero_bubble: bool = False


# DeepSpeed: its pipeline engine has 1F1B alone, refuses ZeRO 2 and 3 and sends whole activations, one after another; of
# its groups (pipe, data, model) none is of contexts, those of experts our executor makes for its own engine alone, and
# under DeepSpeed its trainer has one checkpointing of all layers.
# Loss: that of our trainer, as that of torch without compiling, keeps logits as they came, in fp32, and their gradient;
# the native engine's peak on an H200 says so (`python -m benchmarks gpu-steps --again`), DeepSpeed's has not been read.
# native: what `executor.trainable` and `executor.layout_faults` do not refuse.
# Megatron: arguments of its training scripts; ZeRO 1 is its distributed optimiser; MXFP8 is that of Transformer Engine.
# `--recompute-num-layers` and `--recompute-granularity` are read by every rank for itself. Its core has
# `--context-parallel-size` and `--expert-model-parallel-size`, that of 2021 has neither.
# torch: torchtitan, which wraps the layers of every stage, with `context_parallel_degree` and
# `expert_parallel_degree`; MXFP8 by torchao, which needs compiled products. Its zero-bubble schedules refuse compiled
# modules (`torch.distributed.pipelining.schedules`). Under its pipelines FSDP2 leaves gradients and weights whole until
# the last micro-batch (`stage.py`, `backward_maybe_with_nosync`); the native engine shards them again behind each.
FEATURES = MappingProxyType(
    {
        Software.DEEPSPEED: Features(
            sequence_parallel=False,
            virtual_stages=False,
            fused_loss=False,
            fp8=False,
            splits_sends=False,
            overlaps_sends=False,
            context_parallel=False,
            expert_parallel=False,
            recomputes_by_stage=False,
        ),
        Software.NATIVE: Features(
            fused_loss=False, fp8=False, pipeline_zero=3, context_parallel=False, zero_bubble=True
        ),
        Software.MEGATRON_LM: Features(
            fused_attention=False, fp8=False, overlaps_sends=False, context_parallel=False, expert_parallel=False
        ),
        Software.MEGATRON_CORE: Features(mxfp8=True),
        Software.TORCH: Features(pipeline_zero=3, mxfp8=True),
        Software.TORCH_EAGER: Features(fused_loss=False, pipeline_zero=3, zero_bubble=True),
    }
)
