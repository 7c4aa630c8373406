"""What a controller knows of a cluster: which jobs there are, where they run, which GPUs are free. Kept by events and
actions, so that an event costs what it changes, and only a snapshot what there is."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from executor.control.actions import Action, Place, Stop
from executor.control.backend import Facts, JobFacts, Measured
from executor.control.events import Arrival, CalendarChange, Completion, Event, Failure, Measurement, NodeChange
from models.forecast.lasting import Lasting
from models.placement.occupancy import mask_of
from models.plan import JobAllocation
from models.policy import Running, Waiting, Wanted
from models.workload import Job, NodeGpus, Snapshot, checked_snapshot
from stowplan.errors import InputError
from stowplan.slots import copier
from topology.calendar import CalendarEntry
from topology.cluster import NodeState

_job_at = copier(
    Job,
    *("age_s", "remaining_s", "num_restarts", "deadline_s", "remaining_iterations", "performance", "max_gpus"),
    *("calibration", "restart_cost_s"),
    *("attained_gpu_s", "attained_s"),
    *("preemptible", "lasting"),
    *("current", "parallel_plan", "expansions"),
)
Measurements = Callable[[str], Measured]
_NOTHING = Measured()


@dataclass(slots=True, kw_only=True)
class _Entry:
    """`JobFacts` that change."""

    job: Job
    submitted_s: float
    since_s: float
    remaining_s: float | None
    lasting: Lasting | None
    num_starts: int
    attained_gpu_s: float
    attained_s: Mapping[str, float]
    allocation: JobAllocation | None

    def left_s(self, now_s: float) -> float | None:
        """How long the job is expected to run from now, or from its start."""
        if self.remaining_s is None or self.allocation is None:
            return self.remaining_s
        return max(0.0, self.remaining_s - (now_s - self.since_s))

    def lasting_at(self, now_s: float) -> Lasting | None:
        """How long the job lasts from now, or from its start; None where it has lasted longer than was foreseen."""
        if self.lasting is None or self.allocation is None:
            return self.lasting
        return self.lasting.after(now_s - self.since_s)

    def attained_at(self, now_s: float) -> float:
        """GPU seconds that the job has had."""
        if self.allocation is None:
            return self.attained_gpu_s
        return self.attained_gpu_s + self.allocation.num_gpus * (now_s - self.since_s)

    def attained_by_type(self, now_s: float) -> Mapping[str, float]:
        """Seconds for which the job has had GPUs of each type."""
        if self.allocation is None:
            return self.attained_s
        gpu_type = self.allocation.gpu_type
        return {**self.attained_s, gpu_type: self.attained_s.get(gpu_type, 0.0) + now_s - self.since_s}

    def account(self, now_s: float) -> None:
        """Note what the job has had, and how long it still lasts."""
        self.lasting = self.lasting_at(now_s)
        self.attained_gpu_s, self.attained_s = self.attained_at(now_s), self.attained_by_type(now_s)

    def at(self, now_s: float, measurements: Measurements, *, settle: bool) -> Job:
        """The job as it is now. A deadline that is over is none any more."""
        job, given, age_s = self.job, self.allocation, now_s - self.submitted_s
        known = _NOTHING if job.performance is None and job.model is None else measurements(job.id)
        return _job_at(
            job,
            age_s,
            self.left_s(now_s),
            max(0, self.num_starts - 1),
            job.deadline_s - age_s if job.deadline_s is not None and job.deadline_s > age_s else None,
            known.iterations_left,
            job.performance if known.performance is None else known.performance,
            job.max_gpus if known.max_gpus is None else known.max_gpus,
            job.calibration if known.calibration is None else known.calibration,
            # What a job says of its price is meant.
            job.restart_cost_s or known.restart_cost_s or 0.0,
            self.attained_at(now_s),
            self.attained_by_type(now_s) or None,
            job.preemptible and not (settle and known.is_starting),
            self.lasting_at(now_s),
            *((None, None, ()) if given is None else (given.gpus, given.parallel_plan, given.expansions)),
        )


class Book:
    """Jobs by submission, and free GPUs."""

    def __init__(self, facts: Facts) -> None:
        self._cluster = facts.cluster
        self._place = {node.id: k for k, node in enumerate(facts.cluster.nodes)}
        self._nodes = list(facts.cluster.nodes)
        self._free = [(1 << node.num_gpus) - 1 & ~mask_of(node.gpus_in_use) for node in self._nodes]
        self._rooms = {kind.name: self._room(kind.name) for kind in facts.cluster.gpu_types}
        self._entries: dict[str, _Entry] = {}
        self._running: dict[str, JobAllocation] = {}
        self._wanted: Counter[Wanted] = Counter()
        self._num_reserved = 0
        self._calendar = facts.calendar
        for job in facts.jobs:
            self._admit(job)

    @property
    def running(self) -> Mapping[str, JobAllocation]:
        """Where jobs run."""
        return self._running

    @property
    def wanted(self) -> Iterable[Wanted]:
        """Sizes and GPU types of the jobs that wait, each once."""
        return self._wanted

    @property
    def awaits_reservation(self) -> bool:
        """Whether a job of a reservation waits."""
        return self._num_reserved > 0

    @property
    def rooms(self) -> Mapping[str, Sequence[int]]:
        """Of each GPU type the number of nodes that take work, by their free GPUs (index)."""
        return self._rooms

    @property
    def num_jobs(self) -> int:
        """Jobs that have not ended."""
        return len(self._entries)

    def next_entry_s(self, now_s: float) -> float:
        """When an entry of the calendar begins or ends next; infinite when none will."""
        times_s = (time_s for entry in self._calendar for time_s in (entry.begin_s, entry.end_s))
        return min((time_s for time_s in times_s if time_s > now_s), default=math.inf)

    def waiting(self, now_s: float) -> Iterator[Waiting]:
        """Ages and priorities of the jobs that wait."""
        for entry in self._entries.values():
            if entry.allocation is None:
                yield now_s - entry.submitted_s, entry.job.priority

    def served(self, now_s: float) -> Iterator[Running]:
        """GPUs of the jobs that run, and what they have had."""
        for entry in self._entries.values():
            if entry.allocation is not None:
                yield entry.allocation.num_gpus, entry.attained_at(now_s)

    def tell(self, event: Event) -> None:
        """Note what happened."""
        if isinstance(event, Arrival):
            # Every job is looked at once, when it comes.
            Snapshot(cluster=self._cluster, jobs=(event.job,))
            self._admit(
                JobFacts(
                    job=event.job,
                    submitted_s=event.at_s - event.job.age_s,
                    since_s=event.at_s,
                    remaining_s=event.job.remaining_s,
                    num_starts=event.allocation is not None,
                    allocation=event.allocation,
                )
            )
        elif isinstance(event, Completion):
            self._leave(event.job_id)
        elif isinstance(event, Failure):
            self._to_queue(event.job_id, event.at_s)
            entry = self._entries[event.job_id]
            # Nobody says how much of its work is lost.
            entry.remaining_s, entry.lasting = event.remaining_s, entry.job.lasting
        elif isinstance(event, NodeChange):
            self._change_node(event)
        elif isinstance(event, CalendarChange):
            # Looked through once, as it is now.
            Snapshot(cluster=self._cluster, jobs=(), calendar=_seen_at(event.at_s, event.entries))
            self._calendar = event.entries
        elif isinstance(event, Measurement):
            entry = self._entries[event.job_id]
            entry.account(event.at_s)
            entry.remaining_s, entry.since_s = event.remaining_s, event.at_s

    def note(self, actions: Sequence[Action], now_s: float) -> None:
        """Note what is done now."""
        for action in actions:
            if isinstance(action, Stop):
                self._to_queue(action.job_id, now_s)
        places = [action.allocation for action in actions if isinstance(action, Place)]
        for allocation in places:
            if allocation.job_id in self._running:
                self._give_back(allocation.job_id, now_s)
            else:
                self._no_longer_wanted(self._entries[allocation.job_id].job)
        for allocation in places:
            self._give(allocation, now_s)

    def snapshot(self, now_s: float, measurements: Measurements, *, settle: bool = False) -> Snapshot:
        """The cluster and its jobs now. settle: jobs that do not work yet on their GPUs cannot be preempted."""
        jobs = tuple(entry.at(now_s, measurements, settle=settle) for entry in self._entries.values())
        return checked_snapshot(self._cluster, jobs, _seen_at(now_s, self._calendar))

    def _admit(self, facts: JobFacts) -> None:
        job = facts.job
        if job.id in self._entries:
            raise InputError(f"job {job.id!r} arrives while a job of that name is there; job ids must be unique")
        self._entries[job.id] = _Entry(
            job=job,
            submitted_s=facts.submitted_s,
            since_s=facts.since_s,
            remaining_s=facts.remaining_s,
            lasting=job.lasting,
            num_starts=facts.num_starts,
            attained_gpu_s=facts.attained_gpu_s,
            attained_s=facts.attained_s,
            allocation=facts.allocation,
        )
        if facts.allocation is None:
            self._now_wanted(job)
        else:
            self._running[job.id] = facts.allocation
            self._take(facts.allocation.gpus)

    def _leave(self, job_id: str) -> None:
        entry = self._entries.pop(job_id)
        if entry.allocation is None:
            self._no_longer_wanted(entry.job)
        else:
            del self._running[job_id]
            self._release(entry.allocation.gpus)

    def _to_queue(self, job_id: str, now_s: float) -> None:
        self._give_back(job_id, now_s)
        self._now_wanted(self._entries[job_id].job)

    def _give_back(self, job_id: str, now_s: float) -> None:
        entry = self._entries[job_id]
        entry.remaining_s = entry.left_s(now_s)
        entry.account(now_s)
        entry.allocation = None
        self._release(self._running.pop(job_id).gpus)

    def _give(self, allocation: JobAllocation, now_s: float) -> None:
        entry = self._entries[allocation.job_id]
        entry.allocation, entry.since_s = allocation, now_s
        entry.num_starts += 1
        self._running[allocation.job_id] = allocation
        self._take(allocation.gpus)

    def _now_wanted(self, job: Job) -> None:
        self._wanted[_wanted(job)] += 1
        self._num_reserved += job.calendar_entry is not None

    def _no_longer_wanted(self, job: Job) -> None:
        self._num_reserved -= job.calendar_entry is not None
        key = _wanted(job)
        self._wanted[key] -= 1
        if not self._wanted[key]:
            del self._wanted[key]

    def _change_node(self, event: NodeChange) -> None:
        k = self._place[event.node]
        self._nodes[k] = replace(self._nodes[k], state=event.state)
        self._cluster = replace(self._cluster, nodes=tuple(self._nodes))
        gpu_type = self._nodes[k].gpu_type
        self._rooms[gpu_type] = self._room(gpu_type)

    def _room(self, gpu_type: str) -> list[int]:
        """Numbers of nodes by free GPUs, up to the size of the largest node that takes work."""
        members = [
            (node.num_gpus, self._free[k].bit_count())
            for k, node in enumerate(self._nodes)
            if node.gpu_type == gpu_type and node.state is NodeState.UP
        ]
        room = [0] * (1 + max((size for size, _ in members), default=0))
        for _, free in members:
            room[free] += 1
        return room

    def _take(self, parts: Iterable[NodeGpus]) -> None:
        for part in parts:
            k, mask = self._place[part.node], mask_of(part.gpus)
            if mask & ~self._free[k]:
                raise ValueError(f"GPUs {list(part.gpus)} of node {part.node!r} are not free")
            self._set_free(k, self._free[k] & ~mask)

    def _release(self, parts: Iterable[NodeGpus]) -> None:
        for part in parts:
            k = self._place[part.node]
            self._set_free(k, self._free[k] | mask_of(part.gpus))

    def _set_free(self, k: int, mask: int) -> None:
        if self._nodes[k].state is NodeState.UP:
            room = self._rooms[self._nodes[k].gpu_type]
            room[self._free[k].bit_count()] -= 1
            room[mask.bit_count()] += 1
        self._free[k] = mask


def _seen_at(now_s: float, calendar: Iterable[CalendarEntry]) -> tuple[CalendarEntry, ...]:
    """The entries that are not over, in seconds from now."""
    return tuple(entry.seen_at(now_s) for entry in calendar if entry.end_s > now_s)


def _wanted(job: Job) -> Wanted:
    return job.min_gpus, job.gpu_types
