"""Plan one job on the GPUs that it may get: search, bind to nodes, estimate there, check."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from models.parallel_plan import ParallelPlan
from models.parallelism.estimate import fastest_point, offer_model, point_of, virtual_nodes
from models.parallelism.even import even_bound_s, even_plans
from models.parallelism.exhaustive import ExhaustiveOptions, best_plan
from models.parallelism.grid.operators import cluster
from models.parallelism.grid.options import GridOptions, PlanRule
from models.parallelism.grid.planner import plan_grids
from models.parallelism.grid.pruning import remaining_plans
from models.parallelism.incremental.expand import expand
from models.parallelism.joint_search import joint_plan
from models.parallelism.legality import plan_violations
from models.parallelism.no_plan import missing_point, nowhere, unshared
from models.parallelism.offers import fewest_nodes
from models.parallelism.recomputation import with_cheapest
from models.parallelism.request import (
    MissingPoint,
    Offer,
    ParallelAnswer,
    ParallelRequest,
    Planner,
    PlanPoint,
    TunerWork,
)
from models.parallelism.results import GridResult, PlanEstimate, RejectionReason
from models.parallelism.symmetric import degree_issues, given_plan
from models.parallelism.trained import best_trained
from models.parallelism.training import Training
from models.parallelism.uncertainty import calibrated_request, with_intervals
from models.performance.iteration.architecture import profile_of
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import performance_model, virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.transformer import JobModel
from models.wording import counted, size_of
from solver.monitor import SolveMonitor
from solver.ticket import DeadlineError
from stowplan.arrays import FloatArray
from stowplan.errors import InputError, Issue, Severity

# More are not counted one by one: nobody measures as many, and it would take longer than the plan.
_MOST_ASSIGNMENTS = 100_000


def answer_task(request: ParallelRequest, monitor: SolveMonitor) -> ParallelAnswer:
    """Entry point of workers."""
    begun_s = time.perf_counter()
    request = calibrated_request(request)
    found = with_intervals(request, answer(request, monitor.canceled.is_set), offer_model)
    return replace(found, warnings=(*request.warnings, *found.warnings), elapsed_s=time.perf_counter() - begun_s)


def answer(request: ParallelRequest, over: Callable[[], bool] = lambda: False) -> ParallelAnswer:
    """Plan the job.

    Parameters
    ----------
    over
        Whether the time is over. Once a plan is found, what is left is not looked at then: plans of the same GPUs,
        other numbers of GPUs (which are missing for it), other ways to train.

    Raises
    ------
    DeadlineError
        When nothing was found before the time was over.
    InputError
        When no plan is legal on any of the GPUs, or what is given does not fit the model; pointers are relative to the
        request (`/offers/0`, `/degrees/tp`, `/running`).
    UnverifiedPlanError
        When a plan of ours fails the check.
    """
    if request.planner is Planner.INCREMENTAL:
        return _grown(request)
    request = replace(request, grid=replace(request.grid, over=over))
    parts = [_trained(request, k, offer) for k, offer in enumerate(request.offers)]
    found = ParallelAnswer(
        points=tuple(point for part in parts for point in part.points),
        missing=tuple(missing for part in parts for missing in part.missing),
        grids=tuple(grid for part in parts for grid in part.grids),
        alternatives=tuple(other for part in parts for other in part.alternatives),
        warnings=tuple(issue for part in parts for issue in part.warnings),
    )
    if not found.points and over():
        raise DeadlineError("no plan was found before the time was over")
    if not found.points:
        raise InputError("no plan is legal on any of these GPUs", list(nowhere(request, parts)))
    found = replace(found, warnings=(*found.warnings, *_asymmetry(found.best)))
    if not over():
        return replace(found, tuner=_tuner(request, found))
    detail = "the time was over before all plans were looked at: these are the best so far"
    late = Issue(code="time_limit", pointer="", detail=detail, severity=Severity.WARNING)
    return replace(found, warnings=(*found.warnings, late))


def _asymmetry(best: PlanPoint) -> Iterator[Issue]:
    """That no software here runs the best plan, and what it costs to take one that it runs."""
    if best.estimate.plan.is_symmetric:
        return
    detail = (
        f"the best plan, {best.estimate.plan.notation()}, is not symmetric: {best.model.software} cannot run it, only "
        "an engine whose stages may differ in degrees; "
    )
    if best.symmetric is None:
        detail += "no symmetric one stands beside it; deployments project it to one"
    else:
        longer = 100.0 * (best.symmetric.seconds / best.seconds - 1.0)
        detail += f"the best symmetric one, {best.symmetric.estimate.plan.notation()}, takes {longer:.1f} % longer"
    yield Issue(code="asymmetric_plan", pointer="", detail=detail, severity=Severity.WARNING)


def _trained(request: ParallelRequest, k: int, offer: Offer) -> ParallelAnswer:
    """Points of one offer, each trained in the best way that is open."""
    if not request.choices.are_open:
        found = _on_offer(request, k, offer, first=k == 0)
        return _bounded(request, offer, found, [(request.model, found)], by_stage=False)
    tried: list[tuple[JobModel, ParallelAnswer]] = []
    refused: list[InputError] = []
    for model in request.choices.models(request.model):
        try:
            first = k == 0 and not any(way.points for _, way in tried)
            tried.append((model, _on_offer(replace(request, model=model), k, offer, first=first)))
        except InputError as error:
            # Degrees that are given may be impossible at some ZeRO stages.
            refused.append(error)
    if not tried:
        raise refused[0]
    own = [
        (model, _by_stage(replace(request, model=model), offer)) for model in request.choices.by_stage(request.model)
    ]
    ways = [(Training.of(model), found) for model, found in tried]
    ways += [
        (Training.of(model, by_stage=found.best.estimate.plan.has_own_checkpointing), found)
        for model, found in own
        if found.points
    ]
    # Stages that recompute on their own may also all do alike.
    return _bounded(request, offer, best_trained(offer, ways), own or tried, by_stage=bool(own))


def _bounded(
    request: ParallelRequest,
    offer: Offer,
    found: ParallelAnswer,
    tried: Sequence[tuple[JobModel, ParallelAnswer]],
    *,
    by_stage: bool,
) -> ParallelAnswer:
    """The answer with bounds of its points over all ways to train; of those that the time was not enough for, too."""
    if request.cluster is not None or request.degrees is not None or not _tries_even(request):
        return found
    points = []
    for point in found.points:
        key = point.gpu_type, point.num_gpus
        bounds = [
            way.bounds_s[key]
            if key in way.bounds_s
            else even_bound_s(*_evenly(replace(request, model=model), offer, point.num_gpus), by_stage=by_stage)
            for model, way in tried
        ]
        points.append(replace(point, bound_s=None if math.isinf(min(bounds)) else min(bounds)))
    return replace(found, points=tuple(points))


def _by_stage(request: ParallelRequest, offer: Offer) -> ParallelAnswer:
    """Points of plans whose stages recompute on their own, where there are some."""
    points, bounds = [], {}
    for count in offer.counts:
        nodes = None if offer.nodes is None else fewest_nodes(offer.nodes, count, offer.gpus_per_node)
        plans, bounds[offer.gpu_type.name, count] = _even(request, offer, count, by_stage=True)
        if plans and (nodes is not None or offer.nodes is None):
            points.append(fastest_point(request, offer, plans, nodes, count))
    return ParallelAnswer(points=tuple(points), missing=(), bounds_s=_known(bounds))


def _on_offer(request: ParallelRequest, k: int, offer: Offer, *, first: bool) -> ParallelAnswer:
    """Points of one offer, on its nodes; none, unless it is looked at `first`, when the time is over."""
    if not first and request.grid.is_over:
        return ParallelAnswer(points=(), missing=tuple(missing_point(offer, count, (), ()) for count in offer.counts))
    if request.planner is Planner.GIVEN:
        return _given(request, k, offer)
    result = _search(request, k, offer)
    points: list[PlanPoint] = []
    missing: list[MissingPoint] = []
    bounds: dict[tuple[str, int], float | None] = {}
    for count in offer.counts:
        found = result.best.get((offer.gpu_type.name, count))
        nodes = None if offer.nodes is None else fewest_nodes(offer.nodes, count, offer.gpus_per_node)
        has_nodes = nodes is not None or offer.nodes is None
        plans = [] if found is None else [found.plan]
        if has_nodes or not request.grid.beyond_symmetric:
            # Quick enough for a first plan also when the time is over.
            late = first and not points and not plans
            even, bounds[offer.gpu_type.name, count] = _even(request, offer, count, late=late)
            plans += even
        if plans and has_nodes:
            points.append(fastest_point(request, offer, plans, nodes, count))
        elif not plans and not request.grid.beyond_symmetric and not request.grid.is_over:
            missing.append(unshared(request.grid, offer, count))
        else:
            grids = [grid for grid in result.grids if grid.num_gpus == count]
            missing.append(missing_point(offer, count, grids, plans))
    return ParallelAnswer(points=tuple(points), missing=tuple(missing), grids=result.grids, bounds_s=_known(bounds))


def _known(bounds_s: Mapping[tuple[str, int], float | None]) -> dict[tuple[str, int], float]:
    return {key: bound_s for key, bound_s in bounds_s.items() if bound_s is not None}


def _even(
    request: ParallelRequest, offer: Offer, count: int, *, by_stage: bool = False, late: bool = False
) -> tuple[list[ParallelPlan], float | None]:
    """Symmetric plans that may be better than what was found, or stand beside it, and a bound of all of them; None:
    the time was over. `late`: in spite of that."""
    if not _tries_even(request) or (request.grid.is_over and not late):
        return [], None
    model, name, size, *_ = arguments = _evenly(request, offer, count)
    if request.degrees is not None:
        cheapest = with_cheapest(given_plan(request.degrees, model.profile, name, virtual_nodes(offer)), model, size)
        return ([] if cheapest is None else [cheapest]), None
    found = even_plans(*arguments, by_stage=by_stage)
    other = joint_plan(model, name, size, count, request.grid, by_stage=by_stage, below_s=found.seconds)
    return [*found.found, *([] if other is None else [other])], found.bound_s


def _tries_even(request: ParallelRequest) -> bool:
    grid = request.grid
    return (grid.refine and grid.rule is PlanRule.ARENA) or not grid.beyond_symmetric


def _evenly(
    request: ParallelRequest, offer: Offer, count: int
) -> tuple[PerformanceModel, str, int, int, FloatArray, GridOptions]:
    """What symmetric plans are searched with."""
    size = offer.gpus_per_node
    model = virtual_model(request.model, offer.gpu_type, size, -(-count // size), request.calibration)
    return model, offer.gpu_type.name, size, count, roofline_s(model.profile, offer.gpu_type), request.grid


def _search(request: ParallelRequest, k: int, offer: Offer) -> GridResult:
    options = replace(request.grid, measured=request.measured_s)
    if not options.beyond_symmetric:
        return GridResult(grids=(), proxies={}, best={})
    if request.planner is Planner.EXHAUSTIVE:
        try:
            found = _exhaustive(request, offer)
        except InputError as error:
            issue = Issue(code="too_many_plans", pointer=f"/offers/{k}", detail=error.detail)
            raise InputError("there are too many plans to compare all of them", [issue]) from error
        # Counts without a plan are explained by the grids, which say why they are empty.
        left = [count for count in offer.counts if (offer.gpu_type.name, count) not in found]
        grids = _grids(request, offer, left, options).grids if left and not options.is_over else ()
        return GridResult(grids=grids, proxies={}, best=found)
    return _grids(request, offer, offer.counts, options)


def _grids(request: ParallelRequest, offer: Offer, counts: Sequence[int], options: GridOptions) -> GridResult:
    return plan_grids(request.model, offer.gpu_type, offer.gpus_per_node, counts, options, request.calibration)


def _exhaustive(request: ParallelRequest, offer: Offer) -> dict[tuple[str, int], PlanEstimate]:
    """The best of all plans per count, with cuts between clustered operators and stages of powers of two."""
    size, name = offer.gpus_per_node, offer.gpu_type.name
    found: dict[tuple[str, int], PlanEstimate] = {}
    for count in offer.counts:
        if found and request.grid.is_over:
            break
        model = virtual_model(request.model, offer.gpu_type, size, -(-count // size), request.calibration)
        operators = min(request.grid.num_operators, model.profile.num_layers)
        options = ExhaustiveOptions(
            bounds=cluster(roofline_s(model.profile, offer.gpu_type), operators),
            pipeline_degrees=request.grid.pipeline_degrees,
            powers_of_two=True,
        )
        best = best_plan(model, name, size, count, options).best
        if best is not None:
            found[name, count] = best
    return found


def _tuner(request: ParallelRequest, found: ParallelAnswer) -> TunerWork | None:
    """What is left to try on the GPUs of the best point."""
    gpu_type, num_gpus = found.best.gpu_type, found.best.num_gpus
    offer = next(offer for offer in request.offers if offer.gpu_type.name == gpu_type)
    model = found.best.model
    grids = tuple(grid for grid in found.grids if (grid.gpu_type, grid.num_gpus) == (gpu_type, num_gpus))
    if not any(grid.frontier and grid.proxy is not None for grid in grids):
        return None
    result = GridResult(grids=grids, proxies={}, best={})
    left = remaining_plans(
        model, offer.gpu_type, offer.gpus_per_node, num_gpus, result, request.grid, request.calibration
    )
    num_after = left.counted(_MOST_ASSIGNMENTS)
    if num_after is None:
        return None
    return TunerWork(
        gpu_type=gpu_type,
        num_gpus=num_gpus,
        pp=left.grid.pp,
        max_bias=left.max_bias,
        num_before=left.num_before,
        num_after=num_after,
    )


def _given(request: ParallelRequest, k: int, offer: Offer) -> ParallelAnswer:
    """The plan with the degrees of the request."""
    degrees = request.degrees
    assert degrees is not None  # noqa: S101 - they belong to this planner
    profile = profile_of(request.model)
    issues = [
        replace(issue, pointer=f"/degrees{issue.pointer}")
        for issue in degree_issues(degrees, profile, offer.gpus_per_node)
    ]
    nodes = fewest_nodes(offer.nodes or virtual_nodes(offer), degrees.num_gpus, offer.gpus_per_node)
    if nodes is None:
        detail = f"has no nodes for the {counted(degrees.num_gpus, 'GPU')} of these degrees"
        issues.append(Issue(code="nodes", pointer=f"/offers/{k}", detail=detail))
    if issues or nodes is None:
        raise InputError("the degrees do not fit", issues)
    plan = given_plan(degrees, profile, offer.gpu_type.name, nodes)
    model = offer_model(request, offer)
    point = point_of(request, model, plan, offer.gpu_type.name, degrees.num_gpus)
    return ParallelAnswer(points=(point,), missing=(), warnings=tuple(_memory_issues(plan, model)))


def _memory_issues(plan: ParallelPlan, model: PerformanceModel) -> Iterator[Issue]:
    """Stages of the given plan that need more memory than there is."""
    for i, (stage, memory) in enumerate(zip(plan.stages, model.memory(plan), strict=True)):
        usable = min(model.usable_bytes(replica.gpu_type) for replica in stage.replicas)
        if memory.total_bytes > usable:
            kind, needed = stage.replicas[0].gpu_type, size_of(memory.total_bytes)
            detail = f"stage {i} needs {needed} per {kind}, of which {size_of(usable)} are usable"
            code = RejectionReason.OUT_OF_MEMORY.value
            yield Issue(code=code, pointer="/degrees", detail=detail, severity=Severity.WARNING)


def _grown(request: ParallelRequest) -> ParallelAnswer:
    """The running plan, and what it may become with more and more of the released GPUs."""
    assert request.cluster is not None  # noqa: S101 - this planner needs it
    assert request.running is not None  # noqa: S101 - and this
    model = performance_model(request.model, request.cluster, request.calibration)
    found = [replace(issue, pointer=f"/running{issue.pointer}") for issue in plan_violations(request.running, model)]
    faults = [issue for issue in found if issue.code != RejectionReason.OUT_OF_MEMORY]
    if faults:
        raise InputError("the running plan is not legal", faults)
    result = expand(model, request.running, request.released, request.incremental)
    plans = [(0, request.running), *((step.num_added, step.plan) for step in result.steps)]
    points = [
        point_of(request, model, plan, _types_of(plan), request.running.num_gpus + num_added)
        for num_added, plan in plans
    ]
    # It runs, so that it is the prediction that is wrong; replicas that lack the same are named once.
    once = {issue.detail: issue for issue in reversed(found)}
    warnings = tuple(
        replace(issue, severity=Severity.WARNING, detail=f"{detail}, by prediction; calibrate the job's model")
        for detail, issue in reversed(once.items())
    )
    return ParallelAnswer(points=tuple(points), missing=(), warnings=warnings)


def _types_of(plan: ParallelPlan) -> str:
    return "+".join(sorted({replica.gpu_type for stage in plan.stages for replica in stage.replicas}))
