"""Which 3D plans a job may run by, and how long it lasts on each.

Plans are symmetric: tp within a node, pp stages, dp replicas, as many micro-batches as are fastest of those that fit
into memory. Times are those of the performance model (Suika, appendix A) on as many nodes as the job needs under one
switch; what spread costs is priced by Eq. 4 instead. The duration is `remaining_iterations` times the step, with the
error of the model and with failures (`models.forecast.training`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from models.forecast.lasting import Lasting
from models.forecast.training import Reliability, forecast_training
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.parallelism.micro_batches import micro_batch_counts
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import peak_flops_per_s
from models.placement.arnold.matrix import matrix_faults
from models.workload import Job, Parallelism
from topology.cluster import GpuType


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """Degrees, and what the performance model says of them. `goodput`: share of the time in which work is done."""

    parallelism: Parallelism
    num_micro_batches: int
    step_s: float
    mfu: float
    goodput: float
    lasting: Lasting | None


def training_plans(
    job: Job,
    kind: GpuType,
    gpus_per_node: int,
    degrees: tuple[Parallelism, ...] | None,
    reliability: Reliability | None,
) -> list[TrainingPlan]:
    """Plans of a job with a transformer, the fastest first; empty where none fits into memory.

    Parameters
    ----------
    degrees
        Those to look at; None: all on `min_gpus` GPUs of whole nodes.

    Raises
    ------
    InputError
        When failures take most of the time.
    """
    if job.transformer is None:
        return []
    num_gpus = job.min_gpus if degrees is None else degrees[0].num_gpus
    model = virtual_model(job.transformer, kind, gpus_per_node, -(-num_gpus // gpus_per_node), job.calibration)
    found = []
    for each in _all_degrees(model, num_gpus, gpus_per_node) if degrees is None else degrees:
        plan = _fastest(model, kind.name, each, gpus_per_node)
        if plan is not None:
            found.append(_forecast(job, model, kind, each, plan, reliability))
    return sorted(found, key=lambda plan: (plan.step_s, plan.parallelism.pp, plan.parallelism.tp))


def _all_degrees(model: PerformanceModel, num_gpus: int, gpus_per_node: int) -> Iterator[Parallelism]:
    """Degrees with a communication matrix whose stages have layers and whose replicas have sequences."""
    profile = model.profile
    most = profile.num_layers if profile.has_pipelines else 1
    for tp in range(1, gpus_per_node + 1):
        if not profile.admits_tensor_degree(tp) or num_gpus % tp:
            continue
        for pp in range(1, most + 1):
            if (num_gpus // tp) % pp:
                continue
            degrees = Parallelism(tp=tp, pp=pp, dp=num_gpus // tp // pp)
            if profile.global_batch % degrees.dp == 0 and not list(matrix_faults(degrees, gpus_per_node)):
                yield degrees


def _fastest(model: PerformanceModel, gpu_type: str, degrees: Parallelism, gpus_per_node: int) -> ParallelPlan | None:
    """The number of micro-batches with the least step time that fits into memory; None: none does."""
    profile = model.profile
    if profile.global_batch % degrees.dp or degrees.pp > profile.num_layers:
        return None
    share = profile.global_batch // degrees.dp
    counts = [count for count in micro_batch_counts(profile, degrees.pp, (degrees.dp,)) if share % count == 0]
    gpus = tuple((str(k // gpus_per_node), k % gpus_per_node) for k in range(degrees.num_gpus))
    plans = (
        symmetric_plan(
            num_layers=profile.num_layers,
            pp=degrees.pp,
            dp=degrees.dp,
            tp=degrees.tp,
            global_batch=profile.global_batch,
            num_micro_batches=count,
            gpu_type=gpu_type,
            gpus=gpus,
        )
        for count in counts
    )
    fitting = [plan for plan in plans if model.fits(plan)]
    return min(fitting, key=lambda plan: model.iteration(plan).total_s, default=None)


def _forecast(
    job: Job,
    model: PerformanceModel,
    kind: GpuType,
    degrees: Parallelism,
    plan: ParallelPlan,
    reliability: Reliability | None,
) -> TrainingPlan:
    peak = peak_flops_per_s(kind.name, model.profile.flops_precision, kind.peak_flops_per_s)
    # What a job without a budget lasts is said by whoever gives it.
    iterations = job.remaining_iterations or 1.0
    forecast = forecast_training(model, plan, iterations, {kind.name: peak or kind.peak_flops_per_s}, reliability)
    return TrainingPlan(
        parallelism=degrees,
        num_micro_batches=plan.num_micro_batches,
        step_s=forecast.step_s,
        mfu=forecast.mfu,
        goodput=forecast.goodput,
        lasting=None if job.remaining_iterations is None else forecast.lasting,
    )
