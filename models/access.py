"""Which nodes many jobs may use beside the calendar: jobs are of few classes, and many nodes alike to all of them.

Of all jobs that are alike in preemptible and reservation, those have the same nodes that end between the same two
begins of entries. So there are few classes of jobs, and nodes that are open to the same classes are alike.

What is asked here is where a job may start. Where it runs now it may stay under `NodeWindows.may_use`.

A soft reservation that holds now, and one of whose jobs waits, is a hard one here: its jobs have come, and others
leave. Of such reservations that share nodes this is the first to begin.
"""

from bisect import bisect_left
from collections.abc import Sequence
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
    down = {node.id for node in snapshot.cluster.nodes if node.state is NodeState.DOWN}
    waited_for = {
        job.calendar_entry
        for job in snapshot.jobs
        if job.calendar_entry is not None and (not job.current or any(part.node in down for part in job.current))
    }
    come = [
        entry
        for entry in snapshot.calendar
        if entry.kind is EntryKind.RESERVATION and not entry.hard and entry.in_effect and entry.name in waited_for
    ]
    if not come:
        return snapshot
    nodes_of = availability(snapshot, epsilon).nodes_of
    claimed: set[int] = set()
    closed: set[str] = set()
    for entry in sorted(come, key=lambda entry: (entry.begin_s, entry.name)):
        if claimed.isdisjoint(nodes_of[entry.name]):
            claimed.update(nodes_of[entry.name])
            closed.add(entry.name)
    entries = tuple(replace(entry, hard=entry.hard or entry.name in closed) for entry in snapshot.calendar)
    return checked_snapshot(snapshot.cluster, snapshot.jobs, entries)
