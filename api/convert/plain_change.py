"""Snapshots of plain values that are told by what is other than in one that this process keeps, or has as text.

What comes out is what `convert.changed_snapshot` and the documents make of the same; they read whatever is not plain,
and say what is wrong. Work that grows with the snapshot is a few passes in C over its text, and a look at every job:
what has not changed is neither decoded nor built nor written again.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Self

import msgspec
from pydantic_core import PydanticSerializationError, to_json

from api.convert.plain import built_job, built_node, changed_job, is_as_written, plain_snapshot, written
from api.schemas.compiled import compiled
from api.schemas.snapshot import ChangedSnapshot, ClusterDoc, JobDoc, NodeChangeDoc
from models.changed_snapshot import snapshot_after
from models.placement.occupancy import node_index
from models.roll import row_of
from models.workload import Job, Snapshot
from stowplan.errors import InputError
from stowplan.living import Living
from topology.cluster import Cluster

_JOB = msgspec.json.Decoder(compiled(JobDoc))
_CLUSTER = msgspec.json.Decoder(compiled(ClusterDoc))
BEFORE_CLUSTER, BEFORE_JOBS = b'{"cluster":', b',"jobs":['
# What is compressed anew where one job changes.
_TOGETHER = 16
_ID = "id"


class _Parts(msgspec.Struct):
    cluster: msgspec.Raw
    jobs: tuple[msgspec.Raw, ...]


class _Change(msgspec.Struct):
    base: str | None = None


class _Changing(msgspec.Struct):
    snapshot: _Change


_PARTS = msgspec.json.Decoder(_Parts)
_CHANGING = msgspec.json.Decoder(_Changing)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True, eq=False)
class Texts(Living):
    """JSON texts that stand one behind the other, with commas between them: objects as long as none of them changes."""

    texts: tuple[bytes, ...]

    @property
    def text(self) -> bytes:
        """All of them."""
        return b",".join(self.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInParts:
    """A snapshot of plain values and its document as JSON text: that of the cluster, those of the jobs a few together,
    and what is behind them. are_written: those of the jobs have all fields, in their order, as `written` has them."""

    snapshot: Snapshot
    cluster: Texts
    jobs: tuple[Texts, ...]
    rest: Texts
    are_written: bool

    @classmethod
    def of(cls, snapshot: Snapshot, text: str, *, is_written: bool) -> Self | None:
        """Take the text of a snapshot apart; None when its parts are not as they are here. is_written: it is known that
        it was written here; else that is looked for."""
        raw = text.encode()
        try:
            parts = _PARTS.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return None
        cluster, jobs = bytes(parts.cluster), tuple(map(bytes, parts.jobs))
        before = b"".join((BEFORE_CLUSTER, cluster, BEFORE_JOBS, b",".join(jobs)))
        if not raw.startswith(before):
            return None
        rest = raw[len(before) :]
        return cls(
            snapshot=snapshot,
            cluster=Texts((cluster,)),
            jobs=tuple(_together(jobs)),
            rest=Texts((rest,)),
            are_written=is_written or is_as_written(raw),
        )

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a text that was written here; None when it is not plain."""
        snapshot = plain_snapshot(text.encode())
        return None if snapshot is None else cls.of(snapshot, text, is_written=False)


def _together(jobs: Sequence[bytes]) -> Iterator[Texts]:
    return (Texts(tuple(jobs[k : k + _TOGETHER])) for k in range(0, len(jobs), _TOGETHER))


def base_of(text: bytes) -> str | None:
    """What a request says that it changes; None where it says nothing, or is no request."""
    try:
        return _CHANGING.decode(text).snapshot.base
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def plain_change(source: ChangedSnapshot, base: SnapshotInParts) -> SnapshotInParts | None:
    """The base with all that is other, as `changed_snapshot` has it; None when it is not plain, or anything is wrong.

    Names in `source` hold nothing that `has_plain_names` excludes.
    """
    if source.taken_at is not None or source.calendar is not None or source.forecaster is not None:
        return None
    try:
        return _changed(source, base)
    except (msgspec.MsgspecError, PydanticSerializationError, RecursionError, InputError):
        return None


def _changed(source: ChangedSnapshot, base: SnapshotInParts) -> SnapshotInParts | None:
    removed, row = set(source.remove_jobs), row_of(base.snapshot)
    if not (source.jobs.keys() <= row.keys() and removed <= row.keys() and removed.isdisjoint(source.jobs)):
        return None
    if any(_ID in fields for fields in source.jobs.values()):
        return None
    if not source.nodes.keys() <= node_index(base.snapshot.cluster).keys():
        return None
    cluster, cluster_text = _with_nodes(source.nodes, base)
    jobs: list[Job] = []
    parts: list[Texts] = []
    ends = list(accumulate(len(part.texts) for part in base.jobs))
    touched = {bisect_right(ends, row[name]) for name in removed | source.jobs.keys()}
    for k, part in enumerate(base.jobs):
        own = base.snapshot.jobs[ends[k] - len(part.texts) : ends[k]]
        if k in touched:
            own, part = _after(own, part, source, removed, are_written=base.are_written)
        jobs += own
        parts += [part] if part.texts else []
    new = [_job(added.model_dump_json().encode()) for added in source.add_jobs]
    if new:
        jobs += [job for job, _ in new]
        last = parts.pop().texts if parts else ()
        parts += _together([*last, *(text for _, text in new)])
    return SnapshotInParts(
        snapshot=snapshot_after(base.snapshot, cluster, tuple(jobs)),
        cluster=cluster_text,
        jobs=tuple(parts),
        rest=base.rest,
        are_written=base.are_written,
    )


def _after(
    jobs: Sequence[Job], part: Texts, source: ChangedSnapshot, removed: Set[str], *, are_written: bool
) -> tuple[tuple[Job, ...], Texts]:
    """Jobs and their texts when they have changed."""
    said: list[tuple[Job, bytes]] = []
    for job, text in zip(jobs, part.texts, strict=True):
        fields = source.jobs.get(job.id)
        if fields is not None:
            said.append(_with_fields(job, text, fields, is_written=are_written))
        elif job.id not in removed:
            said.append((job, text))
    return tuple(job for job, _ in said), Texts(tuple(text for _, text in said))


def _with_fields(job: Job, text: bytes, fields: Mapping[str, Any], *, is_written: bool) -> tuple[Job, bytes]:
    """A job and its text with other values of some fields, which are checked each by itself."""
    new = _JOB.decode(to_json({_ID: job.id, **fields}, inf_nan_mode="constants"))
    changed = changed_job(job, new, fields)
    if not is_written:
        before: dict[str, Any] = msgspec.json.decode(text)
        return changed, written(_JOB.decode(to_json({**before, **fields}, inf_nan_mode="constants"))).encode()
    own, whole = _FIELDS.decode(written(new)), _FIELDS.decode(text)
    whole.update((name, own[name]) for name in fields)
    return changed, msgspec.json.encode(whole)


def _job(text: bytes) -> tuple[Job, bytes]:
    document = _JOB.decode(text)
    return built_job(document), written(document).encode()


def _with_nodes(changes: Mapping[str, NodeChangeDoc], base: SnapshotInParts) -> tuple[Cluster, Texts]:
    """The cluster and its text; nodes that have not changed are the same objects."""
    before = base.snapshot.cluster
    if not changes:
        return before, base.cluster
    document: Any = _CLUSTER.decode(base.cluster.text)
    said, nodes = list(document.nodes), list(before.nodes)
    for k, node in enumerate(before.nodes):
        if node.id in changes:
            said[k] = msgspec.structs.replace(said[k], **changes[node.id].model_dump(exclude_none=True))
            nodes[k] = built_node(said[k])
    text = written(msgspec.structs.replace(document, nodes=tuple(said)))
    return replace(before, nodes=tuple(nodes)), Texts((text.encode(),))
