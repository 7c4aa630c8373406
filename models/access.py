"""Which nodes many jobs may use beside the calendar: jobs are of few classes, and many nodes alike to all of them.

Of all jobs that are alike in preemptible and reservation, those have the same nodes that end between the same two
begins of entries. So there are few classes of jobs, and nodes that are open to the same classes are alike.

What is asked here is where a job may start. Where it runs now it may stay under `NodeWindows.may_use`.

A soft reservation that holds now, and one of whose jobs waits and could start, is a hard one here: its jobs have come,
and others leave. Of such reservations that share nodes this is the first to begin. A job could start if there are GPUs
enough of a type of its on the nodes that it may use: those that nobody has, and all those of guests of the reservation,
which are the jobs on its nodes but for other jobs of it and such as cannot be preempted. Until then guests stay.
"""

from bisect import bisect_left
from collections.abc import Container, Sequence
from dataclasses import replace

import numpy as np

from models.windows import NodeWindows, availability, ends_s
from models.workload import Job, Snapshot, checked_snapshot
from stowplan.arrays import IntVector, Mask
from topology.calendar import EntryKind
from topology.cluster import NodeState

AccessClass = tuple[bool, str | None, int]
"""Preemptible, the reservation of the job if it has nodes, and how many begins of entries it does not end before."""


class Access:
    """Who may use which of the N nodes of a snapshot; `epsilon` as in `models.windows`."""

    def __init__(self, snapshot: Snapshot, epsilon: float) -> None:
        self.windows: NodeWindows = availability(_as_hard(snapshot, epsilon), epsilon)
        self.is_open = not self.windows.entries
        self._num_nodes = len(snapshot.cluster.nodes)
        self._begins_s = sorted({entry.begin_s for entry in self.windows.entries})
        self._usable: dict[AccessClass, Mask] = {}

    def class_of(self, job: Job) -> AccessClass:
        """What jobs have in common that may start on the same nodes."""
        own = job.calendar_entry if self.windows.own_nodes(job) else None
        end_s = ends_s(job, self.windows.confidence)
        return job.preemptible, own, bisect_left(self._begins_s, end_s)

    def usable(self, job: Job) -> Mask:
        """(N,) whether the job may start on each node now."""
        found = self.class_of(job)
        if found not in self._usable:
            mask: Mask = ends_s(job, self.windows.confidence) <= self.windows.free_until_s(job)
            mask.setflags(write=False)
            self._usable[found] = mask
        return self._usable[found]

    def alike(self, jobs: Sequence[Job]) -> IntVector:
        """(N,) a number for every node: the same for nodes that the same ones of the jobs may start on, smaller where
        fewer classes of jobs may."""
        if self.is_open or not jobs:
            return np.zeros(self._num_nodes, dtype=np.int64)
        masks = np.array(list({self.class_of(job): self.usable(job) for job in jobs}.values()))
        kinds, number = np.unique(masks, axis=1, return_inverse=True)
        place = np.empty(kinds.shape[1], dtype=np.int64)
        place[np.argsort(kinds.sum(axis=0), kind="stable")] = np.arange(kinds.shape[1])
        return place[number.reshape(-1)]

    def must_leave(self, job: Job) -> bool:
        """Whether a job that runs may not stay on all of its nodes."""
        return not self.is_open and not all(self.windows.may_use(job, part.node) for part in job.current or ())


def _as_hard(snapshot: Snapshot, epsilon: float) -> Snapshot:
    """The snapshot with the soft reservations as hard ones whose jobs have come."""
    soft = {
        entry.name: entry
        for entry in snapshot.calendar
        if entry.kind is EntryKind.RESERVATION and not entry.hard and entry.in_effect
    }
    down = {node.id for node in snapshot.cluster.nodes if node.state is NodeState.DOWN}
    belonging = [job for job in snapshot.jobs if job.calendar_entry in soft]
    waiting = [job for job in belonging if not _runs(job, down)]
    if not waiting:
        return snapshot
    windows = availability(snapshot, epsilon)
    could_start = _Starting(snapshot, windows)
    waited_for = {job.calendar_entry for job in waiting if could_start(job)}
    come = [entry for name, entry in soft.items() if name in waited_for]
    nodes_of = windows.nodes_of
    claimed: set[int] = set()
    closed: set[str] = set()
    for entry in sorted(come, key=lambda entry: (entry.begin_s, entry.name)):
        if claimed.isdisjoint(nodes_of[entry.name]):
            claimed.update(nodes_of[entry.name])
            closed.add(entry.name)
    entries = tuple(replace(entry, hard=entry.hard or entry.name in closed) for entry in snapshot.calendar)
    return checked_snapshot(snapshot.cluster, snapshot.jobs, entries)


class _Starting:
    """Whether jobs of reservations could start now, were the guests gone."""

    def __init__(self, snapshot: Snapshot, windows: NodeWindows) -> None:
        self._windows = windows
        nodes = snapshot.cluster.nodes
        kinds = [kind.name for kind in snapshot.cluster.gpu_types]
        self._kinds = {name: k for k, name in enumerate(kinds)}
        self._kind_of = np.array([self._kinds[node.gpu_type] for node in nodes])
        work = [node.num_gpus - len(node.gpus_in_use) if node.state is NodeState.UP else 0 for node in nodes]
        self._free = np.array(work, dtype=np.int64)
        self._used = np.zeros_like(self._free)
        self._on: dict[int, list[Job]] = {}
        self._begins_s = sorted({entry.begin_s for entry in windows.entries})
        self._known: dict[tuple[bool, str | None, int], IntVector] = {}
        for job in snapshot.jobs:
            for part in (job.current or ()) if _runs(job, windows.down) else ():
                n = windows.node_index[part.node]
                self._used[n] += len(part.gpus)
                self._on.setdefault(n, []).append(job)

    def __call__(self, job: Job) -> bool:
        """Whether a job that waits could start."""
        left = self._left(job)
        return any(left[k] >= wanted_gpus(job) for name, k in self._kinds.items() if allows(job, name))

    def _left(self, job: Job) -> IntVector:
        """GPUs of each type, (K,), that a job may have."""
        end_s = ends_s(job, self._windows.confidence)
        key = job.preemptible, job.calendar_entry, bisect_left(self._begins_s, end_s)
        if key not in self._known:
            taken = self._used.copy()
            guests = {
                guest.id: guest
                for n in self._windows.own_nodes(job)
                for guest in self._on.get(n, ())
                if guest.preemptible and guest.calendar_entry != job.calendar_entry
            }
            # A guest leaves all of its nodes.
            for part in (part for guest in guests.values() for part in guest.current or ()):
                taken[self._windows.node_index[part.node]] -= len(part.gpus)
            left = np.where(end_s <= self._windows.free_until_s(job), self._free - taken, 0).clip(min=0)
            self._known[key] = np.bincount(self._kind_of, left, len(self._kinds)).astype(np.int64)
        return self._known[key]


def wanted_gpus(job: Job) -> int:
    """GPUs that a job wants at least: what it has, or `min_gpus`."""
    if job.reservation is not None:
        return job.reservation.num_gpus
    if job.parallelism is not None and job.min_gpus == 1:
        return job.parallelism.num_gpus
    return sum(len(part.gpus) for part in job.current or ()) or job.min_gpus


def allows(job: Job, gpu_type: str) -> bool:
    """Whether a job may run on a GPU type."""
    if job.reservation is not None:
        return job.reservation.gpu_type == gpu_type
    return job.gpu_types is None or gpu_type in job.gpu_types


def _runs(job: Job, down: Container[str]) -> bool:
    return bool(job.current) and all(part.node not in down for part in job.current or ())
