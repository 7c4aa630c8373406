"""Which GPUs there are later, and when the calendar closes their nodes to jobs that are planned.

An entry closes its nodes from its begin to its end if there is a planned job that it closes them to: not where all of
these belong to the reservation, nor where it is a soft one and all are preemptible.

A node that takes work, but is drained in the snapshot that is planned, is closed now by entries that keep a planned job
from starting, and is open when these have ended. Where no entry does, or other jobs are planned by themselves on nodes
of the reservation, it is not counted: others have it. GPUs of jobs that keep theirs are not counted, even when these
jobs have ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.allocation.sia.instance import SiaInstance
from models.placement.occupancy import mask_of
from models.windows import NodeWindows, closes_ever, ends_s
from models.workload import Job, Snapshot
from stowplan.arrays import IntVector
from topology.calendar import CalendarEntry
from topology.cluster import Node, NodeState

Span = tuple[float, float]
"""From and until when, in seconds from now."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Openings:
    """num_gpus: int64 (N,), what jobs may have of each node while it is open; closed: position of a node -> when it is
    not."""

    num_gpus: IntVector
    closed: Mapping[int, Sequence[Span]]


def openings(base: SiaInstance, windows: NodeWindows, calendar: Snapshot) -> Openings:
    """Read the nodes of the snapshot that is planned, and the `windows` of the one with the calendar, of which it is a
    part."""
    jobs = _last_of_kinds((base.jobs[i] for i in base.planned.tolist()), windows.confidence)
    closing = {entry.name for entry in windows.entries if any(closes_ever(entry, job) for job in jobs)}
    barring = {entry.name for entry in windows.entries if any(windows.closes(entry, job) for job in jobs)}
    others = _entries_of_others(base, calendar)
    pinned = _pinned_masks(base)
    num_gpus = np.array([mask.bit_count() for mask in base.taken.free_masks], dtype=np.int64)
    closed: dict[int, list[Span]] = {}
    for n, (node, given) in enumerate(zip(base.snapshot.cluster.nodes, calendar.cluster.nodes, strict=True)):
        over = [entry for entry in windows.over.get(n, ()) if entry.name in closing]
        if node.state is NodeState.UP:
            if over:
                closed[n] = [(max(0.0, entry.begin_s), entry.end_s) for entry in over]
        elif given.state is NodeState.UP and others is not None:
            now = {entry.name for entry in over} & barring
            if now and not any(entry.name in others for entry in windows.over[n]):
                num_gpus[n] = _free(node, pinned.get(n, 0))
                closed[n] = [_span(entry, is_now=entry.name in now) for entry in over]
    return Openings(num_gpus=num_gpus, closed=closed)


def _last_of_kinds(jobs: Iterable[Job], probability: float) -> list[Job]:
    """Of the jobs that entries treat alike, the one that ends last."""
    last: dict[tuple[str | None, bool], tuple[float, Job]] = {}
    for job in jobs:
        kind, end_s = (job.calendar_entry, job.preemptible), ends_s(job, probability)
        if kind not in last or end_s > last[kind][0]:
            last[kind] = end_s, job
    return [job for _, job in last.values()]


def _entries_of_others(base: SiaInstance, calendar: Snapshot) -> set[str] | None:
    """Reservations of jobs that are not planned here; None where those that are have one of their own, and all other
    nodes are others'."""
    here = {job.id for job in base.jobs}
    elsewhere = [job for job in calendar.jobs if job.id not in here]
    own = {job.calendar_entry for job in base.jobs}
    if elsewhere and len(own) == 1 and None not in own:
        return None
    return {job.calendar_entry for job in elsewhere if job.calendar_entry is not None}


def _pinned_masks(base: SiaInstance) -> dict[int, int]:
    masks: dict[int, int] = {}
    for name in base.taken.pinned:
        for n, mask in base.taken.running[name]:
            masks[n] = masks.get(n, 0) | mask
    return masks


def _free(node: Node, pinned: int) -> int:
    """GPUs of a node that takes no work now, once it does."""
    return ((1 << node.num_gpus) - 1 & ~mask_of(node.gpus_in_use) & ~pinned).bit_count()


def _span(entry: CalendarEntry, *, is_now: bool) -> Span:
    return 0.0 if is_now else max(0.0, entry.begin_s), entry.end_s
