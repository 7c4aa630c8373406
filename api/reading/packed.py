"""Requests on their way from the reader to the worker: the process that serves needs nothing of the snapshot.

A snapshot travels as the text that is stored of it. The worker that has read it has kept it, and says so to its pool,
which has it plan, too, if it is idle then; any other one reads the text again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from api.convert.plain import plain_snapshot
from api.convert.snapshot import snapshot_from_document
from api.schemas.snapshot import SNAPSHOT
from api.store.texts import Body
from models.plan import PlanRequest
from models.policy import Parameters
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from stowplan.collection import without_collection

# By the hash of its text: the last one that this process has read, until it is wanted.
_kept: dict[str, Snapshot] = {}


def keep(snapshot: Snapshot, body: Body, monitor: SolveMonitor) -> None:
    """Keep a snapshot, with `body` as the text that is stored of it, for the task that comes next."""
    _kept.clear()
    _kept[body.hash] = snapshot
    monitor.keeps(body.hash)


class WrittenSnapshot:
    """A snapshot as text: a task that gets it in its argument sees the snapshot."""

    def __init__(self, body: Body) -> None:
        self.body = body

    def __reduce__(self) -> tuple[Callable[[Body], Snapshot], tuple[Body]]:
        return _read, (self.body,)


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

    def for_worker(self) -> PlanRequest:
        """The request as an argument of a task; here, only its parameters and options can be read."""
        snapshot = cast("Snapshot", WrittenSnapshot(self.snapshot))
        return PlanRequest(snapshot=snapshot, parameters=self.parameters, options=self.options)


def key_of(request: PlanRequest) -> str | None:
    """What the worker has kept that has read the snapshot of a request; None where none has."""
    snapshot: object = request.snapshot
    return snapshot.body.hash if isinstance(snapshot, WrittenSnapshot) else None


def _read(body: Body) -> Snapshot:
    kept = _kept.pop(body.hash, None)
    if kept is not None:
        return kept
    text = body.text.encode()
    with without_collection():
        return plain_snapshot(text) or snapshot_from_document(SNAPSHOT.validate_json(text))
