"""3D-parallel plans: stages of replicas of tensor-parallel groups, or the short form of a symmetric one."""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from api.schemas.base import MAX_GPUS_PER_NODE, Count, Document, GpuIndices, GpuMap, Name, NumGpus
from models.transformer import MAX_LAYERS, Checkpointing

_NumLayers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]


class ReplicaDoc(Document):
    """One tensor-parallel group: its GPUs sit in one node, in the order of the tensor coordinate."""

    node: Name
    gpu_type: Name
    gpus: GpuIndices
    local_batch: Count
    """Sequences of every micro-batch that the replica works on."""


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


class ParallelPlanDoc(Document):
    """Stages in pipeline order; degrees may differ between stages, local batches between replicas."""

    stages: Annotated[tuple[StageDoc, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    num_micro_batches: Count
    """Micro-batches of one iteration."""
    virtual_stages: _Parts = 1
    """Parts into which every stage is cut; above 1 the pipeline is interleaved."""


class SymmetricPlanDoc(Document):
    """A plan with the same degrees in all stages, on the GPUs of `current` in order: pipe slowest, tensor fastest."""

    pp: _NumLayers
    dp: NumGpus
    tp: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)]
    num_micro_batches: Count
    """Micro-batches of one iteration."""
    layers: Annotated[tuple[_NumLayers, ...], Field(min_length=1, max_length=MAX_LAYERS)] | None = None
    """Layers of each stage (null: spread evenly)."""
    virtual_stages: _Parts = 1
    """Parts into which every stage is cut; above 1 the pipeline is interleaved, where the software has that."""
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
