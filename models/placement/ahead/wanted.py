"""Which jobs of a snapshot are planned ahead: those that wait and have `parallelism`, or a transformer and a window.

A job with `latest_start_s` and a transformer, but without degrees, runs by one of the fastest plans on `min_gpus` GPUs.
How long a job lasts is what it says (`lasting`, else `remaining_s`), else what follows from `remaining_iterations`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from models.forecast.training import Reliability
from models.placement.ahead.parameters import LONGEST_HORIZON_DAYS, AheadParameters
from models.placement.ahead.plans import TrainingPlan, training_plans
from models.placement.ahead.promise import own_reservation
from models.placement.arnold.affinity import look_up
from models.placement.arnold.matrix import CommunicationMatrix, communication_matrix, matrix_faults
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.selection import Affinity, candidate_types, minipod_tier
from models.placement.arnold.volumes import communication_volumes
from models.placement.occupancy import occupancy
from models.plan import TrainingEstimate
from models.wording import counted
from models.workload import Job, Parallelism, Snapshot
from stowplan.errors import InputError, Issue, Severity, raise_for_errors
from topology.calendar import CalendarEntry
from topology.cluster import GpuType

DAY_S = 86_400.0
_HOUR_S = 3600.0
_MOST_JOBS = 32
# Beyond that, looking at all plans takes too long.
_MOST_GPUS = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPlan:
    """Degrees that a job may run by, with which it holds its nodes for `duration_s` (infinity: not known)."""

    parallelism: Parallelism
    matrix: CommunicationMatrix
    duration_s: float
    training: TrainingEstimate | None


_Planner = Callable[[Job, GpuType, int, AheadParameters], list[WantedPlan]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedJob:
    """A job at `position` of the snapshot, on nodes of one GPU type with `gpus_per_node` GPUs.

    It may start from `earliest_s` to `latest_s` from now, by one of its `plans`, the fastest first. The affinity is
    that of the first. `reservation`: the one that it already has; the job names it.
    """

    position: int
    job: Job
    plans: tuple[WantedPlan, ...]
    gpu_type: str
    gpus_per_node: int
    affinity: Affinity
    earliest_s: float
    latest_s: float
    reservation: CalendarEntry | None = None

    @property
    def num_nodes(self) -> int:
        """Nodes that the job needs, by any of its plans."""
        return self.plans[0].matrix.num_nodes


def tier_of(snapshot: Snapshot, parameters: AheadParameters) -> str:
    """Tier whose units are the minipods; raises InputError when there is none."""
    return minipod_tier(snapshot, ArnoldParameters(minipod_tier=parameters.minipod_tier))


def wanted_jobs(snapshot: Snapshot, parameters: AheadParameters, *, searches_plans: bool = True) -> list[WantedJob]:
    """The jobs to be planned. Without `searches_plans` those that leave their plan open have one that is not theirs,
    on as many GPUs: to search for theirs takes a second.

    Raises
    ------
    InputError
        With issues whose pointers are relative to the snapshot, or start with `/parameters`.
    """
    running = occupancy(snapshot).running
    waiting = [(k, job) for k, job in enumerate(snapshot.jobs) if is_wanted(job) and job.id not in running]
    if not waiting or len(waiting) > _MOST_JOBS:
        needs = "parallelism (tp, pp, dp), or a transformer and latest_start_s"
        detail = f"plans jobs that do not run and have {needs}; there is none"
        if waiting:
            detail = f"plans at most {_MOST_JOBS} jobs at a time; {len(waiting)} wait to be"
        issue = Issue(code="no_pretraining_job" if not waiting else "too_many_jobs", pointer="/jobs", detail=detail)
        raise InputError("there is nothing to plan ahead", [issue])
    sizes = Counter((node.gpu_type, node.num_gpus) for node in snapshot.cluster.nodes)
    issues: list[Issue] = []
    found = []
    for k, job in waiting:
        try:
            found.append(_wanted(snapshot, parameters, k, job, sizes, _plans if searches_plans else _any_plan))
        except InputError as error:
            issues += error.issues
    raise_for_errors(issues, "snapshot")
    return found


def wanted_warnings(wanted: list[WantedJob]) -> Iterator[Issue]:
    """What is odd about jobs that can be planned."""
    for each in wanted:
        if math.isinf(each.plans[0].duration_s):
            detail = f"nobody says how long job {each.job.id!r} lasts; its nodes are kept for ever"
            yield Issue(
                code="unknown_duration",
                pointer=f"/jobs/{each.position}/lasting",
                detail=f"{detail}: give lasting, remaining_s, or a transformer and remaining_iterations",
                severity=Severity.WARNING,
            )


def is_wanted(job: Job) -> bool:
    """Whether a job that waits is to be planned ahead."""
    return job.parallelism is not None or (job.transformer is not None and job.latest_start_s is not None)


def reliability_of(parameters: AheadParameters) -> Reliability | None:
    """How often nodes fail; None: never."""
    if parameters.node_mtbf_hours is None:
        return None
    return Reliability(
        mtbf_s=parameters.node_mtbf_hours * _HOUR_S,
        restart_s=parameters.failure_restart_s,
        checkpoint_s=parameters.checkpoint_s,
    )


def plan_of(job: Job, matrix: CommunicationMatrix, plan: TrainingPlan, parameters: AheadParameters) -> WantedPlan:
    """A plan of the performance model, with the time that its nodes are kept."""
    said_s = _said_s(job, parameters)
    if said_s is None:
        said_s = math.inf if plan.lasting is None else plan.lasting.quantile(parameters.end_probability)
    training = TrainingEstimate(
        num_micro_batches=plan.num_micro_batches, step_s=plan.step_s, mfu=plan.mfu, goodput=plan.goodput
    )
    return WantedPlan(parallelism=plan.parallelism, matrix=matrix, duration_s=said_s, training=training)


def _said_s(job: Job, parameters: AheadParameters) -> float | None:
    """How long a job says that it lasts, with the probability asked for."""
    if job.lasting is not None:
        return job.lasting.quantile(parameters.end_probability)
    return job.remaining_s or None


def _wanted(
    snapshot: Snapshot,
    parameters: AheadParameters,
    position: int,
    job: Job,
    sizes: Counter[tuple[str, int]],
    plans_of: _Planner,
) -> WantedJob:
    at = f"/jobs/{position}"
    if job.choices.are_open:
        detail = (
            f"leaves open how job {job.id!r} trains, which is not chosen ahead; say which checkpointing and zero_stage"
        )
        raise InputError("open training", [Issue(code="one_of", pointer=f"{at}/transformer", detail=detail)])
    reservation = own_reservation(job, snapshot.calendar)
    if reservation is not None:
        job = replace(job, calendar_entry=reservation.name)
    earliest_s, latest_s = _window(job, parameters, at)
    gpu_type, gpus_per_node, plans = _type_of(snapshot, job, parameters, sizes, plans_of, at)
    return WantedJob(
        position=position,
        job=job,
        plans=plans,
        gpu_type=gpu_type,
        gpus_per_node=gpus_per_node,
        affinity=_affinity(job, plans[0].parallelism, gpu_type, parameters, at),
        earliest_s=earliest_s,
        latest_s=latest_s,
        reservation=reservation,
    )


def _window(job: Job, parameters: AheadParameters, at: str) -> tuple[float, float]:
    earliest_s = job.earliest_start_s
    latest_s = parameters.horizon_days * DAY_S if job.latest_start_s is None else job.latest_start_s
    if latest_s < earliest_s:
        detail = f"is {earliest_s:g}: job {job.id!r} would start from {earliest_s:g} s to {latest_s:g} s from now"
        hint = "; give latest_start_s, or a longer parameter horizon_days"
        raise InputError("no start", [Issue(code="no_start", pointer=f"{at}/earliest_start_s", detail=detail + hint)])
    if latest_s > LONGEST_HORIZON_DAYS * DAY_S:
        detail = f"is {latest_s:g}; at most {LONGEST_HORIZON_DAYS * DAY_S:g} s, ten years"
        raise InputError("too late", [Issue(code="horizon", pointer=f"{at}/latest_start_s", detail=detail)])
    return earliest_s, latest_s


def _type_of(
    snapshot: Snapshot,
    job: Job,
    parameters: AheadParameters,
    sizes: Counter[tuple[str, int]],
    plans_of: _Planner,
    at: str,
) -> tuple[str, int, tuple[WantedPlan, ...]]:
    """The first GPU type of which the cluster has enough nodes for a plan, GPUs of its nodes, and the plans."""
    issues: list[Issue] = []
    kinds = {kind.name: kind for kind in snapshot.cluster.gpu_types}
    for gpu_type in candidate_types(snapshot, job):
        of_type = {size: num for (name, size), num in sizes.items() if name == gpu_type}
        if not of_type:
            detail = f"the cluster has no node of GPU type {gpu_type!r}; name a type that nodes have"
            issues.append(Issue(code="no_nodes_of_type", pointer=f"{at}/gpu_types", detail=detail))
            continue
        size = max(of_type, key=lambda size: (of_type[size], size))
        found = list(_faults(job, gpu_type, size, of_type[size], at)) or plans_of(
            job, kinds[gpu_type], size, parameters
        )
        plans = [plan for plan in found if isinstance(plan, WantedPlan)]
        if plans:
            return gpu_type, size, tuple(plans)
        issues += [issue for issue in found if isinstance(issue, Issue)] or [_no_plan(job, gpu_type, size, at)]
    raise InputError(f"no GPU type suits job {job.id!r}", issues)


def _faults(job: Job, gpu_type: str, gpus_per_node: int, num_nodes: int, at: str) -> Iterator[Issue]:
    """Why nodes of a type do not suit a job, whatever runs there."""
    degrees = job.parallelism
    faults = [] if degrees is None else list(matrix_faults(degrees, gpus_per_node))
    for fault in faults:
        yield replace(fault, pointer=f"{at}{fault.pointer}", detail=f"on GPU type {gpu_type!r}: {fault.detail}")
    num_gpus = job.min_gpus if degrees is None else degrees.num_gpus
    if degrees is None and num_gpus > _MOST_GPUS:
        detail = f"is {num_gpus}; a plan is searched for on at most {_MOST_GPUS} GPUs: give parallelism"
        yield Issue(code="too_many_gpus", pointer=f"{at}/min_gpus", detail=detail)
        return
    where = "min_gpus" if degrees is None else "parallelism"
    if degrees is None and num_gpus % gpus_per_node:
        detail = (
            f"is {num_gpus}; jobs without parallelism get whole nodes, and those of {gpu_type!r} have "
            f"{counted(gpus_per_node, 'GPU')}: give a multiple"
        )
        yield Issue(code="no_whole_nodes", pointer=f"{at}/min_gpus", detail=detail)
    elif not faults and num_gpus > num_nodes * gpus_per_node:
        nodes = f"{counted(num_gpus // gpus_per_node, 'node')} of {counted(gpus_per_node, f'{gpu_type!r} GPU')}"
        detail = f"job {job.id!r} needs {nodes}; the cluster has {num_nodes}, whatever runs there: ask for less"
        yield Issue(code="too_few_nodes", pointer=f"{at}/{where}", detail=detail)


def _no_plan(job: Job, gpu_type: str, gpus_per_node: int, at: str) -> Issue:
    name = "its transformer" if job.transformer is None else job.transformer.name or "its transformer"
    detail = (
        f"{name} has no plan on {job.min_gpus} GPUs of {gpu_type!r}, {gpus_per_node} on a node, that fits into memory "
        "and divides its global batch: change min_gpus or the batch, or give parallelism"
    )
    return Issue(code="no_plan", pointer=f"{at}/transformer", detail=detail)


def _any_plan(job: Job, kind: GpuType, gpus_per_node: int, parameters: AheadParameters) -> list[WantedPlan]:  # noqa: ARG001 - that of the others
    """A plan on as many GPUs, which lasts as long as the job says, or at all where that follows from the plan."""
    degrees = job.parallelism or Parallelism(tp=1, pp=1, dp=job.min_gpus)
    said_s = _said_s(job, parameters)
    if said_s is None:
        said_s = math.inf if job.transformer is None or job.remaining_iterations is None else 0.0
    matrix = communication_matrix(degrees, gpus_per_node)
    return [WantedPlan(parallelism=degrees, matrix=matrix, duration_s=said_s, training=None)]


def _plans(job: Job, kind: GpuType, gpus_per_node: int, parameters: AheadParameters) -> list[WantedPlan]:
    """The plans of a job, the fastest first; one where it says its degrees."""
    degrees = job.parallelism
    is_modelled = degrees is None or (
        job.transformer is not None and job.remaining_iterations is not None and _said_s(job, parameters) is None
    )
    found = (
        training_plans(job, kind, gpus_per_node, None if degrees is None else (degrees,), reliability_of(parameters))
        if is_modelled
        else []
    )
    if degrees is not None and not found:
        said_s = _said_s(job, parameters)
        matrix = communication_matrix(degrees, gpus_per_node)
        duration_s = math.inf if said_s is None else said_s
        return [WantedPlan(parallelism=degrees, matrix=matrix, duration_s=duration_s, training=None)]
    return [
        plan_of(job, communication_matrix(plan.parallelism, gpus_per_node), plan, parameters)
        for plan in found[: parameters.num_plans]
    ]


def _affinity(job: Job, degrees: Parallelism, gpu_type: str, parameters: AheadParameters, at: str) -> Affinity:
    if parameters.alpha is not None:
        return Affinity(alpha=parameters.alpha, source="given")
    if job.transformer is None:
        detail = f"job {job.id!r} has no transformer to look its affinity up by; give it, or the parameter alpha"
        raise InputError(
            "no affinity", [Issue(code="transformer_required", pointer=f"{at}/transformer", detail=detail)]
        )
    ratios = communication_volumes(job.transformer, degrees).ratios(job.transformer.micro_batch_or_one)
    match = look_up(gpu_type, ratios, parameters.records)
    return Affinity(alpha=match.record.alpha, source=match.describe())
