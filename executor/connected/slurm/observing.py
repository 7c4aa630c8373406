"""What Slurm says at a moment, as it is planned: governed jobs, where they run or were sent, and the work of others.

What of a job is ours (its begin, the nodes that it was sent to) is taken out of Slurm's words before they are read, so
that what is left is what keeps it from starting.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from executor.connected.ledger import Ledger
from executor.connected.slurm.client import Documents, Site
from executor.connected.slurm.terms import SOON_S, Mark, Stage, Terms, parallelism_of, read_mark
from executor.control.backend import Facts, JobFacts
from executor.slurm.actions import JOB_ID
from models.cluster_state.base import ParsedDocument, SourceDocument, StateJob, StateOptions
from models.cluster_state.slurm.jobs import constraints_of, holds_nodes, is_on_hold, job_id_of, states_of_job
from models.cluster_state.slurm.records import Record, slurm_records
from models.cluster_state.slurm.state import read_slurm_state
from models.plan import Change, JobAllocation
from models.wording import counted
from models.workload import Job, NodeGpus
from topology.calendar import CalendarEntry
from topology.cluster import Cluster
from topology.readers.hostlist import expand_hostlist

NOT_OPTED_IN = "has not opted in"
_QUEUE = "squeue --json"
_OURS = (Stage.KEPT, Stage.SENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a record of the queue says that is no business of plans.

    target: how scontrol calls it, with all its tasks. others: what its AdminComment says beside our `mark`. begins_s:
    seconds until it may start (0: it may). sent_to: nodes that it was sent to. least_nodes, most_nodes: what it asked
    for, where we have changed that. why_not: why it is not ours to place (None: it is).
    """

    target: str
    mark: Mark | None
    others: str
    begins_s: float
    sent_to: tuple[str, ...]
    least_nodes: int
    most_nodes: int
    comment: str
    requeues: bool
    why_not: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Governed:
    """A job that is ours to place. parts: where it runs, or is to start; held: why it cannot start whatever is free.
    is_late: it was sent to nodes on which others are by now, or for longer than patience has."""

    job: Job
    entry: Entry
    runs: bool
    parts: tuple[NodeGpus, ...] = ()
    held: str | None = None
    is_late: bool = False

    @property
    def waits(self) -> bool:
        """Whether it can be sent somewhere."""
        return self.held is None and not self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A moment, in seconds since 1970. others: GPU jobs that are not ours to place, why by job; foreign: those of them
    that run, until their time limits. marked: what waits with a note of ours, whoever governs it. The calendar is in
    seconds from the moment."""

    at_s: float
    cluster: Cluster
    jobs: Mapping[str, Governed]
    foreign: Mapping[str, Governed]
    others: Mapping[str, str]
    marked: tuple[Entry, ...]
    calendar: tuple[CalendarEntry, ...]

    def facts(self, now_s: float) -> Facts:
        """What a controller is told, at this moment on its clock."""
        types = {node.id: node.gpu_type for node in self.cluster.nodes}
        items = (*self.foreign.values(), *self.jobs.values())
        jobs = tuple(_facts(item, now_s, types) for item in items if item.held is None)
        return Facts(cluster=self.cluster, jobs=jobs, calendar=tuple(entry.seen_at(-now_s) for entry in self.calendar))

    def signature(self) -> object:
        """What decisions depend on, but for the time that passes."""
        jobs = {
            name: (item.runs, item.parts, item.held is None, item.is_late, item.job.priority)
            for name, item in {**self.foreign, **self.jobs}.items()
        }
        calendar = [
            (
                entry.name,
                entry.nodes,
                *(None if s is None else round(s + self.at_s) for s in (entry.from_s, entry.until_s)),
            )
            for entry in self.calendar
        ]
        return self.cluster, jobs, calendar


def observe(documents: Documents, site: Site, terms: Terms, options: StateOptions, at_s: float) -> Observed:
    """Read what Slurm says at `at_s`.

    Raises
    ------
    FileFormatError
        Names the document, the place in it, and what is wrong.
    """
    queue = ParsedDocument(name=_QUEUE, value=documents.queue)
    entries: dict[str, Entry] = {}
    marked = []
    for record in slurm_records(queue, "jobs", _QUEUE):
        entry = _entry(record, terms, at_s)
        entries[_key(record)] = entry
        if entry.mark is not None and entry.mark.stage in _OURS and "PENDING" in states_of_job(record):
            marked.append(entry)
    given: dict[str, tuple[SourceDocument, ...]] = {
        "nodes": (documents.nodes,),
        "queue": (queue,),
        "reservations": (documents.reservations,),
        "partitions": () if documents.partitions is None else (documents.partitions,),
        "topology": () if site.topology is None else (site.topology,),
    }
    settings = dict(options.settings)
    if len(terms.partitions) == 1:
        settings["partition"] = terms.partitions[0]
    state = read_slurm_state(given, replace(options, taken_at_s=at_s, settings=settings))
    names = {entry.name for entry in state.calendar}
    size = max(node.num_gpus for node in state.cluster.nodes)
    governed: dict[str, Governed] = {}
    others: dict[str, str] = {}
    foreign: dict[str, Governed] = {}
    for item in state.jobs:
        entry = entries[item.job.id if item.job.id in entries else item.job.id.partition("_")[0]]
        why = entry.why_not or _unfit(item, names, size)
        if why is None:
            governed[item.job.id] = _governed(item, entry, names, may_requeue=terms.may_requeue)
            continue
        others[item.job.id] = why
        if item.job.current is not None:
            foreign[item.job.id] = _governed(item, entry, names, may_requeue=False)
    return Observed(
        at_s=at_s,
        cluster=state.cluster,
        jobs=dict(_where_sent(state.cluster, governed, foreign, terms, at_s)),
        foreign=foreign,
        others=others,
        marked=tuple(marked),
        calendar=state.calendar,
    )


def changes_of(before: Governed | None, after: Governed | None) -> Iterator[str]:
    """What has become of a job, in words."""
    ran = before is not None and before.runs
    if after is None:
        yield "is over" if ran else "is not ours any more"
        return
    if before is None:
        yield f"arrived, {counted(after.job.min_gpus, 'GPU')}"
    if after.runs and not ran:
        yield f"runs on {', '.join(sorted(part.node for part in after.parts))}"
    elif after.is_late:
        yield f"has not started on {', '.join(after.entry.sent_to)}"
    elif ran and not after.runs:
        yield "waits again"


def _key(record: Record) -> str:
    """The id of the jobs of a record; of an array of which no task has begun its own."""
    array = record.count("array_job_id")
    is_whole = array and record.number("array_task_id") is None and record.text("array_task_string")
    return f"{array}" if is_whole else job_id_of(record)


def _entry(record: Record, terms: Terms, at_s: float) -> Entry:
    """Read a record, and take out of it what is ours."""
    mark, others = read_mark(record.text("admin_comment"))
    comment, runs = record.text("comment"), holds_nodes(record)
    eligible_s = record.time_s("eligible_time") or 0.0
    begins_s = 0.0 if runs else max(0.0, eligible_s - at_s)
    key, tasks = _key(record), record.text("array_task_string")
    is_ours = mark is not None and mark.stage in _OURS
    sent_to: tuple[str, ...] = ()
    asked = record.text("required_nodes")
    if is_ours and not runs:
        sent_to = tuple(expand_hostlist(asked)) if asked else ()
        record.value["required_nodes"] = ""
    why = _why_not(record, mark, comment, terms, runs=runs)
    if why is None and not runs and (is_ours or begins_s <= SOON_S):
        record.value["eligible_time"] = 0
        if record.text("state_reason") == "BeginTime":
            record.value["state_reason"] = "None"
    return Entry(
        target=f"{key}_[{tasks.partition('%')[0]}]" if key.isdigit() and tasks else key,
        mark=mark,
        others=others,
        begins_s=begins_s,
        sent_to=sent_to,
        least_nodes=mark.least_nodes if mark is not None and is_ours else record.count("node_count") or 1,
        most_nodes=mark.most_nodes if mark is not None and is_ours else record.count("max_nodes"),
        comment=comment,
        requeues=record.value.get("requeue") is True,
        why_not=why,
    )


def _why_not(record: Record, mark: Mark | None, comment: str, terms: Terms, *, runs: bool) -> str | None:
    """Why a job is not ours to place, as far as its record says so."""
    if not terms.govern(record.text("partition"), record.text("qos"), comment):
        return NOT_OPTED_IN
    if record.count("het_job_id") or not JOB_ID.fullmatch(job_id_of(record)):
        return "is heterogeneous, and scontrol takes none of its components"
    if runs:
        return None
    if mark is not None and mark.stage is Stage.LEFT:
        return "is left to Slurm: it did not start where it was sent"
    if is_on_hold(record):
        return "is on hold, by its user or by an administrator"
    constraints = tuple(constraints_of(record))
    return f"asks for {'; '.join(constraints)}, which plans do not know" if constraints else None


def _unfit(item: StateJob, entries: Set[str], size: int) -> str | None:
    """Why a job could not be sent to what is planned for it."""
    if item.job.current is not None:
        return None
    if item.job.calendar_entry is not None and item.job.calendar_entry not in entries:
        return f"is of reservation {item.job.calendar_entry!r}, which has none of the nodes that are planned"
    fewest = -(-item.job.min_gpus // size)
    if (item.num_nodes or 1) > fewest:
        return f"asks for {item.num_nodes} nodes and {item.job.min_gpus} GPUs, which plans put on {fewest}"
    return None


def _governed(item: StateJob, entry: Entry, entries: Set[str], *, may_requeue: bool) -> Governed:
    degrees = parallelism_of(entry.comment)
    is_right = degrees is not None and degrees.num_gpus == item.job.min_gpus
    job = replace(
        item.job,
        parallelism=degrees if is_right else None,
        preemptible=may_requeue and entry.requeues,
        # One that runs may be of a reservation that is over, or elsewhere.
        calendar_entry=item.job.calendar_entry if item.job.calendar_entry in entries else None,
    )
    current = item.job.current or ()
    return Governed(job=replace(job, current=None), entry=entry, runs=bool(current), parts=current, held=item.held)


def _where_sent(
    cluster: Cluster, jobs: Mapping[str, Governed], foreign: Mapping[str, Governed], terms: Terms, at_s: float
) -> Iterator[tuple[str, Governed]]:
    """Jobs, those that were sent and have not started with the GPUs that are to be theirs."""
    ledger = Ledger(cluster)
    for name, item in {**foreign, **jobs}.items():
        if item.runs:
            ledger.take(name, item.parts)
    for name, item in jobs.items():
        entry = item.entry
        is_sent = entry.mark is not None and entry.mark.stage is Stage.SENT and entry.sent_to
        if item.runs or not is_sent or item.held is not None:
            yield name, item
            continue
        each = item.job.min_gpus // len(entry.sent_to)
        parts = ledger.lowest(Counter(dict.fromkeys(entry.sent_to, each)))
        is_there = sum(len(part.gpus) for part in parts) == item.job.min_gpus
        sent_s = 0 if entry.mark is None else entry.mark.at_s
        # One that Slurm has requeued stands there with its old nodes, and a begin.
        is_late = not is_there or entry.begins_s > 0 or at_s - sent_s > terms.patience_s
        if is_late:
            yield name, replace(item, is_late=True)
        else:
            ledger.take(name, parts)
            yield name, replace(item, parts=parts)


def _facts(item: Governed, now_s: float, types: Mapping[str, str]) -> JobFacts:
    job = item.job
    allocation = None
    if item.parts:
        allocation = JobAllocation(
            job_id=job.id,
            gpu_type=types[item.parts[0].node],
            num_gpus=sum(len(part.gpus) for part in item.parts),
            gpus=tuple(sorted(item.parts, key=lambda part: part.node)),
            change=Change.KEPT,
        )
    return JobFacts(
        # Its deadline and what it has had are told as they were when it came.
        job=replace(job, deadline_s=None if job.deadline_s is None else job.deadline_s + job.age_s),
        submitted_s=now_s - job.age_s,
        since_s=now_s,
        remaining_s=job.remaining_s,
        num_starts=job.num_restarts + bool(allocation),
        attained_gpu_s=job.attained_gpu_s,
        allocation=allocation,
    )
