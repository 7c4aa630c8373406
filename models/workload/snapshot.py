"""Jobs and the snapshot: what the cluster looks like at one moment. A `Snapshot` in hand is legal."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from models.forecast.lasting import Lasting
from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.training import AS_THE_MODEL_SAYS, Choices
from models.performance.goodput.spec import Performance
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.model_issues import model_issues
from models.transformer import JobModel, OperatorModel, Transformer
from stowplan.errors import Issue, Severity, pointer_of, raise_for_errors
from stowplan.living import Living
from stowplan.pickling import quickly_pickled
from topology.calendar import CalendarEntry, EntryKind
from topology.calendar_issues import calendar_issues, calendar_warnings
from topology.cluster import Cluster, Node, NodeState


class Adaptivity(StrEnum):
    """What a planner may change (Sia section 3.4).

    elastic: GPU count, type and batch size; strong_scaling: count and type at a fixed batch size; rigid: type only.
    """

    ELASTIC = "elastic"
    STRONG_SCALING = "strong_scaling"
    RIGID = "rigid"


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """GPU indices (0-based, ascending) on one node."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """GPUs that a job must get in this plan (Sia section 3.4, preemption and reservation); one that runs on as many of
    the type keeps its configuration with it, and may be moved."""

    gpu_type: str
    num_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Degrees of a 3D-parallel job: tensor, pipeline, data."""

    tp: int
    pp: int
    dp: int

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole job."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """GPUs that an earlier plan added to a running job beyond its basic demand (Suika section 3.2.3).

    `benefit`: the marginal benefit B for which they were given.
    """

    gpus: tuple[NodeGpus, ...]
    benefit: float


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Living):
    """One job of the snapshot.

    `current` is where the job runs now (None: it waits). `gpu_types` restricts the GPU types (None: any).
    `weight` multiplies the job's terms of the objective. `age_s`, `num_restarts`, `restart_cost_s` feed the
    restart factor (Sia Eq. 3). A non-preemptible job that runs keeps its GPUs.
    `performance` is what Sia needs, `parallelism` and `transformer` what Arnold needs. Arena and Suika need
    `transformer`, `operators` or a throughput table; at most one of `transformer` and `operators`. `choices`: what of
    the model's training is left to policies that make 3D plans; each of these plans says what it is then.
    Arena: `priority` (1 is launched first), `deadline_s` from now, `remaining_iterations`.
    Gang: `min_gpus` is its size, `priority` as for Arena, `remaining_s` how long it is expected to run from now, or
    from its start while it waits (0: it is overdue, None: not known), `queue` whose quota it counts against,
    `attained_gpu_s` GPUs x seconds for which it had GPUs.
    Gavel: `min_gpus` is its size, `attained_s` seconds for which it had GPUs of each type (None: it had none yet); for
    the makespan `remaining_iterations`, or `remaining_s` of a job without performance.
    ElasticFlow: a throughput table, `deadline_s` with `remaining_iterations`, `attained_gpu_s` (above 0: it has begun).
    Suika: `min_gpus` is the basic demand, `parallelism` the plan to start with, `parallel_plan` the one that runs, on
    exactly the GPUs of `current`; `expansions` are what the last plans added, oldest first.
    `calibration`: coefficients inverted from measurements, in place of those from data sheets.
    `lasting` is how long the job lasts from now, or from its start while it waits, as quantiles; `calendar_entry` names
    the reservation that it belongs to. A job that is planned ahead starts from `earliest_start_s` to `latest_start_s`
    from now (None: as late as the horizon).
    For forecasters, and for no policy: `user` and `application` (the model or program) beside `queue`, `time_limit_s`
    that its user gave the job at most, and `running_s` for which it has run (None: not known, or it waits).
    """

    id: str
    min_gpus: int = 1
    max_gpus: int | None = None
    adaptivity: Adaptivity = Adaptivity.ELASTIC
    gpu_types: tuple[str, ...] | None = None
    preemptible: bool = True
    reservation: Reservation | None = None
    weight: float = 1.0
    current: tuple[NodeGpus, ...] | None = None
    age_s: float = 0.0
    num_restarts: int = 0
    restart_cost_s: float = 0.0
    performance: Performance | None = None
    parallelism: Parallelism | None = None
    transformer: Transformer | None = None
    operators: OperatorModel | None = None
    priority: int = 1
    deadline_s: float | None = None
    remaining_iterations: float | None = None
    parallel_plan: ParallelPlan | None = None
    expansions: tuple[Expansion, ...] = ()
    calibration: Calibration | None = None
    remaining_s: float | None = None
    queue: str | None = None
    attained_gpu_s: float = 0.0
    attained_s: Mapping[str, float] | None = None
    lasting: Lasting | None = None
    calendar_entry: str | None = None
    earliest_start_s: float = 0.0
    latest_start_s: float | None = None
    user: str | None = None
    application: str | None = None
    time_limit_s: float | None = None
    running_s: float | None = None
    choices: Choices = AS_THE_MODEL_SAYS

    @property
    def model(self) -> JobModel | None:
        """What the job trains, where it says so."""
        return self.transformer or self.operators


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Living):
    """A cluster and its jobs at one moment, and the calendar of the cluster from then on.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the snapshot (`/jobs/2/max_gpus`).
    """

    cluster: Cluster
    jobs: tuple[Job, ...]
    calendar: tuple[CalendarEntry, ...] = ()

    def __post_init__(self) -> None:
        issues = snapshot_issues(self.cluster, self.jobs) + calendar_issues(self.cluster, self.calendar)
        raise_for_errors(issues, "snapshot")


def checked_snapshot(cluster: Cluster, jobs: tuple[Job, ...], calendar: tuple[CalendarEntry, ...] = ()) -> Snapshot:
    """A snapshot of which it is known that it is legal: nobody looks it through.

    For whoever follows a cluster over time, has looked at every job when it came, and gives no GPU away twice.
    """
    snapshot = object.__new__(Snapshot)
    object.__setattr__(snapshot, "cluster", cluster)
    object.__setattr__(snapshot, "jobs", jobs)
    object.__setattr__(snapshot, "calendar", calendar)
    return snapshot


def snapshot_issues(cluster: Cluster, jobs: tuple[Job, ...]) -> list[Issue]:
    """Every fault (and warning) of the jobs on this cluster, whatever policy will plan them."""
    # Built once: a map of all nodes per job would make the cost grow with jobs x nodes.
    type_of = {node.id: node.gpu_type for node in cluster.nodes}
    known = {kind.name for kind in cluster.gpu_types}
    issues = [issue for k, job in enumerate(jobs) for issue in _job_issues(f"/jobs/{k}", job, known, type_of)]
    counts = Counter(job.id for job in jobs)
    issues += [
        Issue(
            code="duplicate_id",
            pointer=f"/jobs/{k}/id",
            detail=f"{job.id!r} occurs {counts[job.id]} times; job ids must be unique",
        )
        for k, job in enumerate(jobs)
        if counts[job.id] > 1
    ]
    issues += _current_issues(cluster, jobs)
    return issues


def snapshot_warnings(snapshot: Snapshot) -> list[Issue]:
    """What is odd about a snapshot, which is legal."""
    issues = [*calendar_warnings(snapshot.cluster, snapshot.calendar), *_belonging_warnings(snapshot)]
    if any(node.state is NodeState.DOWN for node in snapshot.cluster.nodes):
        issues += _current_issues(snapshot.cluster, snapshot.jobs)
    return issues


def _belonging_warnings(snapshot: Snapshot) -> Iterator[Issue]:
    """Jobs of reservations that there are not: those that are over leave the calendar before their jobs leave."""
    reservations = {entry.name for entry in snapshot.calendar if entry.kind is EntryKind.RESERVATION}
    for k, job in enumerate(snapshot.jobs):
        if job.calendar_entry is not None and job.calendar_entry not in reservations:
            yield Issue(
                code="unknown_reservation",
                pointer=f"/jobs/{k}/calendar_entry",
                detail=f"job {job.id!r} belongs to {job.calendar_entry!r}, and the calendar has no reservation of that "
                "name; it is planned like jobs that belong to none",
                severity=Severity.WARNING,
            )


def _job_issues(pointer: str, job: Job, known: Set[str], type_of: Mapping[str, str]) -> Iterator[Issue]:
    """Faults of one job; `known` GPU types of the cluster, `type_of` its nodes."""
    if job.min_gpus < 1:
        yield Issue(code="not_positive", pointer=f"{pointer}/min_gpus", detail=f"is {job.min_gpus}; at least 1")
    if job.max_gpus is not None and job.max_gpus < job.min_gpus:
        yield Issue(
            code="min_above_max",
            pointer=f"{pointer}/max_gpus",
            detail=f"job {job.id!r} has min_gpus {job.min_gpus} above max_gpus {job.max_gpus}",
        )
    if not (math.isfinite(job.weight) and job.weight > 0):
        yield Issue(
            code="not_positive", pointer=f"{pointer}/weight", detail=f"is {job.weight}; must be finite and above 0"
        )
    for field in ("age_s", "num_restarts", "restart_cost_s", "attained_gpu_s", "earliest_start_s"):
        value = getattr(job, field)
        if not (math.isfinite(value) and value >= 0):
            yield Issue(
                code="negative", pointer=f"{pointer}/{field}", detail=f"is {value}; must be finite and at least 0"
            )
    for name, value in (job.attained_s or {}).items():
        if not (math.isfinite(value) and value >= 0):
            where = pointer + pointer_of("attained_s", name)
            yield Issue(code="negative", pointer=where, detail=f"is {value}; must be finite and at least 0")
    yield from _type_issues(pointer, job, known)
    yield from _training_issues(pointer, job)
    yield from _time_issues(pointer, job)
    yield from _plan_issues(pointer, job, type_of)
    degrees = job.parallelism
    for field in Parallelism.__slots__ if degrees is not None else ():
        count = getattr(degrees, field)
        if count < 1:
            yield Issue(
                code="not_positive", pointer=f"{pointer}/parallelism/{field}", detail=f"is {count}; must be at least 1"
            )


def _training_issues(pointer: str, job: Job) -> Iterator[Issue]:
    """Faults of what the job trains, how urgent it is, and how much is left of it."""
    if job.transformer is not None and job.operators is not None:
        yield Issue(code="one_of", pointer=f"{pointer}/operators", detail="give one of transformer and operators")
    for name, model in (("transformer", job.transformer), ("operators", job.operators)):
        if model is not None:
            yield from model_issues(model, f"{pointer}/{name}")
    if job.choices.checkpointing and job.transformer is None:
        detail = "is left open, of a job without a transformer; operators say what they keep"
        yield Issue(code="one_of", pointer=f"{pointer}/transformer/checkpointing", detail=detail)
    if job.choices.are_open and job.calibration is not None:
        detail = "is of one way to train; say which checkpointing and zero_stage in place of auto"
        yield Issue(code="one_of", pointer=f"{pointer}/calibration", detail=detail)
    if job.priority < 1:
        yield Issue(code="not_positive", pointer=f"{pointer}/priority", detail=f"is {job.priority}; 1 is the first")
    if job.deadline_s is not None and not (math.isfinite(job.deadline_s) and job.deadline_s > 0):
        yield Issue(
            code="deadline_in_the_past",
            pointer=f"{pointer}/deadline_s",
            detail=f"is {job.deadline_s}; give seconds from now, above 0, or leave it out",
        )
    latest_s = job.latest_start_s
    if latest_s is not None and not (math.isfinite(latest_s) and latest_s >= job.earliest_start_s):
        detail = f"is {latest_s}; finite, and not before earliest_start_s, which is {job.earliest_start_s}"
        yield Issue(code="latest_before_earliest", pointer=f"{pointer}/latest_start_s", detail=detail)
    left = job.remaining_iterations
    if left is not None and not (math.isfinite(left) and left > 0):
        yield Issue(
            code="not_positive", pointer=f"{pointer}/remaining_iterations", detail=f"is {left}; finite and above 0"
        )


def _time_issues(pointer: str, job: Job) -> Iterator[Issue]:
    """Faults of how long the job is said to take, and to have run."""
    for name in ("remaining_s", "running_s"):
        value_s = getattr(job, name)
        if value_s is not None and not (math.isfinite(value_s) and value_s >= 0):
            detail = f"is {value_s}; must be finite and at least 0, or left out where it is not known"
            yield Issue(code="negative", pointer=f"{pointer}/{name}", detail=detail)
    limit_s = job.time_limit_s
    if limit_s is not None and not (math.isfinite(limit_s) and limit_s > 0):
        yield Issue(code="not_positive", pointer=f"{pointer}/time_limit_s", detail=f"is {limit_s}; finite and above 0")


def _plan_issues(pointer: str, job: Job, type_of: Mapping[str, str]) -> Iterator[Issue]:
    """Faults of the plan that is said to run, and of the expansions behind it."""
    running = {(part.node, gpu) for part in job.current or () for gpu in part.gpus}
    if job.parallel_plan is not None:
        planned = set(job.parallel_plan.gpus)
        if planned != running:
            wrong = sorted(planned ^ running)[:3]
            yield Issue(
                code="plan_not_on_current",
                pointer=f"{pointer}/parallel_plan",
                detail=f"the plan must use exactly the GPUs of `current`; they differ in {wrong}",
            )
        for i, stage in enumerate(job.parallel_plan.stages):
            for j, replica in enumerate(stage.replicas):
                if type_of.get(replica.node, replica.gpu_type) != replica.gpu_type:
                    yield Issue(
                        code="gpu_type_mismatch",
                        pointer=f"{pointer}/parallel_plan/stages/{i}/replicas/{j}/gpu_type",
                        detail=f"is {replica.gpu_type!r}; node {replica.node!r} has {type_of[replica.node]!r}",
                    )
        yield from _running_training_issues(f"{pointer}/parallel_plan/training", job, job.parallel_plan)
    added = Counter((part.node, gpu) for grown in job.expansions for part in grown.gpus for gpu in part.gpus)
    for k, grown in enumerate(job.expansions):
        gpus = {(part.node, gpu) for part in grown.gpus for gpu in part.gpus}
        if (
            not gpus
            or not gpus <= running
            or any(added[place] > 1 for place in gpus)
            or not math.isfinite(grown.benefit)
        ):
            yield Issue(
                code="bad_expansion",
                pointer=f"{pointer}/expansions/{k}",
                detail="must list GPUs of `current`, each in one expansion only, and a finite benefit",
            )


def _running_training_issues(pointer: str, job: Job, plan: ParallelPlan) -> Iterator[Issue]:
    """A plan that runs says how it trains where the job leaves that open, and says nothing else than the job."""
    if job.model is None or (job.choices.checkpointing and job.transformer is None):
        return
    if job.choices.admits(job.model, plan.training):
        return
    detail = "is missing; the job leaves open how it trains: give the plan in full, with its training"
    if plan.training is not None:
        detail = f"is {plan.training.words}; the job says otherwise: let it leave that open, or train as its plan does"
    yield Issue(code="training", pointer=pointer, detail=detail)


def _type_issues(pointer: str, job: Job, known: Set[str]) -> Iterator[Issue]:
    named = [(f"{pointer}/gpu_types/{k}", name) for k, name in enumerate(job.gpu_types or ())]
    named += [(pointer + pointer_of("attained_s", name), name) for name in job.attained_s or ()]
    if job.reservation is not None:
        named.append((f"{pointer}/reservation/gpu_type", job.reservation.gpu_type))
        if job.reservation.num_gpus < 1:
            yield Issue(
                code="not_positive",
                pointer=f"{pointer}/reservation/num_gpus",
                detail=f"is {job.reservation.num_gpus}; must be at least 1",
            )
    for where, name in named:
        if name not in known:
            yield Issue(
                code="unknown_gpu_type",
                pointer=where,
                detail=f"job {job.id!r} names GPU type {name!r}; the cluster knows {sorted(known)}",
            )


def _current_issues(cluster: Cluster, jobs: tuple[Job, ...]) -> list[Issue]:
    """Faults of the current placements: unknown nodes or GPUs, GPUs taken twice, mixed types, dead nodes."""
    nodes = {node.id: node for node in cluster.nodes}
    owner: dict[Gpu, str] = {
        (node.id, gpu): "work outside the snapshot" for node in cluster.nodes for gpu in node.gpus_in_use
    }
    issues: list[Issue] = []
    for k, job in enumerate(jobs):
        types: set[str] = set()
        for slice_ in job.current or ():
            pointer = pointer_of("jobs", k, "current", slice_.node)
            node = nodes.get(slice_.node)
            if node is None:
                issues.append(
                    Issue(
                        code="unknown_node",
                        pointer=pointer,
                        detail=f"job {job.id!r} runs on node {slice_.node!r}, which the cluster does not have",
                    )
                )
                continue
            types.add(node.gpu_type)
            issues += _slice_issues(pointer, job, node, slice_)
            for gpu in slice_.gpus:
                taken = owner.setdefault((node.id, gpu), f"job {job.id!r}")
                if taken != f"job {job.id!r}":
                    issues.append(
                        Issue(
                            code="gpu_taken_twice",
                            pointer=pointer,
                            detail=f"GPU {gpu} of node {node.id!r} is used by job {job.id!r} and by {taken}",
                        )
                    )
        if len(types) > 1:
            issues.append(
                Issue(
                    code="mixed_gpu_types",
                    pointer=f"/jobs/{k}/current",
                    detail=f"job {job.id!r} runs on GPU types {sorted(types)}; one job runs on one type",
                )
            )
    return issues


def _slice_issues(pointer: str, job: Job, node: Node, slice_: NodeGpus) -> Iterator[Issue]:
    wrong = sorted({gpu for gpu in slice_.gpus if not 0 <= gpu < node.num_gpus})
    if wrong:
        yield Issue(
            code="unknown_gpu",
            pointer=pointer,
            detail=f"job {job.id!r} runs on GPU {wrong} of node {node.id!r}, which has GPUs 0 to {node.num_gpus - 1}",
        )
    if not slice_.gpus or len(set(slice_.gpus)) != len(slice_.gpus):
        yield Issue(
            code="bad_gpu_list",
            pointer=pointer,
            detail=f"job {job.id!r} lists GPUs {list(slice_.gpus)} on node {node.id!r}; list each index once",
        )
    if node.state is NodeState.DOWN:
        yield Issue(
            code="runs_on_down_node",
            pointer=pointer,
            detail=f"job {job.id!r} is said to run on node {node.id!r}, which is down; it is planned as waiting there",
            severity=Severity.WARNING,
        )
