"""Does a plan keep the rules of Gavel, and is its objective what it claims? Knows no solver and no program.

Beside the placement itself:

shares     of its time nobody is due more than all, on all types together; nobody is due any where it cannot run; and
           on a type are due no more GPUs than there are for the plan
size       every planned job has exactly min_gpus GPUs, of a type on which it can run, and on as few nodes as possible:
           whole ones, and what is left on one more
priority   the score is GPUs times priority of every planned job that runs, by the formula of `rounds` computed anew
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from models.allocation.gavel.parameters import GavelParameters
from models.allocation.gavel.rounds import LEAST_SHARE
from models.allocation.plan_check import TOLERANCE, coverage_violations, num_usable_gpus, pinned_jobs, score_violations
from models.plan import JobAllocation, Plan
from models.wording import counted
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix
from stowplan.errors import Issue
from topology.cluster import NodeState


def gavel_violations(
    snapshot: Snapshot,
    parameters: GavelParameters,
    gpu_types: Sequence[str],
    of_time: FloatMatrix,
    speed: FloatMatrix,
    plan: Plan,
    objective: float,
) -> list[Issue]:
    """Every rule that the plan breaks; pointers as in `placement_violations`.

    Parameters
    ----------
    of_time, speed
        Shares and samples/s (J, T) of the jobs on the types, 0 where a job cannot run.
    """
    column = {name: t for t, name in enumerate(gpu_types)}
    rows = {job.id: i for i, job in enumerate(snapshot.jobs)}
    pinned, node_sizes = pinned_jobs(snapshot), _node_sizes(snapshot)
    issues = [*coverage_violations(snapshot, plan), *_share_violations(snapshot, gpu_types, of_time, speed, pinned)]
    expected: dict[str, float] = {}
    for k, item in enumerate(plan.allocations):
        i = rows.get(item.job_id)
        if i is None or item.job_id in pinned:
            continue
        job, t = snapshot.jobs[i], column.get(item.gpu_type)
        can_run = t is not None and bool(speed[i, t] > 0)
        issues += _allocation_violations(f"/allocations/{k}", job, item, node_sizes, can_run=can_run)
        if t is not None and can_run:
            expected[job.id] = item.num_gpus * _due(job, item.gpu_type, float(of_time[i, t]), parameters)
    keys = [term.job_id or "" for term in plan.score]
    wanted = "planned job with GPUs"
    return [*issues, *score_violations(plan.score, keys, expected, objective, wanted=wanted)]


def _allocation_violations(
    pointer: str, job: Job, item: JobAllocation, node_sizes: Mapping[str, int], *, can_run: bool
) -> Iterator[Issue]:
    """Size and shape of one planned job."""
    if item.num_gpus != job.min_gpus:
        yield Issue(
            code="wrong_size",
            pointer=f"{pointer}/num_gpus",
            detail=f"job {job.id!r} needs exactly {counted(job.min_gpus, 'GPU')}, not {item.num_gpus}",
        )
    elif not _is_compact(item, node_sizes.get(item.gpu_type, 0)):
        yield Issue(
            code="not_compact",
            pointer=f"{pointer}/gpus",
            detail=f"job {job.id!r} has {[len(part.gpus) for part in item.gpus]} GPUs of "
            f"{counted(len(item.gpus), 'node')}; it must have whole nodes, and what is left on one more",
        )
    if not can_run:
        yield Issue(
            code="not_runnable",
            pointer=f"{pointer}/gpu_type",
            detail=f"job {job.id!r} cannot run on {counted(job.min_gpus, 'GPU')} of type {item.gpu_type!r}",
        )


def _node_sizes(snapshot: Snapshot) -> dict[str, int]:
    """GPUs of the largest node of each type that is there."""
    sizes: dict[str, int] = {}
    for node in snapshot.cluster.nodes:
        if node.state is not NodeState.DOWN:
            sizes[node.gpu_type] = max(node.num_gpus, sizes.get(node.gpu_type, 0))
    return sizes


def _is_compact(item: JobAllocation, node_size: int) -> bool:
    num_whole, rest = divmod(item.num_gpus, max(1, node_size))
    wanted = [node_size] * num_whole + [rest] * (rest > 0)
    return sorted((len(part.gpus) for part in item.gpus), reverse=True) == wanted


def _due(job: Job, gpu_type: str, share: float, parameters: GavelParameters) -> float:
    """Rounds that the job should have had on the type by now, over those that it had, half a round more of each."""
    had = (job.attained_s or {}).get(gpu_type, 0.0) / parameters.round_s + 0.5
    return (share + LEAST_SHARE) * (job.age_s / parameters.round_s + 0.5) / had


def _share_violations(
    snapshot: Snapshot,
    gpu_types: Sequence[str],
    of_time: FloatMatrix,
    speed: FloatMatrix,
    pinned: Set[str],
) -> Iterator[Issue]:
    given: Counter[str] = Counter()
    for i, job in enumerate(snapshot.jobs):
        row = of_time[i].tolist()
        if min(row, default=0.0) < -TOLERANCE or sum(row) > 1 + TOLERANCE:
            yield Issue(
                code="impossible_share",
                pointer=f"/jobs/{i}",
                detail=f"job {job.id!r} is due the shares {row} of its time; each is at least 0, and all together at "
                "most 1",
            )
        for name, share, there in zip(gpu_types, row, speed[i].tolist(), strict=True):
            if share > TOLERANCE and (not there > 0 or job.id in pinned):
                yield Issue(
                    code="share_where_it_cannot_run",
                    pointer=f"/jobs/{i}",
                    detail=f"job {job.id!r} is due {share:.1%} of its time on {name!r}, where it has no part in rounds",
                )
            given[name] += job.min_gpus * share
    room = num_usable_gpus(snapshot, pinned)
    for name in gpu_types:
        if given[name] > room[name] * (1 + TOLERANCE) + TOLERANCE:
            yield Issue(
                code="over_capacity",
                pointer="/jobs",
                detail=f"{given[name]:.6g} GPUs of type {name!r} are due at any time; the plan may use {room[name]}",
            )
