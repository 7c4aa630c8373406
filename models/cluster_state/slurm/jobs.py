"""Jobs as `squeue --json` has them: those that hold GPUs, and those that wait for some."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from models.cluster_state.base import Notes
from models.cluster_state.slurm.gres import Gpus, asks_for_shards, parse_gres, requested_gpus
from models.cluster_state.slurm.records import Record
from topology.readers.hostlist import expand_hostlist

# A job in one of these has its nodes, also while they boot, and until its last process is gone.
_HOLDS = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "STAGE_OUT", "SIGNALING", "RESIZING"}
    | {"POWER_UP_NODE"}
)
_HELD_STATES = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REVOKED"})
# Why a job waits, where free nodes would not help it.
_HELD_REASONS = frozenset(
    {"JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "BeginTime", "PartitionDown"}
    | {"PartitionInactive", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "Licenses", "Cleaning"}
    | {"BadConstraints", "InvalidAccount", "InvalidQOS", "AccountNotAllowed", "AccountingPolicy", "DeadLine"}
    | {"JobLaunchFailure", "JobHoldMaxRequeue", "ReservationDeleted", "ReservationInvalid", "FedJobLock"}
    | {"InactiveLimit", "SystemFailure", "BurstBufferResources", "BurstBufferStageIn", "BurstBufferOperation"}
)
_LIMITS = ("QOS", "Assoc", "Max")
_ARRAY_LIMIT = "JobArrayTaskLimit"
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
MAX_JOBS = 200_000
# All that is read of a job, here and by those who plan it.
JOB_FIELDS = (
    *("job_id", "array_job_id", "array_task_id", "array_task_string", "array_max_tasks"),
    *("het_job_id", "het_job_offset", "name", "user_name", "account", "qos", "partition", "resv_name"),
    *("job_state", "state_reason", "dependency", "hold", "priority", "requeue", "restart_cnt", "shared", "exclusive"),
    *("submit_time", "eligible_time", "start_time", "end_time", "deadline", "last_sched_evaluation", "time_limit"),
    *("nodes", "node_count", "tasks", "sockets_per_node", "required_nodes", "excluded_nodes", "features"),
    *("tres_req_str", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "tres_alloc_str"),
    "gres_detail",
)
_MAX_TASKS = 100_000
_S_PER_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job that runs on GPUs or wants some.

    `nodes`: node -> its GPUs there; None while it waits. `asked`: what it asked for in all. `held`: why free GPUs would
    not let it start. `constraints`: what it asks of nodes that a snapshot cannot say.
    """

    id: str
    record: Record
    asked: Gpus
    nodes: dict[str, Gpus] | None
    num_nodes: int | None
    gpus_per_node: int | None
    partitions: tuple[str, ...]
    held: str | None
    on_hold: bool
    constraints: tuple[str, ...]
    het_id: str | None = None


def holds_nodes(record: Record, states: Set[str] | None = None) -> bool:
    """Whether the job of a record has nodes; `states`: `states_of_job`, where they are known."""
    known = states_of_job(record) if states is None else states
    return not _HOLDS.isdisjoint(known) and bool(record.text("nodes"))


def slurm_jobs(
    record: Record, notes: Notes, at_s: float, down_partitions: frozenset[str], running_tasks: Mapping[int, int]
) -> Iterator[SlurmJob]:
    """The jobs of one record: none where it is over or has no GPUs, several of an array of which no task has begun.

    Parameters
    ----------
    at_s
        The moment of the document, in seconds since 1970.
    down_partitions
        Those that start no jobs.
    running_tasks
        Array -> how many of its tasks have nodes.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    states = states_of_job(record)
    runs = holds_nodes(record, states)
    if not runs and "PENDING" not in states:
        return
    asked = _asked(record, notes)
    nodes = _held_nodes(record, asked) if runs else None
    if asked is None and nodes:
        kinds = {item.type for item in nodes.values()}
        asked = Gpus(kinds.pop() if len(kinds) == 1 else None, sum(item.num for item in nodes.values()))
    if asked is None or nodes == {}:
        notes.add(
            "no_gpus_asked", record.document, record.pointer, f"job {job_id_of(record)!r} has no GPUs; it is left out"
        )
        return
    job = SlurmJob(
        id=job_id_of(record),
        record=record,
        asked=asked,
        nodes=nodes,
        num_nodes=record.count("node_count") or None,
        gpus_per_node=_per_node(record),
        partitions=tuple(record.words("partition")),
        held=None if runs else _held(record, states, at_s, down_partitions),
        on_hold=not runs and is_on_hold(record),
        constraints=() if runs else tuple(constraints_of(record)),
        het_id=f"{record.count('het_job_id')}" if record.count("het_job_id") else None,
    )
    tasks = record.text("array_task_string") if not runs and record.number("array_task_id") is None else ""
    if tasks:
        yield from _tasks(job, tasks, notes, running_tasks)
    else:
        yield job


def time_limit_s(record: Record) -> float | None:
    """The time limit; None where there is none."""
    minutes = record.number("time_limit")
    return minutes * _S_PER_MINUTE if minutes and minutes < float("inf") else None


def states_of_job(record: Record) -> set[str]:
    """Words of a job's state."""
    states = {word.upper() for word in record.words("job_state")}
    if not states:
        raise record.fault("job_state", "is missing; must be the state of the job")
    return states


def job_id_of(record: Record) -> str:
    """The id as Slurm prints it: `5_2` for a task of an array, `9+1` for a component."""
    number = record.count("job_id")
    if not number:
        raise record.fault("job_id", "is missing; must be the id of the job")
    array, task = record.count("array_job_id"), record.number("array_task_id")
    if array and task is not None:
        return f"{array}_{task:.0f}"
    het = record.count("het_job_id")
    return f"{het}+{record.count('het_job_offset')}" if het else f"{number}"


def _asked(record: Record, notes: Notes) -> Gpus | None:
    """GPUs that a job asks for; None for none."""
    by_key = {}
    for key in ("tres_req_str", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task"):
        text = record.text(key)
        if "gpu" not in text and "shard" not in text and "mps" not in text:
            continue
        try:
            by_key[key] = requested_gpus(text)
        except ValueError as error:
            raise record.fault(key, str(error)) from error
        if by_key[key] is None and asks_for_shards(text):
            detail = f"job {job_id_of(record)!r} asks for shards of GPUs ({text}); it is left out"
            notes.add("shards_asked", record.document, record.pointer, detail)
    kind = next((asked.type for asked in by_key.values() if asked and asked.type), None)
    num_nodes = record.count("node_count") or 1
    factors = {
        "tres_req_str": 1,
        "tres_per_job": 1,
        "tres_per_node": num_nodes,
        "tres_per_socket": num_nodes * (record.count("sockets_per_node") or 1),
        "tres_per_task": record.count("tasks") or 1,
    }
    for key, factor in factors.items():
        asked = by_key.get(key)
        if asked is not None:
            return Gpus(kind, asked.num * factor)
    return None


def _per_node(record: Record) -> int | None:
    asked = requested_gpus(record.text("tres_per_node"))
    return None if asked is None else asked.num


def _held_nodes(record: Record, asked: Gpus | None) -> dict[str, Gpus]:
    """Node -> GPUs that the job has there, nodes without any left out."""
    try:
        names = expand_hostlist(record.text("nodes"))
    except ValueError as error:
        raise record.fault("nodes", str(error)) from error
    detail = record.words("gres_detail") if not isinstance(record.value.get("gres_detail"), str) else ()
    try:
        shares = [parse_gres(text) for text in detail]
    except ValueError as error:
        raise record.fault("gres_detail", str(error)) from error
    if len(shares) == len(names):
        held = {}
        for name, share in zip(names, shares, strict=True):
            if share.gpus:
                kinds = {item.type for item in share.gpus}
                known = [item.indices for item in share.gpus]
                indices = None if None in known else tuple(k for some in known for k in some or ())
                kind = kinds.pop() if len(kinds) == 1 else None
                held[name] = Gpus(kind, sum(item.num for item in share.gpus), indices)
        return held
    total = requested_gpus(record.text("tres_alloc_str")) or asked
    if total is None:
        return {}
    if total.num % len(names):
        raise record.fault(
            "gres_detail",
            f"job {job_id_of(record)!r} has {total.num} GPUs on {len(names)} nodes, and nothing says how many on "
            "which; run squeue --json as a user who may see all details",
        )
    return {name: Gpus(total.type, total.num // len(names)) for name in names}


def _held(record: Record, states: set[str], at_s: float, down_partitions: frozenset[str]) -> str | None:
    """Why the job could not start on free GPUs."""
    reason, dependency = record.text("state_reason"), record.text("dependency")
    if states & _HELD_STATES:
        return f"state {'+'.join(sorted(states))}"
    if is_on_hold(record):
        return reason if reason in _HELD_REASONS else "held (priority 0)"
    if dependency:
        return f"dependency {dependency}"
    eligible_s = record.time_s("eligible_time")
    if eligible_s is not None and eligible_s > at_s:
        return f"begins no earlier than in {eligible_s - at_s:.0f} s"
    if reason in _HELD_REASONS or reason.startswith(_LIMITS):
        return reason
    partitions = record.words("partition")
    if partitions and down_partitions.issuperset(partitions):
        return f"partition {partitions[0]} takes no jobs"
    return None


def is_on_hold(record: Record) -> bool:
    """Whether somebody holds the job."""
    return record.value.get("hold") is True or record.number("priority") == 0.0


def constraints_of(record: Record) -> Iterator[str]:
    """What is asked of nodes beside GPUs and memory, in words."""
    for key in ("required_nodes", "excluded_nodes", "features"):
        if record.text(key):
            yield f"{key} {record.text(key)}"
    if "true" in _words(record, "exclusive") or "none" in _words(record, "shared"):
        yield "whole nodes (exclusive)"


def _words(record: Record, key: str) -> Sequence[str]:
    """Words of a field that is a number in some versions."""
    return [] if isinstance(record.value.get(key), int) else [word.lower() for word in record.words(key)]


def _tasks(job: SlurmJob, text: str, notes: Notes, running_tasks: Mapping[int, int]) -> Iterator[SlurmJob]:
    """A job for each task of `0-3,7,10-20:2%2`, of which at most two may run at a time."""
    array = job.record.count("array_job_id") or job.record.count("job_id")
    listed, _, limit = text.partition("%")
    tasks: list[int] = []
    for part in filter(None, listed.split(",")):
        if part == "...":
            detail = f"tasks of array {array} are cut off ({text}); with SLURM_BITSTR_LEN=0 squeue writes all"
            notes.add("array_cut_off", job.record.document, f"{job.record.pointer}/array_task_string", detail)
            continue
        match = _TASKS.fullmatch(part)
        if match is None:
            raise job.record.fault("array_task_string", f"is {text!r}; must be tasks such as 0-3,7%2")
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if len(tasks) + (high - low) // max(1, step) >= _MAX_TASKS:
            raise job.record.fault("array_task_string", f"is {text!r}; an array may have {_MAX_TASKS} tasks at most")
        tasks += range(low, high + 1, max(1, step))
    at_a_time = job.record.count("array_max_tasks") or (int(limit) if limit.isdigit() else 0)
    may_start = at_a_time - running_tasks.get(array, 0) if at_a_time else len(tasks)
    for k, task in enumerate(tasks):
        held = job.held or (_ARRAY_LIMIT if k >= may_start else None)
        yield SlurmJob(
            id=f"{array}_{task}",
            record=job.record,
            asked=job.asked,
            nodes=None,
            num_nodes=job.num_nodes,
            gpus_per_node=job.gpus_per_node,
            partitions=job.partitions,
            held=held,
            on_hold=job.on_hold,
            constraints=job.constraints,
        )
