"""Applications as they were measured, as replays take them: what `stowplan applications` writes."""

from typing import Annotated

from pydantic import Field

from api.schemas.base import Count, Document, Name, NumGpus

MAX_APPLICATIONS = 1000
_MAX_TYPES, _MAX_STEPS, _MAX_VALIDATIONS, _MAX_EPOCHS = 100, 20_000, 100, 10_000
# Nodes of one placement; others are told by sums.
_MAX_PLACED_NODES = 256
# Far above anything that was measured, far below what cannot be computed with.
_Measured = Annotated[float, Field(ge=1e-9, le=1e9)]
_MeasuredOrNone = Annotated[float, Field(ge=0, le=1e9)]
_Variance = Annotated[float, Field(ge=1e-100, le=1e100)]
_Square = Annotated[float, Field(ge=0, le=1e100)]


class StepTimeDoc(Document):
    """Mean times of one training step without accumulation."""

    num_nodes: NumGpus
    num_replicas: NumGpus
    local_batch: Count
    step_time_s: _Measured
    sync_time_s: _MeasuredOrNone
    """The part of the step that waits for gradients, without which it is one of accumulation."""
    gpus: Annotated[tuple[NumGpus, ...], Field(min_length=1, max_length=_MAX_PLACED_NODES)] | None = None
    """On each node; null where only sums are known."""


class TypeStepsDoc(Document):
    """What was measured on one GPU type, and the local batches that are possible there."""

    gpu_type: Name
    steps: Annotated[tuple[StepTimeDoc, ...], Field(min_length=1, max_length=_MAX_STEPS)]
    """At least one of them with `gpus`."""
    min_local_batch: Count
    max_local_batch: Count


class EpochDoc(Document):
    """Progress at the end of an epoch, and the gradient in it."""

    progress: Annotated[float, Field(ge=1e-6, le=1e15)]
    """Steps of the smallest batch at its efficiency; rises from epoch to epoch."""
    squared_norm: _Square
    """Of the mean gradient."""
    variance: _Variance
    """In the same unit."""


class BatchEpochsDoc(Document):
    """The epochs of a training with one global batch."""

    batch: Count
    epochs: Annotated[tuple[EpochDoc, ...], Field(min_length=1, max_length=_MAX_EPOCHS)]


class ApplicationDoc(Document):
    """An application as it was measured."""

    application: Name
    types: Annotated[tuple[TypeStepsDoc, ...], Field(min_length=1, max_length=_MAX_TYPES)]
    """Each GPU type once; those that the cluster does not have are left out."""
    validations: Annotated[tuple[BatchEpochsDoc, ...], Field(min_length=1, max_length=_MAX_VALIDATIONS)]
    """By batch, from the initial one to the largest, with as many epochs each."""
    restart_s: _MeasuredOrNone | None = None
    """How long it does no work after it got GPUs (null: as for all jobs)."""
    planned_restart_s: _MeasuredOrNone | None = None
    """What policies are told of that (null: as long as is true)."""
    slowdown: Annotated[float, Field(ge=1e-3, le=1e3)] = 1.0
    """How many times longer than measured all steps take, of which policies know nothing."""
