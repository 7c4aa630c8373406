"""The snapshot: a cluster and its jobs at one moment."""

from typing import Annotated, Any

from pydantic import AwareDatetime, Discriminator, Field, Tag, TypeAdapter

from api.schemas.base import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_GPUS_PER_NODE,
    MAX_ITEMS,
    Count,
    Document,
    ForecasterName,
    Fraction,
    GpuIndex,
    GpuMap,
    Name,
    NonNegative,
    NumGpus,
    Positive,
)
from api.schemas.calendar import CalendarReference, CalendarSource
from api.schemas.model import CalibrationSource
from api.schemas.open_model import OpenOperatorModelDoc, OpenTransformerDoc
from api.schemas.parallel_plan import AnyPlanDoc, ExpansionDoc
from api.schemas.performance import PerformanceDoc
from models.workload import Adaptivity
from topology.cluster import NodeState


def _list_or_count(value: Any) -> str:
    return "indices" if isinstance(value, list | tuple) else "count"


GpusInUse = Annotated[
    Annotated[tuple[GpuIndex, ...], Field(max_length=MAX_GPUS_PER_NODE), Tag("indices")]
    | Annotated[int, Field(ge=0, le=MAX_GPUS_PER_NODE), Tag("count")],
    Discriminator(_list_or_count),
]


class GpuTypeDoc(Document):
    """One GPU product."""

    name: Name
    memory_bytes: Annotated[int, Field(ge=1, le=MAX_BYTES)]
    peak_flops_per_s: Positive
    intra_node_bandwidth_bytes_per_s: Positive
    inter_node_bandwidth_bytes_per_s: Positive


class TierDoc(Document):
    """One level of the fabric."""

    name: Name
    bandwidth_fraction: Fraction = 1.0
    """Share of the inter-node bandwidth for two nodes whose finest common unit is of this tier. Predictions by a model
    (`goodput`, `transformer`, `operators`) count it: synchronisation is as fast as the worst pair of a job's nodes."""


class NodeDoc(Document):
    """One host; all its GPUs are of one type."""

    id: Name
    gpu_type: Name
    num_gpus: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)]
    gpus_in_use: GpusInUse = ()
    """GPUs taken by work that is not a job of this snapshot: a list of indices, or n for the first n GPUs."""
    state: NodeState = NodeState.UP
    """Drained nodes take no new work; on down nodes nothing runs."""
    path: Annotated[tuple[Name, ...], Field(max_length=16)] = ()
    """The unit of each tier, coarsest first: as many as there are tiers."""
    state_reason: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Why the node is in its state, in words; nothing is planned by it."""


class ClusterDoc(Document):
    """Nodes under named tiers, coarsest first."""

    gpu_types: Annotated[tuple[GpuTypeDoc, ...], Field(max_length=256)]
    # That there must be a node is said by the cluster itself, in its own words.
    nodes: Annotated[tuple[NodeDoc, ...], Field(max_length=MAX_ITEMS, json_schema_extra={"minItems": 1})]
    tiers: Annotated[tuple[TierDoc, ...], Field(max_length=16)] = ()
    minipod_tier: Name | None = None
    """The tier whose units are the minipods."""
    core_bandwidth_fraction: Fraction = 1.0
    """Share of the inter-node bandwidth for two nodes that share no unit."""


class JobReservationDoc(Document):
    """GPUs that the job must get in this plan."""

    gpu_type: Name
    num_gpus: NumGpus


class ParallelismDoc(Document):
    """Degrees of a 3D-parallel job: tensor, pipeline, data."""

    tp: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)]
    pp: NumGpus
    dp: NumGpus


class JobLastingDoc(Document):
    """How long something lasts: over within `seconds[k]` with probability `probabilities[k]`; both ascend. Between two
    it is linear; beyond the last one it lasts for ever. A point forecast is the one quantile of probability 1."""

    probabilities: Annotated[tuple[Fraction, ...], Field(min_length=1, max_length=1000)]
    seconds: Annotated[tuple[NonNegative, ...], Field(min_length=1, max_length=1000)]


class JobDoc(Document):
    """One job. Sia needs `performance`; Arnold needs `parallelism` and `transformer`; Suika needs `transformer` or
    `operators`, Arena one of them or a throughput table; gang needs `min_gpus` alone, the size, and Gavel a
    throughput table beside it, or no performance at all; ElasticFlow needs a throughput table.
    At most one of `transformer` and `operators`."""

    id: Name
    min_gpus: NumGpus = 1
    max_gpus: NumGpus | None = None
    adaptivity: Adaptivity = Adaptivity.ELASTIC
    """elastic: count, type and batch size may change; strong_scaling: count and type; rigid: type only."""
    gpu_types: Annotated[tuple[Name, ...], Field(min_length=1, max_length=256)] | None = None
    """The GPU types the job may run on (null: any)."""
    preemptible: bool = True
    """A job that is not and runs keeps its GPUs."""
    reservation: JobReservationDoc | None = None
    """GPUs that the job must get. Of what a preemptible job runs on: it keeps its configuration, and may be moved to
    make room for others."""
    weight: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """Multiplies the job's terms of the objective."""
    current: GpuMap | None = None
    """Where the job runs now: node id -> GPU indices (null: it waits)."""
    age_s: NonNegative = 0.0
    """Age of the job in seconds, restarts included (T of Sia Eq. 3)."""
    num_restarts: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """How often it has been restarted: Sia moves a job the less, the larger the part of its age that went into this."""
    restart_cost_s: NonNegative = 0.0
    """Seconds that a restart takes it: checkpoint, stop, start, load."""
    performance: PerformanceDoc | None = None
    parallelism: ParallelismDoc | None = None
    transformer: OpenTransformerDoc | None = None
    """`checkpointing` and `zero_stage` may be auto: policies that make 3D plans choose, and their plans say what."""
    operators: OpenOperatorModelDoc | None = None
    """The model as a list of operators, where it is no transformer."""
    priority: Count = 1
    """Arena, gang: smaller ones come first."""
    deadline_s: float | None = None
    """Arena, ElasticFlow: seconds from now until the job must be done."""
    remaining_iterations: NonNegative | None = None
    """Arena, Gavel, ElasticFlow, and Sia for the completion time: optimiser steps that are left; where `performance`
    models goodput, steps of the initial batch at efficiency 1."""
    parallel_plan: AnyPlanDoc | None = None
    """The plan that the job runs with, on exactly the GPUs of `current`."""
    expansions: Annotated[tuple[ExpansionDoc, ...], Field(max_length=MAX_ITEMS)] = ()
    """Suika: GPUs that earlier plans added beyond `min_gpus`, oldest first."""
    calibration: CalibrationSource | None = None
    """Measured coefficients of the performance model, or the name of a calibration."""
    remaining_s: NonNegative | None = None
    """Gang, Gavel, horizon: how long the job is expected to run from now, or from its start while it waits, such as the
    rest of its time limit (0: overdue, null: not known)."""
    queue: Name | None = None
    """Gang, horizon: whose quota the job counts against."""
    attained_gpu_s: NonNegative = 0.0
    """GPUs x seconds for which the job had GPUs. Gang: the order las goes by it. ElasticFlow: above 0 it has begun."""
    attained_s: Annotated[dict[Name, NonNegative], Field(max_length=256)] | None = None
    """Gavel: GPU type -> seconds for which the job had GPUs of it (null: it had none yet)."""
    lasting: JobLastingDoc | None = None
    """How long the job lasts from now, or from its start while it waits (null: `remaining_s`, where that is known).
    Beside a calendar; horizon: without remaining_iterations as much is left as the job does in the mean of it."""
    calendar_entry: Name | None = None
    """The reservation of the calendar that the job belongs to."""
    earliest_start_s: NonNegative = 0.0
    """Planned ahead: the job starts no earlier than so many seconds from now."""
    latest_start_s: NonNegative | None = None
    """Nor later (null: within the parameter `horizon_days`)."""
    user: Name | None = None
    """For forecasters: who submitted it; with `queue` and `min_gpus` what tells most about how long it lasts."""
    application: Name | None = None
    """For forecasters: the model or program; jobs of one application are alike."""
    time_limit_s: Positive | None = None
    """For forecasters: what its user gave it at most."""
    running_s: NonNegative | None = None
    """For forecasters: how long the job has run by now (null: `attained_gpu_s` by its GPUs, where that is above 0)."""


class SnapshotDoc(Document):
    """A cluster and its jobs at one moment."""

    cluster: ClusterDoc
    jobs: Annotated[tuple[JobDoc, ...], Field(max_length=MAX_ITEMS)]
    taken_at: AwareDatetime | None = None
    """The moment; needed where there are entries of a calendar, otherwise it is now."""
    calendar: CalendarSource = ()
    """Who has which nodes when: entries, or in requests to a service `{"cluster": name}`, the calendar that it has."""
    forecaster: ForecasterName | None = None
    """In requests to a service: the forecaster that says `lasting` of the jobs that do not say how long they last
    themselves, as of `taken_at`. What it said stands in the input of the plan, in its place."""


SNAPSHOT: TypeAdapter[SnapshotDoc] = TypeAdapter(SnapshotDoc)


class NodeChangeDoc(Document):
    """What is other of a node; null: as before."""

    state: NodeState | None = None
    state_reason: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    gpus_in_use: GpusInUse | None = None


class ClusterSnapshot(Document):
    """Jobs on a cluster that the service has under a name."""

    cluster: Name
    """`PUT /v1/clusters/{name}` before."""
    nodes: Annotated[dict[Name, NodeChangeDoc], Field(max_length=MAX_ITEMS)] = Field(default_factory=dict)
    """Node id -> what is other than in the cluster."""
    jobs: Annotated[tuple[JobDoc, ...], Field(max_length=MAX_ITEMS)]
    taken_at: AwareDatetime | None = None
    calendar: CalendarSource = ()
    forecaster: ForecasterName | None = None


class ChangedSnapshot(Document):
    """A snapshot that is known to the service, and what is other now."""

    base: Annotated[str, Field(min_length=1, max_length=128, examples=["plan-0f87a8"])]
    """A stored snapshot, or a plan: the snapshot that it was made of, with all that was filled in. What is wrong with
    what stays of it is told of this field, with the job or node by name."""
    nodes: Annotated[dict[Name, NodeChangeDoc], Field(max_length=MAX_ITEMS)] = Field(default_factory=dict)
    """Node id -> what is other."""
    jobs: Annotated[dict[Name, dict[str, Any]], Field(max_length=MAX_ITEMS)] = Field(
        default_factory=dict, examples=[{"llm": {"age_s": 360, "current": {"n0": [0, 1]}}}]
    )
    """Job id -> fields with their new values, as a job of a snapshot has them; null is a value, too."""
    add_jobs: Annotated[tuple[JobDoc, ...], Field(max_length=MAX_ITEMS)] = ()
    remove_jobs: Annotated[tuple[Name, ...], Field(max_length=MAX_ITEMS)] = ()
    taken_at: AwareDatetime | None = None
    """The moment; needed where the base says one."""
    calendar: CalendarSource | None = None
    """In place of the entries of the base."""
    forecaster: ForecasterName | None = None


class SnapshotReference(Document):
    """A snapshot that was posted before."""

    snapshot_id: Annotated[str, Field(min_length=1, max_length=128)]


class PlannedSnapshotReference(SnapshotReference):
    """A snapshot that was posted before, with its own calendar or another one."""

    calendar: CalendarReference | None = None
    """In place of the entries that the snapshot has."""
    forecaster: ForecasterName | None = None
    """The forecaster that says `lasting` of the jobs that do not say how long they last themselves."""
