"""What schedulers say as the JSON of a snapshot, without the documents of requests, which take half a second to load.

It is what `snapshot_to_document` gives of it, without what is as if nobody had said it. Fields, their order and limits
are those of `api.schemas.snapshot` and `api.schemas.calendar`, of jobs those that schedulers know; a test compares
both.
"""

import sys
from collections.abc import Collection
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from api.schemas.limits import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_GPUS,
    MAX_GPUS_PER_NODE,
    MAX_ITEMS,
    MAX_NAME_LENGTH,
    NAME_PATTERN,
)
from models.cluster_state import ClusterState
from models.workload import Job
from topology.calendar import CalendarEntry, EntryKind
from topology.calendar_issues import MAX_ENTRIES
from topology.cluster import Cluster, NodeState

# Here $ is also in front of a last line break.
_PATTERN = NAME_PATTERN.removesuffix("$") + r"\Z"
_Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=_PATTERN)]
_Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
_NonNegative = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
_Fraction = Annotated[float, Meta(gt=0, le=1)]
_GpuIndex = Annotated[int, Meta(ge=0, lt=MAX_GPUS_PER_NODE)]
_GpuIndices = Annotated[list[_GpuIndex], Meta(min_length=1, max_length=MAX_GPUS_PER_NODE)]


class _Plain(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """An object of the document. Defaults are told by being the same object, which numbers with a point are not: theirs
    is None, and `_unless` gives it."""


class _GpuType(_Plain):
    name: _Name
    memory_bytes: Annotated[int, Meta(ge=1, le=MAX_BYTES)]
    peak_flops_per_s: _Positive
    intra_node_bandwidth_bytes_per_s: _Positive
    inter_node_bandwidth_bytes_per_s: _Positive


class _Node(_Plain):
    id: _Name
    gpu_type: _Name
    num_gpus: Annotated[int, Meta(ge=1, le=MAX_GPUS_PER_NODE)]
    gpus_in_use: Annotated[list[_GpuIndex], Meta(max_length=MAX_GPUS_PER_NODE)] = []
    state: NodeState = NodeState.UP
    path: Annotated[list[_Name], Meta(max_length=16)] = []
    state_reason: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None


class _Tier(_Plain):
    name: _Name
    bandwidth_fraction: _Fraction | None = None


class _Cluster(_Plain):
    gpu_types: Annotated[list[_GpuType], Meta(max_length=256)]
    nodes: Annotated[list[_Node], Meta(max_length=MAX_ITEMS)]
    tiers: Annotated[list[_Tier], Meta(max_length=16)] = []
    minipod_tier: _Name | None = None
    core_bandwidth_fraction: _Fraction | None = None


class _Job(_Plain):
    id: _Name
    # What a job asks for is always written.
    min_gpus: Annotated[int, Meta(ge=1, le=MAX_GPUS)]
    gpu_types: Annotated[list[_Name], Meta(min_length=1, max_length=256)] | None = None
    preemptible: bool = True
    current: Annotated[dict[_Name, _GpuIndices], Meta(max_length=MAX_ITEMS)] | None = None
    age_s: _NonNegative | None = None
    num_restarts: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 0
    priority: Annotated[int, Meta(ge=1, le=MAX_COUNT)] = 1
    deadline_s: float | None = None
    remaining_s: _NonNegative | None = None
    queue: _Name | None = None
    attained_gpu_s: _NonNegative | None = None
    calendar_entry: _Name | None = None
    user: _Name | None = None
    application: _Name | None = None
    time_limit_s: _Positive | None = None
    running_s: _NonNegative | None = None


class _Entry(_Plain):
    name: _Name
    kind: EntryKind
    from_time: datetime
    until_time: datetime | None = None
    nodes: Annotated[list[_Name], Meta(max_length=MAX_ITEMS)] = []
    hard: bool = True
    owner: _Name | None = None


class _Snapshot(_Plain):
    cluster: _Cluster
    jobs: Annotated[list[_Job], Meta(max_length=MAX_ITEMS)]
    taken_at: datetime
    calendar: Annotated[list[_Entry], Meta(max_length=MAX_ENTRIES)] = []


_KNOWN = _Job.__struct_fields__
_known = attrgetter(*_KNOWN)
# What no scheduler says of a job, and jobs of which nobody said it.
_OTHERS = tuple(field for field in fields(Job) if field.name not in _KNOWN)
_others = attrgetter(*(field.name for field in _OTHERS))
_NOBODY_SAID = tuple(field.default for field in _OTHERS)


def plain_snapshot(state: ClusterState, released: Collection[str] = ()) -> dict[str, Any] | None:
    """The JSON of what is planned of a state; None where a document has to say what is wrong with it, or to write what
    is not known here.

    Raises
    ------
    InputError
        When jobs or calendar do not go with the cluster.
    """
    snapshot = state.snapshot(released)
    if any(_others(job) != _NOBODY_SAID for job in snapshot.jobs) or any(entry.shape for entry in snapshot.calendar):
        return None
    try:
        taken_at = datetime.fromtimestamp(state.taken_at_s, UTC)
        whole = {
            "cluster": _cluster(snapshot.cluster),
            "jobs": [_job(job) for job in snapshot.jobs],
            "taken_at": taken_at,
            "calendar": [_entry(entry, taken_at) for entry in snapshot.calendar],
        }
        written: dict[str, Any] = msgspec.to_builtins(msgspec.convert(whole, _Snapshot, from_attributes=True))
    except (msgspec.ValidationError, ValueError, OverflowError):
        return None
    return written


def _cluster(cluster: Cluster) -> dict[str, Any]:
    return {
        "gpu_types": cluster.gpu_types,
        "nodes": cluster.nodes,
        "tiers": [
            {"name": tier.name, "bandwidth_fraction": _unless(1.0, tier.bandwidth_fraction)} for tier in cluster.tiers
        ],
        "minipod_tier": cluster.minipod_tier,
        "core_bandwidth_fraction": _unless(1.0, cluster.core_bandwidth_fraction),
    }


def _job(job: Job) -> dict[str, Any]:
    values = dict(zip(_KNOWN, _known(job), strict=True))
    values["age_s"], values["attained_gpu_s"] = _unless(0.0, job.age_s), _unless(0.0, job.attained_gpu_s)
    if job.current is not None:
        values["current"] = {part.node: part.gpus for part in job.current}
    return values


def _entry(entry: CalendarEntry, taken_at: datetime) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "from_time": taken_at + timedelta(seconds=entry.from_s),
        "until_time": None if entry.until_s is None else taken_at + timedelta(seconds=entry.until_s),
        "nodes": entry.nodes,
        "hard": entry.hard,
        "owner": entry.owner or None,
    }


def _unless(default: float, value: float) -> float | None:
    return None if value == default else value
