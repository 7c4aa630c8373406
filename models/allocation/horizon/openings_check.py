"""Which GPUs there are later beside a calendar, for the check: recomputed node by node, by the rules in `openings`."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from itertools import pairwise
from operator import itemgetter

from models.windows import ends_s, resolved
from models.workload import Job, Snapshot
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import Node, NodeState


class LaterGpus:
    """GPUs of the nodes for the planned jobs of `planned`, a part of the snapshot `calendar`. `most`: by type, of all
    nodes that are ever open to them; `whole`: ids of those of which all GPUs are for them; `num_now`: of those that are
    open now."""

    def __init__(self, planned: Snapshot, calendar: Snapshot, epsilon: float, pinned: Set[str]) -> None:
        sure = round(1.0 - epsilon, 12)
        # Entries treat jobs alike but for when they end; who ends last is the first to be kept off.
        last: dict[tuple[str | None, bool], tuple[float, Job]] = {}
        for job in planned.jobs:
            kind = job.calendar_entry, job.preemptible
            if job.id not in pinned:
                last[kind] = max(last.get(kind, (-1.0, job)), (ends_s(job, sure), job), key=itemgetter(0))
        self._planned = list(last.values())
        names = {job.id for job in planned.jobs}
        self._others = [job for job in calendar.jobs if job.id not in names]
        self._is_of_one = len({job.calendar_entry for job in planned.jobs}) == 1 and all(
            job.calendar_entry for job in planned.jobs
        )
        self._reserved_by_others = {job.calendar_entry for job in self._others if job.calendar_entry}
        over = _entries_by_node(calendar)
        held = Counter[str]()
        for job in planned.jobs:
            for part in job.current or () if job.id in pinned else ():
                held[part.node] += len(part.gpus)
        # Asked of every entry once: whom it keeps off is the same on all of its nodes.
        self._known: dict[str, tuple[bool, bool]] = {}
        self.most: Counter[str] = Counter({kind.name: 0 for kind in planned.cluster.gpu_types})
        self.whole: set[str] = set()
        self.num_now = sum(
            node.num_gpus - len(node.gpus_in_use) - held[node.id]
            for node in planned.cluster.nodes
            if node.state is NodeState.UP
        )
        self._always = Counter(self.most)
        self._sometimes: list[tuple[str, int, list[tuple[float, float]]]] = []
        for k, (node, given) in enumerate(zip(planned.cluster.nodes, calendar.cluster.nodes, strict=True)):
            spans = self._closed(node, given, over.get(k, ()))
            if spans is None:
                continue
            gpus = node.num_gpus - len(node.gpus_in_use) - held[node.id]
            self.most[node.gpu_type] += gpus
            if gpus == node.num_gpus:
                self.whole.add(node.id)
            if spans:
                self._sometimes.append((node.gpu_type, gpus, spans))
            else:
                self._always[node.gpu_type] += gpus

    def mean(self, first_s: float, last_s: float) -> dict[str, float]:
        """GPUs by type on average over an interval."""
        found = {name: float(gpus) for name, gpus in self._always.items()}
        for gpu_type, gpus, spans in self._sometimes:
            cuts = {first_s, last_s, *(cut for span in spans for cut in span if first_s < cut < last_s)}
            ordered = sorted(cuts)
            pieces = pairwise(ordered)
            open_s = math.fsum(end - begin for begin, end in pieces if not _covers(spans, 0.5 * (begin + end)))
            found[gpu_type] += gpus * open_s / (last_s - first_s)
        return found

    def _closed(self, node: Node, given: Node, entries: Sequence[CalendarEntry]) -> list[tuple[float, float]] | None:
        """When a node is closed; None: it is not there at all."""
        closing = [entry for entry in entries if self._keeps_off(entry)[0]]
        if node.state is NodeState.UP:
            return [(entry.begin_s, entry.end_s) for entry in closing]
        if given.state is not NodeState.UP or (self._is_of_one and self._others):
            return None
        now = [entry for entry in closing if self._keeps_off(entry)[1]]
        if not now or any(entry.name in self._reserved_by_others for entry in entries):
            return None
        return [(-math.inf if entry in now else entry.begin_s, entry.end_s) for entry in closing]

    def _keeps_off(self, entry: CalendarEntry) -> tuple[bool, bool]:
        """Whether an entry ever keeps a planned job off its nodes, and whether it keeps one from starting now."""
        if entry.name not in self._known:
            kept_off = [(end_s, job) for end_s, job in self._planned if _keeps(entry, job)]
            self._known[entry.name] = bool(kept_off), not all(_in_time(entry, job, end_s) for end_s, job in kept_off)
        return self._known[entry.name]


def _in_time(entry: CalendarEntry, job: Job, end_s: float) -> bool:
    """Whether a job that starts now, and then lasts for `end_s`, is off before the entry closes its nodes."""
    return entry.begin_s > 0 and (end_s <= entry.begin_s or (job.preemptible and not entry.hard))


def _keeps(entry: CalendarEntry, job: Job) -> bool:
    if entry.kind is not EntryKind.RESERVATION:
        return True
    return entry.name != job.calendar_entry and not (job.preemptible and not entry.hard)


def _entries_by_node(calendar: Snapshot) -> dict[int, list[CalendarEntry]]:
    entries = [entry for entry in calendar.calendar if not entry.is_over]
    positions = resolved(calendar, entries).positions
    over: dict[int, list[CalendarEntry]] = {}
    for entry in entries:
        for n in positions[entry.name]:
            over.setdefault(n, []).append(entry)
    return over


def _covers(spans: Iterable[tuple[float, float]], time_s: float) -> bool:
    return any(begin_s <= time_s < end_s for begin_s, end_s in spans)
