"""Requests on their way from the reader to the worker: the process that serves needs nothing of the snapshot.

A snapshot travels as the text that is stored of it. The worker that has read it has kept it, and says so to its pool,
which has it plan, too, if it is idle then; any other one reads the text again. It also keeps a few of those before, so
that a request that says only what is other than in one of them is read sooner by it.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from api.convert.plain import plain_snapshot
from api.convert.plain_change import BEFORE_CLUSTER, BEFORE_JOBS, SnapshotInParts, Texts
from api.convert.snapshot import snapshot_from_document
from api.schemas.snapshot import SNAPSHOT
from api.store.texts import Body, BodyName, Part
from models.plan import PlanRequest
from models.policy import Parameters
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from stowplan.collection import without_collection
from stowplan.living import OfUnchanged
from stowplan.pickling import quickly_pickled

# Of what was read last so many are kept, of those that are not the last of all together no more than so much text: the
# objects take some ten times the memory, but those of rounds that follow one another have most of it in common.
_NUM_KEPT = 4
_KEPT_BYTES = 16 * 2**20


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A snapshot; `text` of one of plain values, until that is in `parts`; neither of others. is_written: the text was
    written here, and not stored before."""

    snapshot: Snapshot
    num_bytes: int
    text: str | None = None
    parts: SnapshotInParts | None = None
    is_written: bool = False


# With what is before them.
_parts: OfUnchanged[Texts, Part] = OfUnchanged()


@dataclass(frozen=True, slots=True, eq=False)
class _Hashed:
    """SHA-256 of all texts so far; others go on from a copy."""

    digest: "hashlib._Hash"


_START = _Hashed(hashlib.sha256())
_MOST_HASHES = 16
# Behind them, beside what was found before them.
_hashed: OfUnchanged[Texts, _Hashed] = OfUnchanged()
# By the hash of its text, the one that was used last behind the others.
_kept: OrderedDict[str, _Kept] = OrderedDict()
_keeping = threading.Lock()
# Whether something has come or gone of which the pool has not been told.
_has_changed = threading.Event()


def keep(snapshot: Snapshot, body: Body, monitor: SolveMonitor, plain: str | SnapshotInParts | None = None) -> None:
    """Keep a snapshot, with `body` as the text that is stored of it, for tasks that come next.

    plain: that text, or its parts, of one that was read as plain values.
    """
    new = _Kept(snapshot=snapshot, num_bytes=body.num_bytes, is_written=True)
    if isinstance(plain, SnapshotInParts):
        new.parts = plain
    else:
        new.text = plain
    _add(body, new)
    tell_what_is_kept(monitor)


def tell_what_is_kept(monitor: SolveMonitor) -> None:
    """Have those sent here who want what is kept, where that is other than was told."""
    if _has_changed.is_set():
        with _keeping:
            names = tuple(_kept)
            _has_changed.clear()
        monitor.keeps(names)


def _add(body: Body, new: _Kept) -> None:
    with _keeping:
        # The objects that there are may have been gone on from.
        _kept.setdefault(body.hash, new)
        _kept.move_to_end(body.hash)
        _forget()
        _has_changed.set()


def kept_parts(body: BodyName) -> SnapshotInParts | None:
    """A snapshot that is stored as `body` in parts: as this process keeps it, else read; None where it is not plain, or
    not kept and there is but its name."""
    with _keeping:
        known = _kept.get(body.hash)
        if known is not None:
            _kept.move_to_end(body.hash)
    if known is None:
        return SnapshotInParts.read(body.text) if isinstance(body, Body) else None
    if known.parts is None and known.text is not None:
        known.parts = SnapshotInParts.of(known.snapshot, known.text, is_written=known.is_written)
        known.text = None
    return known.parts


def body_of(parts: SnapshotInParts) -> Body:
    """What is stored of a snapshot in parts: those that it has in common with others are compressed once."""
    before = (BEFORE_CLUSTER, BEFORE_JOBS, *[b","] * (len(parts.jobs) - 1), *([b""] if parts.jobs else []))
    texts = (parts.cluster, *parts.jobs, parts.rest)
    packed = list(map(_packed, texts, before))
    return Body.of_parts(packed, _hash_of(texts, packed))


def _hash_of(texts: Sequence[Texts], packed: Sequence[Part]) -> str:
    """SHA-256 of texts, which goes on from behind those that it was found of before: from a few places, as nearly all
    is other behind the first change of many."""
    step = -(-len(texts) // _MOST_HASHES)
    known = _START
    for k in range(0, len(texts), step):
        *others, last = texts[k : k + step]
        after = _hashed.get(last, (known, *others), len(others))
        if after is None:
            after = _Hashed(known.digest.copy())
            for part in packed[k : k + step]:
                after.digest.update(part.raw)
            _hashed.put(last, (known, *others), len(others), after)
        known = after
    return known.digest.hexdigest()


def _packed(texts: Texts, before: bytes) -> Part:
    known = _parts.get(texts, (), before)
    if known is None:
        known = Part.of(before + texts.text)
        _parts.put(texts, (), before, known)
    return known


def forget_all() -> None:
    """Keep nothing."""
    with _keeping:
        _kept.clear()


def _forget() -> None:
    """Keep the last one, and as many of those before it as there is room for."""
    others = sum(known.num_bytes for known in _kept.values()) - next(reversed(_kept.values())).num_bytes
    while len(_kept) > 1 and (len(_kept) > _NUM_KEPT or others > _KEPT_BYTES):
        _, oldest = _kept.popitem(last=False)
        others -= oldest.num_bytes


class WrittenSnapshot:
    """A snapshot as text: a task that gets it in its argument sees the snapshot."""

    def __init__(self, body: Body) -> None:
        self.body = body

    def __reduce__(self) -> tuple[Callable[[Body], Snapshot], tuple[Body]]:
        return _read, (self.body,)


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRequest:
    """A `PlanRequest` with its snapshot as text, all that it referred to filled in."""

    snapshot: Body
    parameters: Parameters
    options: SolveOptions

    @classmethod
    def of(cls, request: PlanRequest, snapshot: Body) -> "PackedRequest":
        """Pack a request."""
        return cls(snapshot=snapshot, parameters=request.parameters, options=request.options)

    def unpacked(self) -> PlanRequest:
        """The request in the process that has kept its snapshot, or reads it again."""
        return PlanRequest(snapshot=_read(self.snapshot), parameters=self.parameters, options=self.options)

    def for_worker(self) -> PlanRequest:
        """The request as an argument of a task; here, only its parameters and options can be read."""
        snapshot = cast("Snapshot", WrittenSnapshot(self.snapshot))
        return PlanRequest(snapshot=snapshot, parameters=self.parameters, options=self.options)


def key_of(request: PlanRequest) -> str | None:
    """What the worker has kept that has read the snapshot of a request; None where none has."""
    snapshot: object = request.snapshot
    return snapshot.body.hash if isinstance(snapshot, WrittenSnapshot) else None


def _read(body: Body) -> Snapshot:
    with _keeping:
        known = _kept.get(body.hash)
        if known is not None and body.num_bytes > _KEPT_BYTES:
            # It will not be kept beside another one, and nobody knows whether it is asked for again.
            del _kept[body.hash]
            _has_changed.set()
    if known is not None:
        return known.snapshot
    text = body.text
    with without_collection():
        plain = plain_snapshot(text.encode())
        snapshot = plain or snapshot_from_document(SNAPSHOT.validate_json(text))
    if body.num_bytes <= _KEPT_BYTES:
        # What is said of it next will be what has changed.
        _add(body, _Kept(snapshot=snapshot, num_bytes=body.num_bytes, text=None if plain is None else text))
    return snapshot
