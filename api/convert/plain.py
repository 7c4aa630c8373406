"""Requests whose snapshot is plain values, which most large ones are: decoded, hashed and built in a few passes in C.

What comes out is what `convert.reading`, `convert.snapshot` and the documents make of the same text; they read whatever
is not plain, and say what is wrong.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
from pydantic import ValidationError

from api.convert.hashing import snapshot_id
from api.convert.parallel_plan import slices_from_map
from api.convert.reading import num_keys, refuse_many_values
from api.schemas.compiled import compiled
from api.schemas.performance import GoodputDoc, GoodputTableDoc, ThroughputTableDoc
from api.schemas.request import PLAN_BODY, PlanBodyDoc
from api.schemas.snapshot import SnapshotDoc
from models.forecast.lasting import Lasting
from models.performance.goodput.spec import GoodputModel, GoodputTable, Performance, ThroughputTable
from models.workload import Job, NodeGpus, Parallelism, Reservation, Snapshot
from stowplan.errors import InputError
from topology.cluster import Cluster, GpuType, Node, Tier

_PERFORMANCES = {
    compiled(GoodputDoc): GoodputModel,
    compiled(ThroughputTableDoc): ThroughputTable,
    compiled(GoodputTableDoc): GoodputTable,
}
# What no name has, beside what JSON forbids in texts, and escapes, behind which anything may be.
_NOT_IN_NAMES = re.compile("[\\\\\x7f-\x9f\u2028\u2029]")
# Texts, in which nothing is a number, and numbers with an exponent above 0.
_LARGE = re.compile(rb'("[^"]*")|([0-9]e)([0-9])')
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
# Stands for the snapshot while the documents read the rest.
_ELSEWHERE = b'{"snapshot_id":"-"}'
_KEYS_ELSEWHERE = 1
_encoded = msgspec.json.encode
_JOB_FIELDS = tuple(field.name for field in fields(Job))
_values_of = attrgetter(*_JOB_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRequest:
    """A request for a plan; the snapshot of `body` refers to nothing: it is `snapshot`, its document with all defaults
    as JSON is `text`, and the id of that `id`."""

    body: PlanBodyDoc
    snapshot: Snapshot
    id: str
    text: str


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    policy: msgspec.Raw
    snapshot: msgspec.Raw
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    options: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_BODY = msgspec.json.Decoder(_Body)
_DEFAULTS_FILLED = msgspec.json.Decoder(compiled(SnapshotDoc))
_AS_SAID = msgspec.json.Decoder(compiled(SnapshotDoc, as_said=True))


def plain_request(text: bytes) -> PlainRequest | None:
    """Read a request; None when it is not plain, or anything is wrong with it.

    Raises
    ------
    BodyTooLargeError
        When it holds more values than any document that is read.
    """
    refuse_many_values(text, "request")
    if not has_plain_names(text):
        return None
    try:
        request = _BODY.decode(text)
        said, document = _AS_SAID.decode(request.snapshot), _DEFAULTS_FILLED.decode(request.snapshot)
        request.snapshot = msgspec.Raw(_ELSEWHERE)
        rest = _encoded(request)
        left = num_keys(_encoded(said)) + num_keys(_encoded(msgspec.json.decode(rest))) - _KEYS_ELSEWHERE
        # Of keys that are there twice the decoder keeps one.
        if left < num_keys(text):
            return None
        body = PLAN_BODY.validate_json(rest)
        filled = written(document)
        return PlainRequest(body=body, text=filled, id=snapshot_id(filled), snapshot=_built(document))
    except (msgspec.DecodeError, RecursionError, ValidationError, InputError):
        return None


def plain_snapshot(text: bytes) -> Snapshot | None:
    """Read the document of a snapshot as it was written here; None when it is not plain."""
    try:
        return _built(_DEFAULTS_FILLED.decode(text)) if has_plain_names(text) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def is_as_written(text: bytes) -> bool:
    """Whether the document of a plain snapshot is as it is written here, byte by byte: what an earlier version stored
    may lack fields."""
    try:
        return written(_DEFAULTS_FILLED.decode(text)).encode() == text
    except (msgspec.DecodeError, RecursionError):
        return False


def has_plain_names(text: bytes) -> bool:
    """Whether a text holds nothing that no name has, and no escapes."""
    if text.isascii():
        return b"\\" not in text and b"\x7f" not in text
    try:
        return _NOT_IN_NAMES.search(text.decode()) is None
    except UnicodeDecodeError:
        return False


def written(document: Any) -> str:
    """What was decoded as JSON text, with all defaults, as the documents write it."""
    text = _encoded(document)
    if b"0e0" in text.translate(_AS_ZEROS):
        text = _LARGE.sub(_with_sign, text)
    return text.decode()


def _with_sign(found: re.Match[bytes]) -> bytes:
    """A number as the documents write it: 1e+20."""
    return found[1] or found[2] + b"+" + found[3]


def _built(document: Any) -> Snapshot:
    cluster = document.cluster
    return Snapshot(
        cluster=Cluster(
            gpu_types=_same(cluster.gpu_types, tuple[GpuType, ...]),
            nodes=tuple(map(built_node, cluster.nodes)),
            tiers=_same(cluster.tiers, tuple[Tier, ...]),
            minipod_tier=cluster.minipod_tier,
            core_bandwidth_fraction=cluster.core_bandwidth_fraction,
        ),
        jobs=tuple(map(built_job, document.jobs)),
    )


def _same(document: Any, kind: Any) -> Any:
    """What is said of something, field by field, as the planner has it."""
    return msgspec.convert(document, kind, from_attributes=True)


def built_node(document: Any) -> Node:
    """The node that was decoded."""
    values = msgspec.structs.asdict(document)
    if isinstance(document.gpus_in_use, int):
        values["gpus_in_use"] = tuple(range(document.gpus_in_use))
    return Node(**values)


def built_job(document: Any) -> Job:
    """The job that was decoded."""
    values = msgspec.structs.asdict(document)
    for name, built in _BUILT.items():
        if (part := values[name]) is not None:
            values[name] = built(part)
    return Job(**values)


def changed_job(job: Job, document: Any, names: Iterable[str]) -> Job:
    """The job with the fields of these names as they were decoded; all others are the very objects."""
    values = dict(zip(_JOB_FIELDS, _values_of(job), strict=True))
    for name in names:
        part = getattr(document, name)
        values[name] = _BUILT[name](part) if part is not None and name in _BUILT else part
    return Job(**values)


def _performance(document: Any) -> Performance:
    performance: Performance = _same(document, _PERFORMANCES[type(document)])
    if isinstance(performance, GoodputModel):
        return replace(performance, profiles=dict(sorted(performance.profiles.items())))
    return performance


def _current(gpus: Mapping[str, tuple[int, ...]]) -> tuple[NodeGpus, ...] | None:
    return slices_from_map(gpus) if gpus else None


# Parts of a job, as the planner has them.
_BUILT: Mapping[str, Callable[[Any], Any]] = {
    "current": _current,
    "reservation": partial(_same, kind=Reservation),
    "parallelism": partial(_same, kind=Parallelism),
    "lasting": partial(_same, kind=Lasting),
    "performance": _performance,
}
