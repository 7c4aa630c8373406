"""What a job says about its performance: one of three kinds, told apart by `kind`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.base import MAX_ITEMS, Count, Document, Fraction, Name, NonNegative, NumGpus, Positive


class ThroughputParametersDoc(Document):
    """Pollux/Sia throughput model on one GPU type, in seconds: T_grad = alpha_c + beta_c m, T_sync by replicas."""

    alpha_c: NonNegative
    """Constant part of the gradient time."""
    beta_c: NonNegative
    """Gradient time per sample of the local batch."""
    alpha_r: NonNegative
    """Synchronisation time of two replicas inside a node."""
    beta_r: NonNegative
    """What every further replica adds inside a node."""
    alpha_n: NonNegative
    """Synchronisation time of two replicas across nodes, at the full inter-node bandwidth: over nodes that span a tier
    with a smaller `bandwidth_fraction` it, and `beta_n`, take as many times longer."""
    beta_n: NonNegative
    """What every further replica adds across nodes."""
    gamma: Annotated[float, Field(ge=1, le=100)]
    """Overlap of compute and synchronisation: 1 is none."""


class BatchRangeDoc(Document):
    """Samples per step; statistical efficiency is 1 at `initial`."""

    initial: Count
    maximum: Count


class GradientDoc(Document):
    """Gradient noise at the initial batch."""

    squared_norm: NonNegative
    """Squared norm of the mean gradient."""
    variance: NonNegative
    """Variance of the gradient, in the same unit."""


class TypeProfileDoc(Document):
    """One job on one GPU type: throughput parameters and the local batches that memory allows."""

    parameters: ThroughputParametersDoc
    max_local_batch: Count
    min_local_batch: Count = 1
    single_gpu_only: bool = False
    """The synchronisation terms were never seen on this type; they are bootstrapped from another one (Sia Eq. 1)."""
    gpus_per_replica: NumGpus = 1
    """GPUs of one replica of a hybrid-parallel job."""


class ObservationDoc(Document):
    """One measured point."""

    gpu_type: Name
    num_nodes: Count
    num_replicas: Count
    local_batch: Count
    step_time_s: Positive
    """One forward-backward pass with gradient synchronisation."""
    sync_time_s: NonNegative
    """The part of the step that waits for synchronisation."""
    bandwidth_fraction: Fraction = 1.0
    """Share of the inter-node bandwidth that the nodes had between them: below 1 where they spanned a slow tier."""


class GoodputDoc(Document):
    """Elastic data-parallel training: throughput times statistical efficiency, batch size chosen by the planner.

    Give either `profiles` (fitted parameters per GPU type) or `observations` (raw measurements, fitted here).
    """

    kind: Literal["goodput"]
    batch: BatchRangeDoc
    gradient: GradientDoc
    profiles: Annotated[dict[Name, TypeProfileDoc], Field(min_length=1, max_length=256)] | None = None
    """GPU type -> profile; the job cannot run on a type that is missing."""
    observations: Annotated[tuple[ObservationDoc, ...], Field(max_length=MAX_ITEMS)] | None = None
    """Measurements; parameters are fitted to them. May be empty with `shared_with`."""
    shared_with: Name | None = None
    """With observations: an application; jobs of the snapshot that name the same one share what they have observed."""
    max_local_batch: dict[Name, Count] = Field(default_factory=dict)
    """With observations: per GPU type, where memory allows more than the largest observed local batch."""
    gpus_per_replica: dict[Name, NumGpus] = Field(default_factory=dict)
    """With observations: per GPU type, GPUs of one replica of a hybrid-parallel job."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.profiles is None) == (self.observations is None):
            raise PydanticCustomError("one_of", "give exactly one of profiles and observations")
        if self.profiles is not None and (self.max_local_batch or self.gpus_per_replica):
            raise PydanticCustomError(
                "one_of", "max_local_batch and gpus_per_replica go with observations; with profiles they stand in each"
            )
        if self.profiles is not None and self.shared_with is not None:
            raise PydanticCustomError("one_of", "shared_with goes with observations; profiles are not shared")
        if self.observations == () and self.shared_with is None:
            raise PydanticCustomError(
                "empty", "observations is empty; give at least one, or an application in shared_with"
            )
        return self


class TableEntryDoc(Document):
    """A value for `num_gpus` GPUs of one type; without `num_nodes` it holds for every node count."""

    gpu_type: Name
    num_gpus: NumGpus
    value: float
    num_nodes: Count | None = None


Entries = Annotated[tuple[TableEntryDoc, ...], Field(min_length=1, max_length=MAX_ITEMS)]


class ThroughputTableDoc(Document):
    """Samples/s per (GPU type, count) at a fixed batch size."""

    kind: Literal["throughput_table"]
    entries: Entries
    batch_size: Count | None = None


class GoodputTableDoc(Document):
    """Explicit goodput per (GPU type, count), any unit that is the same along the row.

    With the Sia parameter `objective = "given_costs"` the values are costs to be minimised.
    """

    kind: Literal["goodput_table"]
    entries: Entries


PerformanceDoc = Annotated[GoodputDoc | ThroughputTableDoc | GoodputTableDoc, Field(discriminator="kind")]
