"""Measurements of running jobs: what ranks post, and what the service makes of it."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.base import MAX_BYTES, MAX_GPUS, Count, Document, Name, NonNegative, Positive
from api.schemas.model import CalibrationDoc, TransformerDoc
from api.schemas.parallel_plan import ParallelPlanDoc
from api.schemas.performance import GoodputDoc
from api.schemas.snapshot import ClusterDoc
from executor.training_options import Device

MAX_RECORDS = 10_000
_Launch = Annotated[int, Field(ge=1, le=10**15)]
_Coordinate = Annotated[int, Field(ge=0, lt=MAX_GPUS)]
_Time = Annotated[float, Field(ge=0, le=1e12)]
_Finite = Annotated[float, Field(ge=-1e300, le=1e300)]


class StepRecordDoc(Document):
    """One step of one rank; (launch, rank, step) occurs once. Times in seconds, sums over the micro-batches."""

    launch: _Launch
    """Start of the launch in ms since 1970, the same on all ranks."""
    rank: _Coordinate
    step: Count
    """Counts from 1 and goes on after a restart."""
    pipe: _Coordinate
    """Pipeline stage of the rank."""
    data: _Coordinate
    """Replica of the stage."""
    tensor: _Coordinate
    """Shard of the replica."""
    host: Name
    started_at_s: _Time
    """Unix time."""
    step_s: Annotated[float, Field(gt=0, le=1e9)]
    """The whole step; the parts that follow lie in it."""
    forward_s: Positive
    backward_s: Positive
    send_s: NonNegative
    receive_s: NonNegative
    load_s: NonNegative
    reduction_s: NonNegative
    optimizer_s: NonNegative
    num_micro_batches: Count
    tokens: Annotated[int, Field(ge=1, le=2**53)]
    """Of the step, over all ranks."""
    tokens_per_s: NonNegative
    peak_memory_bytes: Annotated[int, Field(ge=0, le=MAX_BYTES)]
    """On CUDA of tensors, on CPU of the process."""
    loss: _Finite
    learning_rate: NonNegative
    small_batch: Count
    """Sequences behind `small_gradient_square`: those of one replica."""
    small_gradient_square: NonNegative
    """Squared gradient norm over the small batch, averaged over the replicas."""
    large_batch: Count
    """Sequences of the step."""
    large_gradient_square: NonNegative
    """Squared gradient norm over the large batch, before clipping."""
    validation_loss: _Finite | None = None
    """Of the evaluation behind the step; null: there was none. It is not kept."""


class WholeStepDoc(Document):
    """One step, as a training program of your own tells of it; (launch, step) occurs once."""

    launch: _Launch
    """Start of the launch in ms since 1970."""
    step: Count
    """Counts from 1 and goes on after a restart."""
    started_at_s: _Time
    """Unix time."""
    step_s: Annotated[float, Field(gt=0, le=1e9)]
    """The whole step; of several that are told of at once their mean."""
    loss: _Finite | None = None


class MeasuredRunDoc(Document):
    """What a launch runs: needed once, before or with its first records."""

    launch: _Launch
    device: Device
    """What the ranks compute on."""
    transformer: TransformerDoc
    plan: ParallelPlanDoc
    """Rank r is the plan's r-th GPU: pipe slowest, then data, tensor fastest."""
    cluster: ClusterDoc
    """At least the nodes of the plan."""
    own_program: bool = False
    """A training program of your own runs the plan, and tells of `steps`, not `records`: how long they took, and of no
    part of them. They give factors on the times that are predicted of the job (`adjustment`), not coefficients."""


class MetricsBody(Document):
    """Steps of a job's ranks; kept all or not at all. What was posted before is not kept twice."""

    run: MeasuredRunDoc | None = None
    """May be left out when the service knows the launches of all records."""
    records: Annotated[tuple[StepRecordDoc, ...], Field(max_length=MAX_RECORDS)] = ()
    steps: Annotated[tuple[WholeStepDoc, ...], Field(max_length=MAX_RECORDS)] = ()
    """Of launches of programs of your own."""

    @model_validator(mode="after")
    def _has_any(self) -> Self:
        if not self.records and not self.steps:
            raise PydanticCustomError("missing_field", "lacks records, and steps of a program of your own: give any")
        return self


class MetricsReceiptDoc(Document):
    """What became of a batch."""

    accepted: int
    """Records that are new, and kept."""
    duplicates: int
    """Records that were there before."""


class StepSummaryDoc(Document):
    """One step of a launch: means over the ranks that have reported it. What a program of your own does not tell is
    null."""

    launch: int
    step: int
    num_ranks: int
    started_at: datetime
    """The first rank's start."""
    step_s: float
    forward_s: float | None
    backward_s: float | None
    send_s: float | None
    receive_s: float | None
    load_s: float | None
    reduction_s: float | None
    optimizer_s: float | None
    tokens_per_s: float | None
    loss: float | None
    learning_rate: float | None
    peak_memory_bytes: int | None
    """The largest of all ranks."""


class StepPageDoc(Document):
    """Steps of a job, from the newest launch and step on."""

    steps: tuple[StepSummaryDoc, ...]
    next: str | None
    """Path of the next page; null on the last one."""


class StepPageQuery(BaseModel):
    """Query parameters of the list of steps. Not strict: what stands in a URL is text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 100
    """Steps per page."""
    before: Annotated[str, Field(pattern=r"^[0-9]{1,15}\.[0-9]{1,10}$")] | None = None
    """Cursor of the next page; see `next`."""


class RunPerformanceDoc(Document):
    """One launch: measured against predicted step time."""

    launch: int
    started_at: datetime
    notation: str
    """The plan in short."""
    device: Device
    num_steps: int
    """Settled steps among the newest ones that were looked at."""
    measured_s: float | None
    """Median over the settled steps; null when there are too few."""
    white_box_s: float
    """As predicted from data sheets."""
    calibrated_s: float | None
    """As predicted with the calibration below."""
    used: bool
    """Whether the calibration contains this launch."""
    detail: str
    """Why it does not."""


class JobPerformanceDoc(Document):
    """What the measurements of a job say; the next plans for the job use it, unless they bring their own."""

    job_id: str
    calibration: CalibrationDoc | None
    """Coefficients of the performance model, and factors on times from steps of programs of your own; null: no launch
    can be used yet, its `detail` says why."""
    measured_since: datetime
    """Start of the first step."""
    measured_until: datetime
    """End of the last step."""
    num_records: int
    num_steps: int
    """Settled steps behind the calibration."""
    white_box_error: float | None
    """Median over the used launches of |predicted - measured| / measured, before calibration."""
    calibrated_error: float | None
    """The same after it, of the same launches."""
    runs: tuple[RunPerformanceDoc, ...]
    """The newest launches, newest first."""
    performance: GoodputDoc | None
    """For Sia: observations of the data-parallel launches, and the gradient noise; null where they tell neither."""
