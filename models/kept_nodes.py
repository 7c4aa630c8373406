"""Why the calendar keeps nodes from jobs, in words and numbers, the same for all policies."""

import math
from collections import Counter
from collections.abc import Mapping

from models.access import Access, AccessClass
from models.open_spans import first_moment_s, open_spans
from models.wording import counted
from models.workload import Job, Snapshot
from topology.calendar import CalendarEntry
from topology.cluster import NodeState

Words = tuple[str, Mapping[str, int], str]
"""Detail, counts, remedy."""

# Entries that are named.
_NUM_NAMED = 3


class KeptNodes:
    """What the calendar keeps from the jobs of a snapshot, of the nodes that take work; looked up once per class of
    jobs and choice of types."""

    def __init__(self, snapshot: Snapshot, access: Access) -> None:
        self._nodes = snapshot.cluster.nodes
        self._access = access
        self._known: dict[tuple[AccessClass, tuple[str, ...] | None], tuple[int, int, tuple[CalendarEntry, ...]]] = {}

        self._sizes: dict[tuple[str, tuple[CalendarEntry, ...]], tuple[int, int]] = {}

    def num_kept(self, job: Job) -> int:
        """Nodes of the types of the job on which it may not start."""
        return 0 if self._access.is_open else self._found(job)[0]

    def admitted_s(self, job: Job, num_gpus: int) -> float:
        """Seconds until nodes of its types with so many GPUs are open to the job at a time; infinite for never, or
        where nobody knows. A job could not start before."""
        windows = self._access.windows
        spans = [
            (span, size, 0)
            for (gpu_type, _), (n, size) in self._alike().items()
            if job.gpu_types is None or gpu_type in job.gpu_types
            for span in open_spans(0.0, windows.closed_starts(job, n))
        ]
        return first_moment_s(spans, num_gpus, 0)

    def _alike(self) -> Mapping[tuple[str, tuple[CalendarEntry, ...]], tuple[int, int]]:
        """GPU type and entries -> one of the nodes with them, and the GPUs of all."""
        if not self._sizes:
            for n, node in enumerate(self._nodes):
                if node.state is NodeState.UP:
                    key = node.gpu_type, self._access.windows.over.get(n, ())
                    first, size = self._sizes.get(key, (n, 0))
                    self._sizes[key] = first, size + node.num_gpus
        return self._sizes

    def explain(self, job: Job, admitted_s: float) -> Words:
        """Why the job waits for the calendar, if it could start in `admitted_s` at the earliest; infinite: never, or
        not known."""
        num_kept, num_nodes, entries = self._found(job)
        named = "; ".join(map(_told, entries[:_NUM_NAMED]))
        more = "" if len(entries) <= _NUM_NAMED else f"; and {len(entries) - _NUM_NAMED} more"
        detail = (
            f"the calendar keeps {num_kept} of the {counted(num_nodes, 'node')} of its types from it ({named}{more})"
        )
        counts = {"nodes": num_nodes, "nodes_kept": num_kept}
        if math.isfinite(admitted_s):
            counts["admitted_in_s"] = int(admitted_s)
            detail += f"; it would be admitted in {admitted_s:.0f} s at the earliest"
        else:
            detail += "; nobody knows when it would be admitted"
        return detail, counts, self._remedy(job)

    def _remedy(self, job: Job) -> str:
        if job.lasting is None and not job.remaining_s:
            return "say how long it lasts (lasting or remaining_s), or wait until the entries are over"
        return "wait until the entries are over, make it shorter, or let it belong to the reservation"

    def _found(self, job: Job) -> tuple[int, int, tuple[CalendarEntry, ...]]:
        key = self._access.class_of(job), job.gpu_types
        if key not in self._known:
            usable = self._access.usable(job).tolist()
            own = [
                n
                for n, node in enumerate(self._nodes)
                if node.state is NodeState.UP and (job.gpu_types is None or node.gpu_type in job.gpu_types)
            ]
            kept = [n for n in own if not usable[n]]
            windows = self._access.windows
            names = Counter(entry.name for n in kept for entry in windows.over.get(n, ()) if windows.closes(entry, job))
            entries = tuple(entry for entry in windows.entries if entry.name in names)
            ordered = sorted(entries, key=lambda entry: (entry.begin_s, entry.name))
            self._known[key] = len(kept), len(own), tuple(ordered)
        return self._known[key]


def _told(entry: CalendarEntry) -> str:
    begin = "" if entry.begin_s == -math.inf else f" from {entry.begin_s:.0f} s" if entry.begin_s > 0 else " now"
    end = "" if entry.end_s == math.inf else f" until {entry.end_s:.0f} s"
    return f"{entry.kind} {entry.name!r}{begin}{end}"
