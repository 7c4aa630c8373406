"""A plan of any policy as actions on a queue that Slurm has, in the order in which they are to be carried out.

Reservations are made first: Slurm may refuse them, and nothing else is done by then. What loses its GPUs gives them
back, what is to wait is held. Then every job that starts is held and told its nodes, and last all are released with
priorities in the order of the plan: none starts before all are told.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from executor.deployment import deployment_name
from executor.slurm.actions import (
    NAME,
    TOP_PRIORITY,
    HoldJob,
    RankJob,
    ReleaseJob,
    Reserve,
    SlurmAction,
    SteerJob,
    StopBy,
    StopJob,
    job_issues,
)
from models.plan import AheadPlacement, Change, JobAllocation, Plan
from models.workload import Job, Snapshot
from stowplan.errors import Issue, Severity, raise_for_errors
from topology.calendar import CalendarEntry, EntryKind
from topology.calendar_nodes import entry_nodes

# Of nodes, in expectation.
_SOME_NODES = 0.005


class Running(StrEnum):
    """What becomes of jobs that run and lose GPUs in the plan. keep: they run on, a plan that stops them is refused.
    requeue: they wait, or start elsewhere. cancel: those that get none are over; one that goes on elsewhere is
    refused."""

    KEEP = "keep"
    REQUEUE = "requeue"
    CANCEL = "cancel"


class Waiting(StrEnum):
    """What becomes of jobs that the plan lets wait. leave: Slurm may start them where there is room; hold: they wait
    until somebody releases them."""

    LEAVE = "leave"
    HOLD = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverOptions:
    """What a user chooses.

    `reserves_calendar`: entries of the calendar become reservations. `users`, `accounts`: who may use reservations of
    which no job says whose they are. `top_priority`: of the first job that starts, each behind it gets one less (None:
    priorities stay as they are).
    """

    running: Running = Running.KEEP
    waiting: Waiting = Waiting.LEAVE
    reserves_calendar: bool = True
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    top_priority: int | None = TOP_PRIORITY


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Actions in their order. `notes`: what Slurm is not told, each kind once with its first place and how many there
    are; warnings with pointers into the plan, or below `/snapshot` into what was planned."""

    actions: tuple[SlurmAction, ...]
    notes: tuple[Issue, ...] = ()


def hand_over(
    plan: Plan, snapshot: Snapshot, options: HandOverOptions | None = None, taken_at_s: float | None = None
) -> HandOver:
    """Say what is to be done.

    Parameters
    ----------
    taken_at_s
        The moment of the snapshot in seconds since 1970; None: that at which the commands run.

    Raises
    ------
    InputError
        When jobs of the plan are none of Slurm's, run and would lose GPUs although nobody asked for that, or nobody
        says whose a reservation is.
    """
    made = _HandOver(plan, snapshot, options or HandOverOptions(), taken_at_s)
    actions = tuple(made.actions())
    raise_for_errors([issue for issue in made.issues if issue.severity is Severity.ERROR], "hand-over to Slurm")
    return HandOver(actions=actions, notes=tuple(_each_once(made.issues)))


class _HandOver:
    """Collects what is wrong, and what Slurm is not told, in `issues`."""

    def __init__(self, plan: Plan, snapshot: Snapshot, options: HandOverOptions, taken_at_s: float | None) -> None:
        self.issues: list[Issue] = []
        self._plan = plan
        self._snapshot = snapshot
        self._options = options
        self._taken_at_s = taken_at_s
        self._jobs = {job.id: job for job in snapshot.jobs}
        self._num_gpus = {node.id: node.num_gpus for node in snapshot.cluster.nodes}

    def actions(self) -> Iterator[SlurmAction]:
        """All of them, in their order."""
        stops = {stop.job_id: stop for stop in self._stops()}
        reserves = [self._reservation_ahead(k, item) for k, item in enumerate(self._plan.ahead)]
        named = {reserve.name for reserve in reserves}
        told = [*self._starts(stops), *map(_later, self._plan.ahead, reserves)]
        ahead = {item.placement.job_id for item in self._plan.ahead}
        waiting = [
            item.job_id
            for k, item in enumerate(self._plan.unplaced)
            if item.job_id not in ahead and self._is_known(item.job_id, f"/unplaced/{k}/job_id")
        ]
        yield from (entry for entry in self._entries() if entry.name not in named)
        yield from reserves
        yield from stops.values()
        held = [*(waiting if self._options.waiting is Waiting.HOLD else ()), *(item.job_id for item in told)]
        # What was requeued is on hold.
        yield from (HoldJob(job_id=job_id) for job_id in held if job_id not in stops)
        yield from told
        top = self._options.top_priority
        for k, item in enumerate(told):
            yield ReleaseJob(job_id=item.job_id)
            if top is not None:
                yield RankJob(job_id=item.job_id, priority=max(1, top - k))
        if self._options.waiting is Waiting.LEAVE and self._options.running is Running.REQUEUE:
            yield from (ReleaseJob(job_id=job_id) for job_id in waiting if job_id in stops)

    def _is_known(self, job_id: str, pointer: str) -> bool:
        found = job_issues(job_id, pointer)
        self.issues += found
        return not found

    def _note(self, code: str, pointer: str, detail: str) -> None:
        self.issues.append(Issue(code=code, pointer=pointer, detail=detail, severity=Severity.WARNING))

    def _stops(self) -> Iterator[StopJob]:
        """Jobs that run and get none of their GPUs, or others."""
        losing = [
            *((f"/allocations/{k}", a.job_id, True) for k, a in enumerate(self._plan.allocations) if _goes_on(a)),
            *((f"/unplaced/{k}", u.job_id, False) for k, u in enumerate(self._plan.unplaced) if u.preempted),
        ]
        running = self._options.running
        for pointer, job_id, goes_on in losing:
            if running is Running.KEEP:
                detail = f"job {job_id!r} runs, and the plan {'has it elsewhere' if goes_on else 'stops it'}; ask for "
                detail += "it with running requeue, or plan again with jobs that are not preemptible"
                self.issues.append(Issue(code="stops_running_job", pointer=pointer, detail=detail))
            elif running is Running.CANCEL and goes_on:
                detail = f"job {job_id!r} runs, and goes on elsewhere in the plan: that needs running requeue"
                self.issues.append(Issue(code="moves_running_job", pointer=pointer, detail=detail))
            else:
                yield StopJob(job_id=job_id, by=StopBy(running.value))

    def _starts(self, stops: Mapping[str, StopJob]) -> Iterator[SteerJob]:
        for k, item in enumerate(self._plan.allocations):
            pointer = f"/allocations/{k}"
            if item.change is not Change.KEPT and self._is_known(item.job_id, f"{pointer}/job_id"):
                yield self._start(item, self._jobs[item.job_id], pointer, at_once=item.job_id in stops)

    def _start(self, item: JobAllocation, job: Job, pointer: str, *, at_once: bool) -> SteerJob:
        """Slurm is told numbers of GPUs where the nodes do not say them."""
        counts = [len(part.gpus) for part in item.gpus]
        is_partial = any(len(part.gpus) < self._num_gpus[part.node] for part in item.gpus)
        is_resized = item.num_gpus != job.min_gpus
        is_even = len(set(counts)) == 1
        if is_partial:
            detail = "Slurm chooses which GPUs of a node a job gets; it is told nodes and numbers"
            self._note("gpu_indices_not_said", f"{pointer}/gpus", detail)
        if not is_even:
            detail = (
                f"job {item.job_id!r} gets {', '.join(map(str, counts))} GPUs of its nodes; Slurm is told the nodes "
            )
            detail += "and may share its GPUs out otherwise, as far as other jobs leave room"
            self._note("uneven_nodes", f"{pointer}/gpus", detail)
        if is_resized and (job.parallelism is None or job.parallelism.num_gpus != item.num_gpus):
            detail = f"job {item.job_id!r} asked for {job.min_gpus} GPUs and is given {item.num_gpus}; its program has "
            detail += "to go by what it gets"
            self._note("size_changed", f"{pointer}/num_gpus", detail)
        return SteerJob(
            job_id=item.job_id,
            nodes=tuple(part.node for part in item.gpus),
            gpus_per_node=counts[0] if is_even and (is_resized or (is_partial and len(counts) > 1)) else None,
            num_gpus=item.num_gpus if is_resized else None,
            at_once=at_once,
        )

    def _reservation_ahead(self, k: int, item: AheadPlacement) -> Reserve:
        """What keeps the nodes of a job until it starts; jobs that run there are expected to be over, or evicted."""
        job_id, pointer = item.placement.job_id, f"/ahead/{k}"
        known = self._is_known(job_id, f"{pointer}/placement/job_id")
        if item.moves:
            moved = ", ".join(move.job_id for move in item.moves)
            detail = f"jobs that are to make way by then run on ({moved}); requeue them with ReqNodeList in time"
            self._note("moves_not_made", f"{pointer}/moves", detail)
        if item.expected_evictions >= _SOME_NODES:
            detail = (
                f"{item.expected_evictions:.2f} nodes are expected to be in use still when the reservation begins; "
            )
            detail += "Slurm lets these jobs run"
            self._note("evictions_not_made", f"{pointer}/expected_evictions", detail)
        promised = None if item.promise is None else item.promise.reservation
        users, accounts = self._owners([self._jobs[job_id]] if known else [])
        if known and not (users or accounts):
            detail = (
                f"nobody says who job {job_id!r} belongs to, and Slurm reserves for somebody; say users or accounts"
            )
            self.issues.append(Issue(code="reservation_of_nobody", pointer=pointer, detail=detail))
        return Reserve(
            name=_plain(promised or f"stowplan-{job_id}"),
            nodes=tuple(node.node for node in item.nodes),
            from_s=item.start_s,
            until_s=item.end_s,
            taken_at_s=self._taken_at_s,
            users=users,
            accounts=accounts,
            replaces=True,
        )

    def _entries(self) -> Iterator[Reserve]:
        """Entries of the calendar that Slurm can have."""
        entries = self._snapshot.calendar if self._options.reserves_calendar else ()
        nodes = self._snapshot.cluster.nodes
        positions = entry_nodes(self._snapshot.cluster, entries).positions
        jobs: dict[str, list[Job]] = {}
        for job in self._snapshot.jobs:
            if job.calendar_entry is not None:
                jobs.setdefault(job.calendar_entry, []).append(job)
        for k, entry in enumerate(entries):
            pointer = f"/snapshot/calendar/{k}"
            if entry.is_over or not (over := tuple(nodes[n].id for n in positions[entry.name])):
                continue
            if entry.kind is EntryKind.ARRIVAL:
                detail = f"{entry.name!r}: nodes arrive, of which Slurm knows nothing before they are there"
                self._note("arrival_not_said", pointer, detail)
            elif (reserve := self._entry(entry, over, jobs.get(entry.name, []))) is None:
                detail = f"{entry.name!r} is not reserved: none of its jobs has a user; say users or accounts"
                self._note("reservation_of_nobody", pointer, detail)
            else:
                yield reserve

    def _entry(self, entry: CalendarEntry, nodes: tuple[str, ...], jobs: Iterable[Job]) -> Reserve | None:
        """An entry as a reservation; None where nobody says whose it is. Slurm wants to know who may use nodes that
        nobody may, too."""
        is_kept = entry.kind is EntryKind.RESERVATION
        users, accounts = self._owners(jobs) if is_kept else (("root",), ())
        if not (users or accounts):
            return None
        return Reserve(
            name=_plain(entry.name),
            nodes=nodes,
            from_s=entry.from_s,
            until_s=entry.until_s,
            taken_at_s=self._taken_at_s,
            users=users,
            accounts=accounts,
            maintenance=not is_kept,
            soft=not entry.hard,
        )

    def _owners(self, jobs: Iterable[Job]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Users and accounts of a reservation: those of its jobs, else those that were named."""
        users = dict.fromkeys(job.user for job in jobs if job.user is not None and NAME.fullmatch(job.user))
        return (tuple(users), ()) if users else (self._options.users, self._options.accounts)


def _each_once(notes: Iterable[Issue]) -> Iterator[Issue]:
    found: dict[str, list[Issue]] = {}
    for note in notes:
        found.setdefault(note.code, []).append(note)
    for first, *others in found.values():
        yield replace(first, detail=f"{first.detail} (and at {len(others)} more places)") if others else first


def _goes_on(item: JobAllocation) -> bool:
    return item.change not in (Change.STARTED, Change.KEPT)


def _later(item: AheadPlacement, reserve: Reserve) -> SteerJob:
    """A job that starts when its reservation begins."""
    return SteerJob(job_id=item.placement.job_id, nodes=item.placement.hosts, reservation=reserve.name)


def _plain(name: str) -> str:
    return name if NAME.fullmatch(name) else deployment_name(name)
