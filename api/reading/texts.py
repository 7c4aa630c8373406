"""What a reader gets, and what it says when it needs more: readers have no store."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TypeVar

from api.common.settings import Settings
from api.convert.located import located
from api.convert.snapshot import cluster_from_document
from api.jobs.calibrated_snapshots import MeasuredJob, MeasuredSnapshot, filled_in
from api.schemas.snapshot import ClusterDoc, SnapshotDoc, SnapshotReference
from api.store.snapshots import ResolvedSnapshot, resolved, source_document
from solver.monitor import SolveMonitor
from topology.cluster import Cluster

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestText:
    """The body of a request, and what is known of what it may refer to.

    `snapshots`: texts of stored ones by id, None for one that there is not. `measured`: of those jobs, among
    `measured_jobs`, that the request has.
    """

    body: bytes
    settings: Settings
    measured_jobs: frozenset[str] = frozenset()
    snapshots: Mapping[str, str | None] = field(default_factory=dict)
    measured: Mapping[str, MeasuredJob] = field(default_factory=dict)

    def with_found(
        self, lacking: "Lacking", snapshot: str | None, measured: Mapping[str, MeasuredJob]
    ) -> "RequestText":
        """The same with what it was lacking."""
        snapshots = self.snapshots if lacking.snapshot_id is None else {lacking.snapshot_id: snapshot}
        return replace(self, snapshots=snapshots, measured={**self.measured, **measured})

    @property
    def num_bytes(self) -> int:
        """Size of everything that is to be read."""
        return len(self.body) + sum(len(text or "") for text in self.snapshots.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """What a text refers to and does not bring: a stored snapshot, or measurements of jobs."""

    snapshot_id: str | None = None
    jobs: frozenset[str] = frozenset()


class LackingError(Exception):
    """Ends the reading of a text that lacks something; it is read again with that."""

    def __init__(self, lacking: Lacking) -> None:
        super().__init__(lacking)
        self.lacking = lacking


def reading_task(read: Callable[[RequestText], T]) -> Callable[[RequestText, SolveMonitor], T | Lacking]:
    """Make a task of readers of a function that reads a text; it gives what the text lacks, where that is something."""

    @wraps(read)
    def task(text: RequestText, monitor: SolveMonitor) -> T | Lacking:  # noqa: ARG001 - the pool's calling convention
        try:
            return read(text)
        except LackingError as error:
            return error.lacking

    return task


def snapshot_of(source: SnapshotDoc | SnapshotReference, text: RequestText) -> ResolvedSnapshot:
    """Give the snapshot that a request brings or refers to.

    Raises
    ------
    InputError
        When it is wrong or not known; pointers are relative to the request.
    LackingError
        When it is to be fetched first.
    """
    return resolved(source, lambda id_: _stored(id_, text))


def cluster_of(source: ClusterDoc | SnapshotReference, text: RequestText) -> Cluster:
    """Give the cluster that a request brings, or that of the stored snapshot that it refers to.

    Raises
    ------
    InputError
        When it is wrong or not known; pointers are relative to the request.
    LackingError
        When it is to be fetched first.
    """
    with located("/cluster"):
        if isinstance(source, SnapshotReference):
            source = source_document(source, lambda id_: _stored(id_, text)).cluster
        return cluster_from_document(source)


def measured_snapshot_of(source: SnapshotDoc | SnapshotReference, policy: str, text: RequestText) -> MeasuredSnapshot:
    """Give the snapshot, filled in with what was measured of its jobs; raises what `snapshot_of` does."""
    posted = snapshot_of(source, text)
    measured = text.measured_jobs & {job.id for job in posted.snapshot.jobs}
    if measured - text.measured.keys():
        raise LackingError(Lacking(jobs=measured))
    if not measured:
        return MeasuredSnapshot(posted=posted, used=posted)
    document = source_document(source, lambda id_: _stored(id_, text))
    return filled_in(posted, document, policy, {job: text.measured[job] for job in measured})


def _stored(snapshot_id: str, text: RequestText) -> str | None:
    if snapshot_id not in text.snapshots:
        raise LackingError(Lacking(snapshot_id=snapshot_id))
    return text.snapshots[snapshot_id]
