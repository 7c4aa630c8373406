"""What is wrong with a job by itself, whatever the others are."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Set

from models.parallel_plan import ParallelPlan
from models.performance.iteration.model_issues import model_issues
from models.workload.job import Job, Parallelism
from stowplan.errors import Issue, pointer_of


def job_issues(pointer: str, job: Job, known: Set[str], type_of: Mapping[str, str]) -> Iterator[Issue]:
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
    if job.parallel_plan is None and not job.expansions:
        return
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
