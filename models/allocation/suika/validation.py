"""What can be wrong with a snapshot under the Suika policy. Light: imports no solver and no modelling layer.

More basic demand than there are GPUs, or a job that no plan fits, is no fault of the input: such jobs are unplaced,
with the reason.
"""

from collections.abc import Iterator

from models.allocation.bounds import bound_issues
from models.allocation.suika.parameters import SuikaParameters
from models.placement.occupancy import Occupancy, occupancy
from models.transformer import Transformer
from models.wording import counted
from models.workload import Adaptivity, Job, Snapshot
from stowplan.errors import Issue, Severity


def policy_issues(snapshot: Snapshot, parameters: SuikaParameters) -> list[Issue]:  # noqa: ARG001 - every policy's signature
    """Every error and warning of this snapshot; pointers as in `snapshot_issues`."""
    taken = occupancy(snapshot)
    return [
        issue
        for k, job in enumerate(snapshot.jobs)
        if job.id not in taken.pinned
        for issue in (
            *_model_issues(f"/jobs/{k}", job),
            *_bound_issues(f"/jobs/{k}", job),
            *(_running_issues(f"/jobs/{k}", job, taken) if job.id in taken.running else ()),
        )
    ]


def _model_issues(pointer: str, job: Job) -> Iterator[Issue]:
    if job.model is None:
        yield Issue(
            code="missing_model",
            pointer=f"{pointer}/transformer",
            detail=f"job {job.id!r} has no model; Suika plans 3D parallelism from `transformer` or `operators`",
        )


def _bound_issues(pointer: str, job: Job) -> Iterator[Issue]:
    if job.reservation is not None:
        yield Issue(
            code="reservation_not_supported",
            pointer=f"{pointer}/reservation",
            detail=f"job {job.id!r} has a reservation; Suika serves basic demands: give min_gpus and gpu_types instead",
        )
    yield from bound_issues(pointer, job)
    if job.parallelism is not None and job.parallelism.num_gpus != job.min_gpus:
        yield Issue(
            code="parallelism_mismatch",
            pointer=f"{pointer}/parallelism",
            detail=f"the degrees of job {job.id!r} need {counted(job.parallelism.num_gpus, 'GPU')}; its basic demand, "
            f"min_gpus, is {job.min_gpus}",
        )


def _running_issues(pointer: str, job: Job, taken: Occupancy) -> Iterator[Issue]:
    """Faults of what a running job has against what it asks for."""
    total = sum(mask.bit_count() for _, mask in taken.running[job.id])
    held = total - sum(len(part.gpus) for grown in job.expansions for part in grown.gpus)
    most = job.min_gpus if job.adaptivity is Adaptivity.RIGID else job.max_gpus
    if held < job.min_gpus:
        yield Issue(
            code="below_basic_demand",
            pointer=f"{pointer}/min_gpus",
            detail=f"job {job.id!r} runs on {counted(held, 'GPU')} besides its expansions; its basic demand is "
            f"{job.min_gpus}",
        )
    if most is not None and held > most:
        yield Issue(
            code="above_max_gpus",
            pointer=f"{pointer}/current",
            detail=f"job {job.id!r} runs on {counted(held, 'GPU')} besides its expansions, and takes at most {most}",
        )
    elif held > job.min_gpus:
        yield Issue(
            code="expansion_not_recorded",
            pointer=f"{pointer}/expansions",
            detail=f"job {job.id!r} has {counted(held - job.min_gpus, 'GPU')} beyond its basic demand in no expansion, "
            "to be counted as basic demand and not taken back",
            severity=Severity.WARNING,
        )
    yield from _plan_issues(pointer, job)


def _plan_issues(pointer: str, job: Job) -> Iterator[Issue]:
    plan, model = job.parallel_plan, job.model
    if plan is None or model is None:
        return
    if plan.global_batch != model.global_batch:
        yield Issue(
            code="global_batch",
            pointer=f"{pointer}/parallel_plan",
            detail=f"the plan that runs has a global batch of {plan.global_batch}; the job trains {model.global_batch}",
        )
    for name in ("virtual_stages", "context_parallel", "expert_parallel"):
        if (degree := getattr(plan, name)) > 1:
            yield Issue(
                code=name,
                pointer=f"{pointer}/parallel_plan/{name}",
                detail=f"is {degree}; Suika knows pipelines of whole stages, whose replicas share nothing: 1",
            )
    for i, stage in enumerate(plan.stages):
        if stage.checkpointing is not None:
            yield Issue(
                code="checkpointing",
                pointer=f"{pointer}/parallel_plan/stages/{i}/checkpointing",
                detail=f"is {stage.recomputing}; Suika knows plans whose stages recompute alike, as the job says: none",
            )
    if isinstance(model, Transformer) and plan.num_layers != model.num_layers:
        yield Issue(
            code="layers",
            pointer=f"{pointer}/parallel_plan",
            detail=f"the plan that runs has {counted(plan.num_layers, 'layer')}; the model has {model.num_layers}",
        )
