"""Which jobs of a snapshot are planned ahead: those that wait and have `parallelism`."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from models.placement.ahead.parameters import LONGEST_HORIZON_DAYS, AheadParameters
from models.placement.arnold.affinity import look_up
from models.placement.arnold.matrix import CommunicationMatrix, communication_matrix, matrix_faults
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.selection import Affinity, candidate_types, minipod_tier
from models.placement.arnold.volumes import communication_volumes
from models.placement.occupancy import occupancy
from models.wording import counted
from models.workload import Job, Parallelism, Snapshot
from stowplan.errors import InputError, Issue, Severity, raise_for_errors

DAY_S = 86_400.0
_MOST_JOBS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedJob:
    """A job at `position` of the snapshot, on nodes of one GPU type with `matrix.gpus_per_node` GPUs.

    It may start from `earliest_s` to `latest_s` from now, and holds its nodes for `duration_s` (infinity: not known).
    """

    position: int
    job: Job
    matrix: CommunicationMatrix
    gpu_type: str
    affinity: Affinity
    earliest_s: float
    latest_s: float
    duration_s: float


def tier_of(snapshot: Snapshot, parameters: AheadParameters) -> str:
    """Tier whose units are the minipods; raises InputError when there is none."""
    return minipod_tier(snapshot, ArnoldParameters(minipod_tier=parameters.minipod_tier))


def wanted_jobs(snapshot: Snapshot, parameters: AheadParameters) -> list[WantedJob]:
    """The jobs to be planned.

    Raises
    ------
    InputError
        With issues whose pointers are relative to the snapshot, or start with `/parameters`.
    """
    running = occupancy(snapshot).running
    waiting = [
        (k, job, job.parallelism)
        for k, job in enumerate(snapshot.jobs)
        if job.parallelism is not None and job.id not in running
    ]
    if not waiting or len(waiting) > _MOST_JOBS:
        detail = "plans jobs that have parallelism (tp, pp, dp) and do not run; there is none"
        if waiting:
            detail = f"plans at most {_MOST_JOBS} jobs at a time; {len(waiting)} have parallelism and do not run"
        issue = Issue(code="no_pretraining_job" if not waiting else "too_many_jobs", pointer="/jobs", detail=detail)
        raise InputError("there is nothing to plan ahead", [issue])
    sizes = Counter((node.gpu_type, node.num_gpus) for node in snapshot.cluster.nodes)
    issues: list[Issue] = []
    found = []
    for k, job, degrees in waiting:
        try:
            found.append(_wanted(snapshot, parameters, k, job, degrees, sizes))
        except InputError as error:
            issues += error.issues
    raise_for_errors(issues, "snapshot")
    return found


def wanted_warnings(wanted: list[WantedJob]) -> Iterator[Issue]:
    """What is odd about jobs that can be planned."""
    for each in wanted:
        if math.isinf(each.duration_s):
            detail = f"nobody says how long job {each.job.id!r} lasts; its nodes are kept for ever"
            yield Issue(
                code="unknown_duration",
                pointer=f"/jobs/{each.position}/lasting",
                detail=f"{detail}: give lasting or remaining_s",
                severity=Severity.WARNING,
            )


def _wanted(
    snapshot: Snapshot,
    parameters: AheadParameters,
    position: int,
    job: Job,
    degrees: Parallelism,
    sizes: Counter[tuple[str, int]],
) -> WantedJob:
    at = f"/jobs/{position}"
    gpu_type, matrix = _type_of(snapshot, job, degrees, sizes, at)
    earliest_s = job.earliest_start_s
    latest_s = parameters.horizon_days * DAY_S if job.latest_start_s is None else job.latest_start_s
    if latest_s < earliest_s:
        field, value = (
            ("latest_start_s", latest_s) if job.latest_start_s is not None else ("earliest_start_s", earliest_s)
        )
        detail = f"is {value:g}: job {job.id!r} would start from {earliest_s:g} s to {latest_s:g} s from now"
        hint = "; give a later latest_start_s, or a longer parameter horizon_days"
        raise InputError("no start", [Issue(code="no_start", pointer=f"{at}/{field}", detail=detail + hint)])
    if latest_s > LONGEST_HORIZON_DAYS * DAY_S:
        detail = f"is {latest_s:g}; at most {LONGEST_HORIZON_DAYS * DAY_S:g} s, ten years"
        raise InputError("too late", [Issue(code="horizon", pointer=f"{at}/latest_start_s", detail=detail)])
    return WantedJob(
        position=position,
        job=job,
        matrix=matrix,
        gpu_type=gpu_type,
        affinity=_affinity(job, degrees, gpu_type, parameters, at),
        earliest_s=earliest_s,
        latest_s=latest_s,
        duration_s=_duration_s(job, parameters),
    )


def _duration_s(job: Job, parameters: AheadParameters) -> float:
    if job.lasting is not None:
        return job.lasting.quantile(parameters.end_probability)
    return job.remaining_s or math.inf


def _type_of(
    snapshot: Snapshot, job: Job, degrees: Parallelism, sizes: Counter[tuple[str, int]], at: str
) -> tuple[str, CommunicationMatrix]:
    """The first GPU type of which the cluster has enough nodes for the matrix."""
    issues: list[Issue] = []
    for gpu_type in candidate_types(snapshot, job):
        of_type = {size: num for (name, size), num in sizes.items() if name == gpu_type}
        if not of_type:
            detail = f"the cluster has no node of GPU type {gpu_type!r}; name a type that nodes have"
            issues.append(Issue(code="no_nodes_of_type", pointer=f"{at}/gpu_types", detail=detail))
            continue
        size = max(of_type, key=lambda size: (of_type[size], size))
        faults = list(matrix_faults(degrees, size))
        issues += [
            replace(fault, pointer=f"{at}{fault.pointer}", detail=f"on GPU type {gpu_type!r}: {fault.detail}")
            for fault in faults
        ]
        if faults:
            continue
        matrix = communication_matrix(degrees, size)
        if matrix.num_nodes <= of_type[size]:
            return gpu_type, matrix
        detail = (
            f"job {job.id!r} needs {counted(matrix.num_nodes, 'node')} of {counted(size, f'{gpu_type!r} GPU')}; the "
            f"cluster has {of_type[size]}, whatever runs there: lower dp or pp"
        )
        issues.append(Issue(code="too_few_nodes", pointer=f"{at}/parallelism", detail=detail))
    raise InputError(f"no GPU type suits job {job.id!r}", issues)


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
