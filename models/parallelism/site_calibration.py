"""One calibration from all that a site has measured: bandwidth tests, then iteration times of plans of one job; and
which plan to measure next.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from models.measured.bandwidths import told_bandwidth
from models.measured.base import Bandwidth, Training
from models.parallelism.estimate import offer_model
from models.parallelism.measured_site import CalibratedSite, MeasuredSite, SiteMeasurement
from models.parallelism.planner import answer
from models.parallelism.request import MeasuredPlan, MeasureNext, Offer, ParallelRequest
from models.parallelism.uncertainty import measured_time, with_intervals
from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.plan_calibration import (
    MEASUREMENT,
    MeasuredTime,
    calibrate_plans,
    measurement_faults,
)
from solver.monitor import SolveMonitor
from solver.ticket import DeadlineError
from stowplan.errors import InputError, Issue, Severity, pointer_of, raise_for_errors

# Two measurements of the same are of different things when they are further apart.
_SAME = 1.5
# Standard deviations that the factors may leave of a time; more say that times contradict one another.
_LEFT = 3.0


def calibrated_site_task(site: MeasuredSite, monitor: SolveMonitor) -> CalibratedSite:
    """Entry point of workers: with the plan to measure next."""
    found = calibrated_site(site)
    return replace(found, measure_next=_measure_next(site, found.calibration, monitor.canceled.is_set))


def calibrated_site(site: MeasuredSite) -> CalibratedSite:
    """Factors that all measurements together suggest.

    Raises
    ------
    InputError
        When a measurement is of something else, contradicts another one of the same, or is of a plan that the model
        does not have; pointers are `/measurements/<index>...`.
    """
    adjustment = site.start.adjustment or Adjustment()
    told: list[str] = []
    times: dict[int, MeasuredTime] = {}
    issues: list[Issue] = []
    for k, one in enumerate(site.measurements):
        try:
            if isinstance(one.found, Bandwidth):
                ports = one.num_ports or site.gpus_per_node
                adjustment, sentence = told_bandwidth(
                    adjustment, one.found, site.gpu_type, num_ports=ports, num_nodes=one.num_nodes
                )
            else:
                times[k] = _time(site, one, one.found)
                seconds, plan = times[k].iteration_s, times[k].plan.notation()
                sentence = f"{seconds:.4g} s an iteration of {plan} on {site.gpu_type.name}"
            told.append(f"{one.name}: {sentence}")
        except InputError as error:
            issues += _located(site, k, error)
    raise_for_errors(issues, "set of measurements")
    places = list(times)
    for issue in measurement_faults(list(times.values()), adjustment):
        _, place, field = issue.pointer.split("/", 2)
        issues.append(_named(site, places[int(place)], replace(issue, pointer=f"/{field}")))
    raise_for_errors(issues or list(_contradictions(site, times)), "set of measurements")
    adjustment = calibrate_plans(list(times.values()), adjustment, known_gpus=bool(site.start.gpus))
    return CalibratedSite(
        calibration=replace(site.start, adjustment=adjustment),
        told=tuple(told),
        warnings=tuple(_left_over(site, times, adjustment)),
    )


def _time(site: MeasuredSite, one: SiteMeasurement, found: Training) -> MeasuredTime:
    """The time of a training on its plan."""
    if site.model is None or one.degrees is None:
        raise InputError("is of a training: say of which model, and with which plan (degrees)")
    job, degrees = site.model, one.degrees
    if found.global_batch is not None and found.global_batch != job.global_batch:
        raise InputError(f"has a global batch of {found.global_batch}, where the job has {job.global_batch}")
    seconds = found.iteration_s
    if seconds is None:
        tokens = getattr(job, "sequence_length", None)
        if tokens is None or found.tokens_per_s is None:
            raise InputError("has tokens per second, and the model has no tokens; give a transformer")
        seconds = job.global_batch * tokens / (found.tokens_per_s * degrees.num_gpus)
    return measured_time(
        job, site.gpu_type, site.gpus_per_node, degrees, seconds, stage_s=one.stage_s, calibration=site.start
    )


def _contradictions(site: MeasuredSite, times: dict[int, MeasuredTime]) -> Iterator[Issue]:
    """Measurements that are far from the first one of the same plan, or of the same links."""
    first: dict[object, tuple[int, float]] = {}
    for k, one in enumerate(site.measurements):
        if isinstance(one.found, Bandwidth):
            key: object = one.found.is_port, (one.found.num_nodes or one.num_nodes) == 1
            value, unit = one.found.bytes_per_s / 1e9, "GB/s"
        else:
            key, value, unit = times[k].plan, times[k].iteration_s, "s"
        before, other = first.setdefault(key, (k, value))
        if not 1.0 / _SAME <= value / other <= _SAME:
            detail = (
                f"has {value:.4g} {unit}, where {site.measurements[before].name} has {other:.4g} of the same: one of "
                "them is of something else; leave it out"
            )
            yield _named(site, k, Issue(code="contradiction", pointer="", detail=detail))


def _left_over(site: MeasuredSite, times: dict[int, MeasuredTime], adjustment: Adjustment) -> Iterator[Issue]:
    """Times that the factors do not explain."""
    usual = math.hypot(adjustment.residual_deviation, MEASUREMENT)
    for k, found in times.items():
        expected = found.model_of(adjustment).iteration(found.plan).total_s
        if abs(math.log(found.iteration_s / expected)) > _LEFT * usual:
            detail = (
                f"is {found.iteration_s:.4g} s, where the calibration says {expected:.4g} s of "
                f"{found.plan.notation()}: it contradicts the other measurements, or this plan has a trouble of its own"
            )
            yield _named(site, k, Issue(code="contradiction", pointer="", detail=detail, severity=Severity.WARNING))


def _measure_next(site: MeasuredSite, calibration: Calibration, over: Callable[[], bool]) -> MeasureNext | None:
    """On as many GPUs as the largest plan that was measured had."""
    degrees = [one.degrees for one in site.measurements if one.degrees is not None]
    if site.model is None or not degrees:
        return None
    offer = Offer(
        gpu_type=site.gpu_type,
        gpus_per_node=site.gpus_per_node,
        counts=(max(one.num_gpus for one in degrees),),
    )
    request = ParallelRequest(model=site.model, offers=(offer,), calibration=calibration)
    try:
        found = answer(request, over)
    except (InputError, DeadlineError):
        # By the model nothing fits there, or nothing was found in time: the factors stand all the same.
        return None
    # What was measured is in the calibration already; here it only says what is known of these plans.
    known = replace(request, measured=tuple(_measured(site)))
    return with_intervals(known, found, offer_model).measure_next


def _measured(site: MeasuredSite) -> Iterator[MeasuredPlan]:
    """Trainings whose plans have a short form, with the times that they had."""
    for one in site.measurements:
        if isinstance(one.found, Training) and one.degrees is not None:
            seconds = _time(site, one, one.found).iteration_s
            plan = MeasuredPlan.of(one.degrees, site.gpu_type.name, seconds)
            if plan is not None:
                yield plan


def _located(site: MeasuredSite, k: int, error: InputError) -> Sequence[Issue]:
    """The issues of an error in a measurement; of one without, itself."""
    if not error.issues:
        return [_named(site, k, Issue(code=error.code, pointer="", detail=error.detail))]
    return [_named(site, k, replace(issue, pointer="/degrees" + issue.pointer)) for issue in error.issues]


def _named(site: MeasuredSite, k: int, issue: Issue) -> Issue:
    detail = f"{site.measurements[k].name}: {issue.detail}"
    return replace(issue, pointer=pointer_of("measurements", k) + issue.pointer, detail=detail)
