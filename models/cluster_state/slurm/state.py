"""What Slurm says of a cluster, put together: nodes below their switches, jobs, and reservations as a calendar."""

from collections import Counter
from collections.abc import Mapping, Sequence

from models.cluster_state.base import ClusterState, Documents, Notes, SourceDocument, StateOptions
from models.cluster_state.gpus import KnownGpus
from models.cluster_state.slurm.accounting import read_accounting
from models.cluster_state.slurm.jobs import JOB_FIELDS, MAX_JOBS, SlurmJob, holds_nodes, slurm_jobs
from models.cluster_state.slurm.nodes import SlurmNodes, read_nodes
from models.cluster_state.slurm.planned import PlannedJobs
from models.cluster_state.slurm.records import Record, slurm_records
from models.cluster_state.slurm.reservations import read_reservations
from stowplan.collection import without_collection
from stowplan.errors import InputError
from topology.cluster import Cluster, Node, Tier
from topology.readers.base import default_minipod_tier
from topology.readers.slurm import slurm_fabric
from topology.readers.slurm_fabric import Fabric

_QUEUE_COMMAND = "squeue --json"
_PARTITIONS_COMMAND = "scontrol show partitions --json"
_STARTS_NOTHING = frozenset({"DOWN", "INACTIVE"})
_STAMPS = ("submit_time", "start_time", "last_sched_evaluation")
_NAMED = 3


def read_slurm_state(documents: Documents, options: StateOptions) -> ClusterState:
    """Read what Slurm says.

    Raises
    ------
    FileFormatError
        Names the document, the JSON pointer or line, and what is wrong.
    InputError
        When no tier is called as `options.minipod_tier` is.
    """
    with without_collection():
        return _state(documents, options)


def _state(documents: Documents, options: StateOptions) -> ClusterState:
    notes, gpus = Notes(), KnownGpus(options)
    given: dict[str, SourceDocument] = {role: found[0] for role, found in documents.items() if found}
    partition = options.settings.get("partition")
    nodes = read_nodes(given["nodes"], gpus, notes, partition=partition, has_calendar="reservations" in given)
    down, fabric_of = _partitions(given.get("partitions"))
    chosen = options.settings.get("fabric") or fabric_of.get(partition or "")
    fabric = _fabric(given.get("topology"), nodes, chosen, notes)
    queue = given.get("queue")
    records = [] if queue is None else slurm_records(queue, "jobs", _QUEUE_COMMAND, JOB_FIELDS)
    at_s = options.taken_at_s or _seen_s(records, nodes)
    jobs = _jobs(records, notes, at_s, down)
    earlier = read_accounting(given["accounting"]) if "accounting" in given else {}
    planned = PlannedJobs(
        nodes=nodes, gpus=gpus, notes=notes, at_s=at_s, partition=partition, earlier=earlier, ends=_ends(options)
    )
    state_jobs, in_use = planned.jobs(jobs)
    calendar = read_reservations(given["reservations"], nodes, notes, at_s) if "reservations" in given else []
    return ClusterState(
        cluster=_cluster(nodes, fabric, gpus, in_use, options.minipod_tier),
        jobs=state_jobs,
        taken_at_s=at_s,
        calendar=tuple(calendar),
        notes=notes.all(),
    )


def _ends(options: StateOptions) -> str:
    ends = options.settings.get("ends", "limit")
    if ends not in ("limit", "forecast"):
        raise InputError(f"ends is {ends!r}; must be limit or forecast")
    return ends


def _jobs(records: Sequence[Record], notes: Notes, at_s: float, down: frozenset[str]) -> list[SlurmJob]:
    """All jobs with GPUs."""
    running = Counter(record.count("array_job_id") for record in records if holds_nodes(record))
    jobs: list[SlurmJob] = []
    seen: set[str] = set()
    for record in records:
        for job in slurm_jobs(record, notes, at_s, down, running):
            if job.id in seen:
                raise record.fault("job_id", f"job {job.id!r} stands there twice")
            seen.add(job.id)
            jobs.append(job)
        if len(jobs) > MAX_JOBS:
            raise record.fault("", f"the queue has more than {MAX_JOBS} jobs, every task of an array counted")
    return jobs


def _seen_s(records: Sequence[Record], nodes: SlurmNodes) -> float:
    """The last moment of which documents tell: no later than when they were written, and hardly earlier."""
    stamps = (
        record.time_s(key) for record in records for key in _STAMPS if record.text("nodes") or key != "start_time"
    )
    return max((stamp for stamp in stamps if stamp is not None), default=nodes.seen_s)


def _partitions(document: SourceDocument | None) -> tuple[frozenset[str], Mapping[str, str]]:
    """Partitions that start no jobs, and the topology of those that have one of their own."""
    if document is None:
        return frozenset(), {}
    down, fabric_of = set(), {}
    for record in slurm_records(document, "partitions", _PARTITIONS_COMMAND):
        name = record.text("name")
        if not name:
            raise record.fault("name", "is missing; must be the name of the partition")
        states = {word.upper() for word in record.record("partition").words("state")}
        if states & _STARTS_NOTHING:
            down.add(name)
        if record.text("topology"):
            fabric_of[name] = record.text("topology")
    return frozenset(down), fabric_of


def _fabric(document: SourceDocument | None, nodes: SlurmNodes, chosen: str | None, notes: Notes) -> Fabric:
    """The topology, which must have every node that is planned."""
    if document is None:
        if chosen is not None:
            raise InputError(f"fabric {chosen!r} is asked for without a topology")
        return Fabric(is_flat=True)
    fabric = slurm_fabric(document.text, document.name, chosen)
    if fabric.is_flat:
        return fabric
    lacking = [node for name, node in nodes.planned.items() if name not in fabric.paths]
    if lacking:
        names = ", ".join(repr(node.name) for node in lacking[:_NAMED]) + (", ..." if len(lacking) > _NAMED else "")
        has = f"it has {len(fabric.paths)} nodes, such as {next(iter(fabric.paths))!r}"
        raise nodes.document.fault(
            f"{len(lacking)} of {len(nodes.planned)} nodes with GPUs are not in {document.name}: {names}; {has}",
            pointer=lacking[0].pointer,
        )
    for name in fabric.paths:
        if name not in nodes.planned and name not in nodes.left_out:
            detail = f"node {name!r} is in the topology, and not in {nodes.document.name}"
            notes.add("topology_node_unknown", document, "", detail)
    return fabric


def _cluster(
    nodes: SlurmNodes, fabric: Fabric, gpus: KnownGpus, in_use: Mapping[str, Sequence[int]], minipod_tier: str | None
) -> Cluster:
    built = [
        Node(
            id=node.name,
            gpu_type=node.gpu_type,
            num_gpus=node.num_gpus,
            gpus_in_use=tuple(sorted(in_use.get(node.name, ()))),
            state=node.state,
            path=fabric.paths.get(node.name, ()),
            state_reason=node.reason,
        )
        for node in nodes.planned.values()
    ]
    return Cluster(
        gpu_types=tuple(gpus.used.values()),
        nodes=tuple(built),
        tiers=tuple(Tier(name=name) for name in fabric.tiers),
        minipod_tier=default_minipod_tier(built, fabric.tiers) if minipod_tier is None else minipod_tier,
    )
