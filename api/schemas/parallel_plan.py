"""3D-parallel plans: stages of replicas of tensor-parallel groups, or the short form of a symmetric one."""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from api.schemas.base import MAX_GPUS_PER_NODE, Count, Document, GpuIndices, GpuMap, Name, NumGpus
from api.schemas.model import ZeroStage
from models.pipeline_schedule import PipelineSchedule
from models.transformer import MAX_EXPERTS, MAX_LAYERS, Checkpointing

_NumLayers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]


class ReplicaDoc(Document):
    """One tensor-parallel group: its GPUs sit in one node, in the order of the tensor coordinate."""

    node: Name
    gpu_type: Name
    gpus: GpuIndices
    local_batch: Count
    """Sequences of every micro-batch that the replica works on, or on its part of, with context parallelism."""


class StageDoc(Document):
    """One pipeline stage; the first also holds the embedding, the last one the head."""

    num_layers: _NumLayers
    replicas: Annotated[tuple[ReplicaDoc, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    checkpointing: Checkpointing | None = None
    """Activation checkpointing of its layers (null: as the job's model says), where the software has stages that differ
    in it."""
    recomputed_layers: _NumLayers | None = None
    """With `full`: the first so many layers (of every part as many) are recomputed, the others keep everything (null:
    all are recomputed)."""


_Parts = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
Sharing = Annotated[int, Field(ge=1, le=MAX_EXPERTS)]


class TrainingChoiceDoc(Document):
    """How a plan trains, as asked for or chosen."""

    checkpointing: Checkpointing | None
    """Null: the model is a list of operators."""
    zero_stage: ZeroStage
    by_stage: bool = False
    """Stages of the plan have a checkpointing of their own; `checkpointing` is that of all others."""


class ParallelPlanDoc(Document):
    """Stages in pipeline order; degrees may differ between stages, local batches between replicas."""

    stages: Annotated[tuple[StageDoc, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    num_micro_batches: Count
    """Micro-batches of one iteration."""
    virtual_stages: _Parts = 1
    """Parts into which every stage is cut; above 1 the pipeline is interleaved."""
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    """zero-bubble: interleaved, with passes of their own for the gradients of weights. zbv: likewise with two parts a
    stage, of which the second comes back from the last stage to the first."""
    context_parallel: Sharing = 1
    """Consecutive replicas that share their sequences, each with a part of the tokens (ring attention)."""
    expert_parallel: Sharing = 1
    """Consecutive replicas that hold different experts."""
    training: TrainingChoiceDoc | None = None
    """How it trains, where the job leaves that open (null: as the job says)."""


class SymmetricPlanDoc(Document):
    """A plan with the same degrees in all stages, on the GPUs of `current` in order: pipe slowest, then data,
    context, tensor fastest."""

    pp: _NumLayers
    dp: NumGpus
    tp: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)]
    num_micro_batches: Count
    """Micro-batches of one iteration."""
    layers: Annotated[tuple[_NumLayers, ...], Field(min_length=1, max_length=MAX_LAYERS)] | None = None
    """Layers of each stage (null: spread evenly)."""
    virtual_stages: _Parts = 1
    """Parts into which every stage is cut; above 1 the pipeline is interleaved, where the software has that."""
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    """Of several parts a stage: zero-bubble, of two: zbv, where the software has that."""
    context_parallel: Sharing = 1
    """Parts of a sequence, each on GPUs of its own (ring attention), where the software has that: the plan has
    pp x dp x tp x context_parallel GPUs."""
    expert_parallel: Sharing = 1
    """Parts of the experts, each on some of the dp x context_parallel replicas, where the software has that."""
    recomputed_layers: _NumLayers | None = None
    """Full checkpointing of the first so many layers of every part, as Megatron's `--recompute-num-layers` (null: as
    the job's model says)."""


def _which_form(value: Any) -> str:
    full = "stages" in value if isinstance(value, dict) else isinstance(value, ParallelPlanDoc)
    return "full" if full else "symmetric"


AnyPlanDoc = Annotated[
    Annotated[ParallelPlanDoc, Tag("full")] | Annotated[SymmetricPlanDoc, Tag("symmetric")],
    Discriminator(_which_form),
]


class ExpansionDoc(Document):
    """GPUs that an earlier plan added to a running job beyond its basic demand."""

    gpus: GpuMap
    benefit: float
    """The marginal benefit for which they were given."""
