"""What planners ask of the calendar: until when each node is open to a job, and which nodes a job may use now.

A job may use a node now if, for every entry over it that is not the job's own reservation,
- the entry has not begun, and the job ends before it begins with probability at least 1 - epsilon: by its quantiles,
  else by `remaining_s` as a point forecast (Arnold, appendix G, Algorithm 1, line 14), else never; or
- the entry is soft and the job preemptible, for reservations always and for other entries until they begin; or
- the job runs on the node, and the entry has not begun or the job cannot be preempted. It was there before: nobody
  stops it earlier than must be.
Whether a node is up, and who has its GPUs, is not asked here.

Shapes become nodes as `topology.calendar_nodes` has it. In front are those on which the jobs of the entry run, then
those whose use costs least: of the nodes that take work first those with nothing on them, then by when their jobs are
over with probability one half, last those on which something runs of which nobody knows how long, or that cannot be
preempted; then nodes that take no work. Equals stay in the order of the cluster.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.epsilon import raise_for_epsilon
from models.forecast.lasting import Lasting
from models.workload import Job, Snapshot
from stowplan.arrays import FloatVector, Mask
from topology.calendar import CalendarEntry, EntryKind
from topology.calendar_nodes import EntryNodes, entry_nodes
from topology.cluster import NodeState

_LIKELY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeWindows:
    """The calendar over N nodes (in the order of `Cluster.nodes`), for jobs that belong to no reservation and others.

    Attributes
    ----------
    entries
        Those that are not over.
    nodes_of
        Entry name -> ascending positions of its nodes.
    over
        Position of a node -> entries over it.
    hard_until_s, any_until_s
        (N,) seconds until which a node is open to jobs of no reservation: to preemptible ones, to others. Infinity
        where nothing comes, minus infinity where it is closed now.
    down
        Ids of the nodes that are down: a job with one of them does not run.
    """

    epsilon: float
    node_index: Mapping[str, int]
    entries: tuple[CalendarEntry, ...]
    nodes_of: Mapping[str, tuple[int, ...]]
    over: Mapping[int, tuple[CalendarEntry, ...]]
    hard_until_s: FloatVector
    any_until_s: FloatVector
    down: frozenset[str]

    @property
    def confidence(self) -> float:
        """Probability with which a job must end in time."""
        # As it is written: 1 - 0.07 is 0.9299999999999999 otherwise.
        return round(1.0 - self.epsilon, 12)

    def free_until_s(self, job: Job) -> FloatVector:
        """(N,) seconds until which each node is open to the job, wherever it runs; see `hard_until_s`."""
        until_s = self.hard_until_s if job.preemptible else self.any_until_s
        own = self.own_nodes(job)
        if own:
            until_s = until_s.copy()
            until_s[list(own)] = [self._until_s(n, job) for n in own]
        return until_s

    def usable(self, job: Job) -> Mask:
        """(N,) whether the job may use each node now."""
        mask: Mask = ends_s(job, self.confidence) <= self.free_until_s(job)
        for n in self._running_on(job):
            mask[n] = self._may_stay(n, job)
        return mask

    def may_use(self, job: Job, node: str) -> bool:
        """Whether the job may use a node now."""
        n = self.node_index[node]
        if n in self._running_on(job):
            return self._may_stay(n, job)
        return ends_s(job, self.confidence) <= self._until_s(n, job)

    def barring(self, job: Job, node: str) -> tuple[CalendarEntry, ...]:
        """The entries that keep the job off a node now, the first to begin in front."""
        n = self.node_index[node]
        if self.may_use(job, node):
            return ()
        barring = [entry for entry in self.over.get(n, ()) if self.closes(entry, job)]
        return tuple(sorted(barring, key=lambda entry: (entry.begin_s, entry.name)))

    def closed_starts(self, job: Job, n: int) -> tuple[tuple[float, float], ...]:
        """When the job may not start on the node at position n, wherever it runs: intervals of seconds from now, with
        their begin and without their end, ascending."""
        end_s = ends_s(job, self.confidence)
        return tuple(
            sorted(_closed_starts(entry, job, end_s) for entry in self.over.get(n, ()) if closes_ever(entry, job))
        )

    def closes(self, entry: CalendarEntry, job: Job) -> bool:
        """Whether an entry keeps its nodes from a job that would start now."""
        return ends_s(job, self.confidence) > _closes_s(entry, job)

    def own_nodes(self, job: Job) -> tuple[int, ...]:
        """Positions of the nodes of the reservation that the job belongs to."""
        return () if job.calendar_entry is None else self.nodes_of.get(job.calendar_entry, ())

    def _until_s(self, n: int, job: Job) -> float:
        return min((_closes_s(entry, job) for entry in self.over.get(n, ())), default=math.inf)

    def _may_stay(self, n: int, job: Job) -> bool:
        return not job.preemptible or self._until_s(n, job) > 0.0

    def _running_on(self, job: Job) -> list[int]:
        current = job.current or ()
        return [] if any(part.node in self.down for part in current) else [self.node_index[p.node] for p in current]


def availability(snapshot: Snapshot, epsilon: float) -> NodeWindows:
    """Read the calendar of a snapshot.

    Parameters
    ----------
    epsilon
        Probability in [0, 1) with which a job may still run when the entry begins for which its nodes are kept.

    Raises
    ------
    InputError
        When epsilon is none.
    """
    raise_for_epsilon(epsilon)
    entries = tuple(entry for entry in snapshot.calendar if not entry.is_over)
    index = {node.id: n for n, node in enumerate(snapshot.cluster.nodes)}
    nodes_of = resolved(snapshot, entries).positions
    over: dict[int, list[CalendarEntry]] = {}
    hard_until_s = np.full(len(index), math.inf)
    any_until_s = hard_until_s.copy()
    for entry in entries:
        positions = list(nodes_of[entry.name])
        for n in positions:
            over.setdefault(n, []).append(entry)
        for until_s, preemptible in ((hard_until_s, True), (any_until_s, False)):
            until_s[positions] = np.minimum(until_s[positions], _closes_for_others_s(entry, preemptible=preemptible))
    for array in (hard_until_s, any_until_s):
        array.setflags(write=False)
    return NodeWindows(
        epsilon=epsilon,
        node_index=index,
        entries=entries,
        nodes_of=nodes_of,
        over={n: tuple(there) for n, there in over.items()},
        hard_until_s=hard_until_s,
        any_until_s=any_until_s,
        down=frozenset(node.id for node in snapshot.cluster.nodes if node.state is NodeState.DOWN),
    )


def resolved(snapshot: Snapshot, entries: Sequence[CalendarEntry]) -> EntryNodes:
    """The nodes of every entry; shapes by what runs now."""
    if all(entry.shape is None for entry in entries):
        return entry_nodes(snapshot.cluster, entries)
    order, own = _by_cost(snapshot), _own(snapshot)
    found = entry_nodes(snapshot.cluster, entries, order, own)
    # What suits the jobs may leave too little for the last shape; a legal calendar has room for all in its own order.
    return entry_nodes(snapshot.cluster, entries) if found.crowded else found


def lasting_of(job: Job) -> Lasting | None:
    """How long a job lasts: its quantiles, else `remaining_s` as a point forecast; None: nobody knows."""
    if job.lasting is not None:
        return job.lasting
    return Lasting(probabilities=(1.0,), seconds=(job.remaining_s,)) if job.remaining_s else None


def ends_s(job: Job, probability: float) -> float:
    """Seconds from now, or from its start, within which a job ends with a probability; infinity where nobody knows."""
    if job.lasting is not None:
        return job.lasting.quantile(probability)
    # 0 says that it is overdue.
    return job.remaining_s or math.inf


def closes_ever(entry: CalendarEntry, job: Job) -> bool:
    """Whether an entry closes its nodes to a job at any time."""
    reserves = entry.kind is EntryKind.RESERVATION
    return not reserves or (entry.name != job.calendar_entry and (entry.hard or not job.preemptible))


def _closes_for_others_s(entry: CalendarEntry, *, preemptible: bool) -> float:
    """When an entry closes its nodes to jobs that do not belong to it; minus infinity: they are closed."""
    if entry.hard or not preemptible:
        return -math.inf if entry.in_effect else entry.begin_s
    closed = entry.in_effect and entry.kind is not EntryKind.RESERVATION
    return -math.inf if closed else math.inf


def _closes_s(entry: CalendarEntry, job: Job) -> float:
    """When an entry closes its nodes to a job."""
    if entry.kind is EntryKind.RESERVATION and entry.name == job.calendar_entry:
        return math.inf
    return _closes_for_others_s(entry, preemptible=job.preemptible)


def _closed_starts(entry: CalendarEntry, job: Job, end_s: float) -> tuple[float, float]:
    """When a job may not start on nodes of an entry that closes them to it, if it runs for `end_s`."""
    if job.preemptible and not entry.hard:
        return entry.begin_s, entry.end_s
    # One that ends when the entry begins is off in time.
    return math.nextafter(entry.begin_s - end_s, math.inf), entry.end_s


def _by_cost(snapshot: Snapshot) -> list[int]:
    """Positions of all nodes; in front those whose use costs least."""
    nodes = snapshot.cluster.nodes
    over_s = [0.0] * len(nodes)
    index = {node.id: n for n, node in enumerate(nodes)}
    for job in snapshot.jobs:
        if job.current:
            end_s = ends_s(job, _LIKELY) if job.preemptible else math.inf
            for part in job.current:
                over_s[index[part.node]] = max(over_s[index[part.node]], end_s)

    def cost(n: int) -> tuple[bool, float]:
        return nodes[n].state is not NodeState.UP, math.inf if nodes[n].gpus_in_use else over_s[n]

    return sorted(range(len(nodes)), key=cost)


def _own(snapshot: Snapshot) -> dict[str, set[int]]:
    """Reservation -> positions of the nodes on which its jobs run."""
    index = {node.id: n for n, node in enumerate(snapshot.cluster.nodes)}
    own: dict[str, set[int]] = {}
    for job in snapshot.jobs:
        if job.calendar_entry is not None:
            own.setdefault(job.calendar_entry, set()).update(index[part.node] for part in job.current or ())
    return own
