"""What the planners of 3D plans answered, as documents."""

from dataclasses import asdict, replace

from api.convert.issues import issue_documents
from api.convert.job_model import transformer_to_document
from api.convert.launch import launch_document
from api.convert.parallel_plan import plan_to_document, training_to_document
from api.schemas.model import TransformerDoc
from api.schemas.parallel_answer import (
    AlternativeDoc,
    BreakdownDoc,
    EfficiencyDoc,
    FrontierPlanDoc,
    GridDoc,
    MeasureNextDoc,
    MissingPointDoc,
    ModelFactsDoc,
    ParallelPlanAnswer,
    PlanPointDoc,
    RejectionDoc,
    StageDetailDoc,
    StageShapeDoc,
    TunerDoc,
)
from models.parallelism.request import (
    Alternative,
    MeasureNext,
    MissingPoint,
    ParallelAnswer,
    ParallelRequest,
    PlanPoint,
)
from models.parallelism.results import FrontierPlan, Grid, Rejection
from models.parallelism.training import Training
from models.performance.iteration.architecture import parameter_count, profile_of
from models.transformer import Transformer
from stowplan import __version__

_MS_PER_S = 1e3
_MOST = 10**300


def answer_document(request: ParallelRequest, answer: ParallelAnswer) -> ParallelPlanAnswer:
    """Give the document of an answer."""
    model = answer.best.model
    profile = profile_of(model)
    tuner, even = answer.tuner, answer.best.symmetric
    forward_flops = float(profile.prefix.forward_flops[-1])
    return ParallelPlanAnswer(
        planner=request.planner,
        job=ModelFactsDoc(
            name=profile.name,
            num_parameters=parameter_count(profile),
            num_layers=profile.num_layers,
            flops_per_sample=forward_flops * (1.0 + profile.backward_ratio),
            global_batch=profile.global_batch,
        ),
        transformer=_in_full(model) if isinstance(model, Transformer) else None,
        best=point_document(answer.best),
        symmetric=None if even is None else point_document(even),
        symmetric_loss=None if even is None else even.seconds / answer.best.seconds - 1.0,
        launch=launch_document(answer.best.estimate.plan),
        points=tuple(point_document(point) for point in answer.points),
        missing=tuple(_missing(missing) for missing in answer.missing),
        grids=tuple(_grid(grid) for grid in answer.grids),
        tuner=None if tuner is None else TunerDoc(**{**asdict(tuner), "num_before": _as_float(tuner.num_before)}),
        measure_next=None if answer.measure_next is None else measure_next_document(answer.measure_next),
        alternatives=tuple(_alternative(other) for other in answer.alternatives),
        warnings=issue_documents(answer.warnings),
        # The planners raise where the independent check finds anything, so that a plan in hand has passed it.
        verified=True,
        elapsed_ms=answer.elapsed_s * _MS_PER_S,
        version=__version__,
    )


def _in_full(model: Transformer) -> TransformerDoc:
    """The model without the name of a catalogue that others need not have."""
    return transformer_to_document(replace(model, name=None))


def point_document(point: PlanPoint) -> PlanPointDoc:
    """Give the document of the best plan on a number of GPUs."""
    estimate, interval = point.estimate, point.interval
    seconds = estimate.iteration.total_s
    return PlanPointDoc(
        gpu_type=point.gpu_type,
        num_gpus=point.num_gpus,
        notation=estimate.plan.notation(),
        training=training_to_document(Training.of(point.model, by_stage=estimate.plan.has_own_checkpointing)),
        throughput=estimate.throughput,
        iteration_s=seconds,
        iteration_low_s=seconds if interval is None else interval.low_s,
        iteration_high_s=seconds if interval is None else interval.high_s,
        bound_s=point.bound_s,
        gap=point.gap,
        fits=point.fits,
        needed_bytes=point.fullest[0],
        usable_bytes=point.fullest[1],
        efficiency=EfficiencyDoc.model_validate(point.efficiency, from_attributes=True),
        measured=estimate.measured,
        breakdown=BreakdownDoc.model_validate(point.breakdown, from_attributes=True),
        stages=tuple(_stage(point, i) for i in range(estimate.plan.pp)),
        plan=plan_to_document(estimate.plan),
    )


def measure_next_document(found: MeasureNext) -> MeasureNextDoc:
    """What to measure next, and why."""
    name, rival = found.plan.notation(), found.rival.notation()
    faster = f"{100 * abs(found.ratio - 1):.1f} % {'slower' if found.ratio > 1 else 'faster'}"
    return MeasureNextDoc(
        gpu_type=found.gpu_type,
        notation=name,
        iteration_s=found.interval.iteration_s,
        iteration_low_s=found.interval.low_s,
        iteration_high_s=found.interval.high_s,
        expected_gain=found.gain,
        rival=rival,
        detail=f"predicted {faster} than {rival}, by a difference known to {100 * found.deviation:.1f} %; measured, to "
        f"{100 * found.deviation_after:.1f} %. The choice is expected to become {100 * found.gain:.1f} % faster",
        plan=plan_to_document(found.plan),
    )


def _stage(point: PlanPoint, i: int) -> StageDetailDoc:
    plan = point.estimate.plan
    stage, time, memory = plan.stages[i], point.estimate.iteration.stages[i], point.estimate.memory[i]
    return StageDetailDoc(
        num_layers=stage.num_layers,
        dp=plan.data_parallel(stage),
        tp=stage.tp,
        forward_s=time.forward_s,
        backward_s=time.backward_s,
        tensor_communication_s=time.tensor_communication_s,
        ring_s=time.ring_s,
        all_to_all_s=time.all_to_all_s,
        weight_s=time.weight_s,
        reduction_s=time.reduction_s,
        exposed_reduction_s=time.exposed_reduction_s,
        optimizer_s=time.optimizer_s,
        parameter_bytes=memory.parameter_bytes,
        optimizer_bytes=memory.optimizer_bytes,
        gradient_bytes=memory.gradient_bytes,
        activation_bytes=memory.activation_bytes,
        total_bytes=memory.total_bytes,
        usable_bytes=point.usable_bytes[i],
        recomputing=stage.recomputing,
    )


def _alternative(other: Alternative) -> AlternativeDoc:
    found = other.estimate
    return AlternativeDoc(
        gpu_type=other.gpu_type,
        num_gpus=other.num_gpus,
        training=training_to_document(other.training),
        notation=None if found is None else found.plan.notation(),
        iteration_s=None if found is None else found.iteration.total_s,
        why=other.why,
    )


def _missing(missing: MissingPoint) -> MissingPointDoc:
    return MissingPointDoc(
        gpu_type=missing.gpu_type,
        num_gpus=missing.num_gpus,
        rejections=tuple(_rejection(rejection) for rejection in missing.rejections),
    )


def _grid(grid: Grid) -> GridDoc:
    return GridDoc(
        gpu_type=grid.gpu_type,
        num_gpus=grid.num_gpus,
        pp=grid.pp,
        num_plans=grid.num_plans,
        proxy=None if grid.proxy is None else grid.proxy.plan.notation(),
        proxy_throughput=None if grid.proxy is None else grid.proxy.throughput,
        frontier=tuple(_frontier_plan(found) for found in grid.frontier),
        rejections=tuple(_rejection(rejection) for rejection in grid.rejections),
    )


def _frontier_plan(found: FrontierPlan) -> FrontierPlanDoc:
    return FrontierPlanDoc(
        notation=found.plan.notation(),
        stages=tuple(
            StageShapeDoc(num_layers=stage.num_layers, dp=stage.dp, tp=stage.tp) for stage in found.plan.stages
        ),
        num_micro_batches=found.plan.num_micro_batches,
        computation_bias=found.computation_bias,
        communication_load_s=found.communication_load_s,
    )


def _rejection(rejection: Rejection) -> RejectionDoc:
    return RejectionDoc.model_validate(rejection, from_attributes=True)


def _as_float(count: int) -> float:
    """Counts of plans have hundreds of digits, which no JSON number needs to have."""
    return float(min(count, _MOST))
