r"""What measured plans of a request say of all its plans: factors of the site, intervals of times, and which plan to
measure next.

Measure next. Among the plans for the GPUs of the best point, log times are N(m, C) by `plan_calibration`. Measuring
plan c moves all means along C_c / sqrt(C_cc + measurement^2) times a standard normal Z; then the fastest one is chosen:

    gain(c) = min m - E_Z [min (m + Z C_c / sqrt(C_cc + measurement^2))] >= 0

the share of the iteration time that knowing t_c is expected to save (the knowledge gradient of correlated beliefs,
Frazier, Powell and Dayanik 2009). Plans that were measured have no variance left.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import NormalDist

import numpy as np

from models.parallel_plan import ParallelPlan
from models.parallelism.binding import bind_plan
from models.parallelism.offers import fewest_nodes
from models.parallelism.request import (
    Degrees,
    MeasuredPlan,
    MeasureNext,
    Offer,
    ParallelAnswer,
    ParallelRequest,
    PlanPoint,
)
from models.parallelism.symmetric import degree_issues, given_plan
from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.architecture import profile_of
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.interval import TimeInterval, interval_of
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.plan_calibration import (
    MEASUREMENT,
    MeasuredTime,
    Prediction,
    calibrate_plans,
    measurement_faults,
)
from models.transformer import JobModel
from models.workload import NodeGpus
from stowplan.arrays import FloatArray
from stowplan.errors import InputError, Issue, Severity, pointer_of
from topology.cluster import GpuType

# More are not compared: the others are slower by what is known of them.
_MOST_CANDIDATES = 12
# Of a gain that is worth a measurement.
_LEAST_GAIN = 1e-4
_NORMAL = np.array([NormalDist().inv_cdf((k + 0.5) / 256) for k in range(256)])

# The model of an offer with a calibration.
OfferModel = Callable[[ParallelRequest, Offer], PerformanceModel]


def calibrated_request(request: ParallelRequest) -> ParallelRequest:
    """The request with factors that its measured plans suggest; a warning for each that says nothing of others."""
    times: list[tuple[int, MeasuredTime]] = []
    warnings: list[Issue] = []
    for k, measured in enumerate(request.measured):
        try:
            found = _measured_time(request, measured)
        except InputError as error:
            warnings.append(_unused(k, "; ".join(issue.detail for issue in error.issues) or error.detail))
            continue
        if found is not None:
            times.append((k, found))
    start = None if request.calibration is None else request.calibration.adjustment
    faults = list(measurement_faults([found for _, found in times], start))
    wrong = {int(issue.pointer.split("/")[1]): issue for issue in faults}
    warnings += [_unused(times[place][0], issue.detail) for place, issue in wrong.items()]
    usable = [found for place, (_, found) in enumerate(times) if place not in wrong]
    if usable:
        adjustment = calibrate_plans(usable, start, known_gpus=_known_gpus(request))
        calibration = replace(request.calibration or Calibration(), adjustment=adjustment)
        request = replace(request, calibration=calibration)
    return replace(request, warnings=(*request.warnings, *warnings))


def with_intervals(request: ParallelRequest, answer: ParallelAnswer, model_of: OfferModel) -> ParallelAnswer:
    """The answer with intervals of its times, and the plan to measure next, unless how the job is trained was left to
    the search: a measurement is of one way. Offers are those of the request."""
    predictions: dict[tuple[str, JobModel], Prediction] = {}
    points = []
    for point in answer.points:
        key = point.gpu_type, point.model
        if key not in predictions:
            trained = replace(request, model=point.model)
            predictions[key] = _prediction(trained, _offer(request, point.gpu_type), model_of)
        points.append(replace(point, interval=_interval(point, predictions[key])))
    found = replace(answer, points=tuple(points))
    if request.choices.are_open:
        return found
    return replace(
        found, measure_next=_measure_next(request, found, predictions[found.best.gpu_type, found.best.model])
    )


def gains(means: FloatArray, covariance: FloatArray, measurement: float = MEASUREMENT) -> FloatArray:
    """Expected share of the time of the fastest plan that measuring each plan saves, (N,), from means (N,) and
    covariance (N, N) of the logarithms."""
    moved = covariance / np.sqrt(np.diag(covariance) + measurement**2)
    least = (means[:, None, None] + moved[:, :, None] * _NORMAL).min(axis=0)
    return np.asarray(np.maximum(means.min() - least.mean(axis=1), 0.0))


def _measure_next(request: ParallelRequest, answer: ParallelAnswer, prediction: Prediction) -> MeasureNext | None:
    """The candidate with the largest gain; None where there is nothing to choose or to learn."""
    plans = _candidates(request, answer)
    if len(plans) < 2:
        return None
    means, covariance = prediction.covariance(plans)
    for k, plan in enumerate(plans):
        measured_s = request.measured_s(plan)
        if measured_s is not None:
            means[k], covariance[k], covariance[:, k] = math.log(measured_s), 0.0, 0.0
    found = gains(means, covariance)
    chosen = int(found.argmax())
    if found[chosen] < _LEAST_GAIN:
        return None
    others = [k for k in range(len(plans)) if k != chosen]
    rival = min(others, key=lambda k: (means[k], k))
    spread = covariance[chosen, chosen] + covariance[rival, rival] - 2 * covariance[chosen, rival]
    left = spread - (covariance[chosen, chosen] - covariance[chosen, rival]) ** 2 / (
        covariance[chosen, chosen] + MEASUREMENT**2
    )
    return MeasureNext(
        plan=plans[chosen],
        gpu_type=answer.best.gpu_type,
        interval=interval_of(math.exp(means[chosen]), math.sqrt(covariance[chosen, chosen])),
        gain=float(found[chosen]),
        rival=plans[rival],
        ratio=math.exp(means[chosen] - means[rival]),
        deviation=math.sqrt(spread),
        deviation_after=math.sqrt(max(left, 0.0)),
    )


def _candidates(request: ParallelRequest, answer: ParallelAnswer) -> list[ParallelPlan]:
    """The best plan, the one beside it, the best ones of all grids on its GPUs, and the first of their frontiers: those
    that are symmetric, since no software of a job runs others."""
    best = answer.best
    beside = [point.estimate.plan for point in (best, best.symmetric) if point is not None]
    grids = [grid for grid in answer.grids if (grid.gpu_type, grid.num_gpus) == (best.gpu_type, best.num_gpus)]
    proxies = sorted((g.proxy for g in grids if g.proxy is not None), key=lambda found: found.iteration.total_s)
    frontiers = [found.plan for grid in grids if grid.proxy is not None for found in grid.frontier[:2]]
    if not proxies:
        return [plan for plan in beside if plan.is_symmetric]
    offer = _offer(request, best.gpu_type)
    nodes = None if offer.nodes is None else fewest_nodes(offer.nodes, best.num_gpus, offer.gpus_per_node)
    every = [*(found.plan for found in proxies), *frontiers]
    virtual = [plan for plan in every if plan.is_symmetric][:_MOST_CANDIDATES]
    bound = virtual if nodes is None else [bind_plan(plan, nodes) for plan in virtual]
    return list({plan.notation(): plan for plan in [*beside, *bound] if plan.is_symmetric}.values())


def _interval(point: PlanPoint, prediction: Prediction) -> TimeInterval:
    seconds = point.estimate.iteration.total_s
    if point.estimate.measured:
        return interval_of(seconds, MEASUREMENT)
    found = prediction.interval(point.estimate.plan)
    return TimeInterval(
        iteration_s=seconds,
        low_s=found.low_s / found.iteration_s * seconds,
        high_s=found.high_s / found.iteration_s * seconds,
    )


def _prediction(request: ParallelRequest, offer: Offer, model_of: OfferModel) -> Prediction:
    def model(adjustment: Adjustment) -> PerformanceModel:
        calibration = replace(request.calibration or Calibration(), adjustment=adjustment)
        return model_of(replace(request, calibration=calibration), offer)

    start = None if request.calibration is None else request.calibration.adjustment
    return Prediction(model, start, known_gpus=_known_gpus(request))


def _known_gpus(request: ParallelRequest) -> bool:
    return request.calibration is not None and bool(request.calibration.gpus)


def _offer(request: ParallelRequest, gpu_type: str) -> Offer:
    """The first offer of a type; of a running job, one of all types of its cluster."""
    found = next((offer for offer in request.offers if offer.gpu_type.name == gpu_type), None)
    if found is not None:
        return found
    assert request.cluster is not None  # noqa: S101 - only running jobs have no offers, and these have a cluster
    kind = request.cluster.gpu_types[0]
    return Offer(gpu_type=kind, gpus_per_node=request.cluster.nodes[0].num_gpus, counts=(1,))


def _kinds(request: ParallelRequest) -> Iterator[tuple[GpuType, int]]:
    """GPU types and the size of their nodes."""
    for offer in request.offers:
        yield offer.gpu_type, offer.gpus_per_node
    if request.cluster is not None:
        for kind in request.cluster.gpu_types:
            sizes = [node.num_gpus for node in request.cluster.nodes if node.gpu_type == kind.name]
            if sizes:
                yield kind, max(sizes)


def _measured_time(request: ParallelRequest, measured: MeasuredPlan) -> MeasuredTime | None:
    """A measured plan on nodes under one switch; None where it does not say how many micro-batches it had."""
    if measured.num_micro_batches is None:
        return None
    kind, size = next(found for found in _kinds(request) if found[0].name == measured.gpu_type)
    degrees = Degrees(pp=measured.pp, dp=measured.dp, tp=measured.tp, num_micro_batches=measured.num_micro_batches)
    return measured_time(request.model, kind, size, degrees, measured.iteration_s, calibration=request.calibration)


def measured_time(
    model: JobModel,
    kind: GpuType,
    gpus_per_node: int,
    degrees: Degrees,
    iteration_s: float,
    *,
    stage_s: tuple[float, ...] | None = None,
    calibration: Calibration | None = None,
) -> MeasuredTime:
    """A time of a symmetric plan on equal nodes under one switch.

    Raises
    ------
    InputError
        When the model has no such plan; pointers are relative to the degrees.
    """
    profile = profile_of(model)
    issues = list(degree_issues(degrees, profile, gpus_per_node))
    if issues:
        raise InputError("the degrees do not fit", issues)
    count = -(-degrees.num_gpus // gpus_per_node)
    nodes = [NodeGpus(node=str(k), gpus=tuple(range(gpus_per_node))) for k in range(count)]
    last = degrees.num_gpus - (count - 1) * gpus_per_node
    nodes[-1] = NodeGpus(node=str(count - 1), gpus=tuple(range(last)))
    return MeasuredTime(
        plan=given_plan(degrees, profile, kind.name, nodes),
        iteration_s=iteration_s,
        stage_s=stage_s,
        model_of=partial(_virtual, model, kind, gpus_per_node, count, calibration),
    )


def _virtual(
    model: JobModel,
    kind: GpuType,
    gpus_per_node: int,
    num_nodes: int,
    calibration: Calibration | None,
    adjustment: Adjustment,
) -> PerformanceModel:
    found = replace(calibration or Calibration(), adjustment=adjustment)
    return virtual_model(model, kind, gpus_per_node, num_nodes, found)


def _unused(k: int, why: str) -> Issue:
    return Issue(
        code="measurement_not_used",
        pointer=pointer_of("measurements", k),
        detail=f"stands for its own plan only, and not for others: {why}",
        severity=Severity.WARNING,
    )
