"""Plans to hand over: nodes n1 to n4 of eight GPUs, and what is planned on them."""

from models.plan import (
    AheadPlacement,
    Change,
    JobAllocation,
    KeptNode,
    Plan,
    PretrainingPlacement,
    SpreadPair,
    UnplacedJob,
)
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from topology.calendar import CalendarEntry
from topology.cluster import Cluster, Node
from topology.gpu_catalogue import find_product, gpu_type_of

_H100 = gpu_type_of(find_product("h100"), "bf16")


def snapshot(*jobs: Job, calendar: tuple[CalendarEntry, ...] = (), num_nodes: int = 4) -> Snapshot:
    nodes = tuple(Node(id=f"n{k}", gpu_type="h100", num_gpus=8) for k in range(1, num_nodes + 1))
    return Snapshot(cluster=Cluster(gpu_types=(_H100,), nodes=nodes), jobs=jobs, calendar=calendar)


def parts(**gpus: int) -> tuple[NodeGpus, ...]:
    """So many GPUs of each node."""
    return tuple(NodeGpus(node=node, gpus=tuple(range(num))) for node, num in gpus.items())


def waits(job_id: str, num_gpus: int = 8, **more: object) -> Job:
    return Job(id=job_id, min_gpus=num_gpus, **more)  # type: ignore[arg-type]


def runs(job_id: str, **gpus: int) -> Job:
    return Job(id=job_id, min_gpus=sum(gpus.values()), current=parts(**gpus))


def gets(job_id: str, change: Change = Change.STARTED, **gpus: int) -> JobAllocation:
    return JobAllocation(job_id=job_id, gpu_type="h100", num_gpus=sum(gpus.values()), gpus=parts(**gpus), change=change)


def left(job_id: str, *, preempted: bool = False) -> UnplacedJob:
    return UnplacedJob(job_id=job_id, reason="capacity", detail="", counts={}, remedy="", preempted=preempted)


def later(job_id: str, *hosts: str, spares: tuple[str, ...] = (), **more: object) -> AheadPlacement:
    """From an hour on, for another one."""
    placement = PretrainingPlacement(
        job_id=job_id,
        scheduling_unit="pp",
        alpha=0.5,
        beta=0.5,
        affinity_source="given",
        cells=(hosts,),
        minipods=(tuple("m" for _ in hosts),),
        hosts=hosts,
        minipod_spread=SpreadPair(dp=1, pp=1),
        distance=SpreadPair(dp=0, pp=0),
        num_minipods_used=1,
        max_unit_spread=1,
        objective_eq4=1.0,
        objective_eq2=1.0,
    )
    given = {
        "placement": placement,
        "parallelism": Parallelism(tp=8, pp=1, dp=len(hosts)),
        "gpu_type": "h100",
        "start_s": 3600.0,
        "end_s": 7200.0,
        "nodes": tuple(KeptNode(node=node, free_probability=1.0, idle_s=0.0) for node in (*hosts, *spares)),
        "expected_evictions": 0.0,
        "idle_s": 0.0,
        "other_starts": (),
    }
    return AheadPlacement(**{**given, **more})  # type: ignore[arg-type]


def plan(*items: JobAllocation | UnplacedJob | AheadPlacement) -> Plan:
    return Plan(
        allocations=tuple(item for item in items if isinstance(item, JobAllocation)),
        unplaced=tuple(item for item in items if isinstance(item, UnplacedJob)),
        score=(),
        ahead=tuple(item for item in items if isinstance(item, AheadPlacement)),
    )
