"""Measured plans of a request say something of all its plans; intervals; which plan to measure next."""

from dataclasses import replace

import numpy as np
import pytest

from models.parallelism.offers import free_gpus, offers_of
from models.parallelism.planner import answer, answer_task
from models.parallelism.request import MeasuredPlan, ParallelRequest, Planner
from models.parallelism.uncertainty import calibrated_request, gains
from models.performance.iteration.coefficients import Calibration
from solver.monitor import SolveMonitor
from tests.models.parallelism.test_planner import CLUSTER, DEGREES, REQUEST

FLAT = replace(CLUSTER, core_bandwidth_fraction=1.0)
ON_CLUSTER = replace(REQUEST, cluster=FLAT, offers=offers_of(FLAT, free_gpus(FLAT)))
GIVEN = replace(
    REQUEST,
    planner=Planner.GIVEN,
    degrees=DEGREES,
    offers=(replace(REQUEST.offers[0], counts=(DEGREES.num_gpus,)),),
)
PREDICTED_S = answer(GIVEN).best.estimate.iteration.total_s
MEASURED = MeasuredPlan(gpu_type="gpu", pp=2, dp=2, tp=2, num_micro_batches=8, iteration_s=1.25 * PREDICTED_S)


def test_a_measured_plan_makes_others_slower_and_surer() -> None:
    before = answer_task(REQUEST, SolveMonitor()).points[0]
    found = answer_task(replace(REQUEST, measured=(MEASURED,)), SolveMonitor())
    after = found.points[0]
    assert after.estimate.plan == before.estimate.plan
    assert not after.estimate.measured
    assert after.estimate.iteration.total_s > 1.05 * before.estimate.iteration.total_s
    assert before.interval is not None
    assert after.interval is not None
    assert after.interval.high_s / after.interval.low_s < before.interval.high_s / before.interval.low_s
    assert after.interval.low_s < after.estimate.iteration.total_s < after.interval.high_s
    assert found.warnings == ()


def test_a_measured_plan_keeps_its_own_time_and_is_nearly_sure() -> None:
    found = answer_task(replace(GIVEN, measured=(MEASURED,)), SolveMonitor()).best
    assert found.estimate.iteration.total_s == MEASURED.iteration_s
    assert found.interval is not None
    assert found.interval.high_s < 1.05 * MEASURED.iteration_s


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"iteration_s": 1e-4}, "too far for a calibration"),
        ({"iteration_s": 1e5}, "too far for a calibration"),
        ({"dp": 5}, "does not divide"),
        ({"pp": 25}, "24 layers"),
    ],
)
def test_measurements_that_say_nothing_of_others(wrong: dict[str, float], reason: str) -> None:
    other = replace(MEASURED, **wrong)  # type: ignore[arg-type]
    request = calibrated_request(replace(REQUEST, measured=(MEASURED, other)))
    assert [(issue.code, issue.pointer) for issue in request.warnings] == [("measurement_not_used", "/measurements/1")]
    assert reason in request.warnings[0].detail
    assert request.calibration is not None
    assert request.calibration.adjustment is not None
    assert request.calibration.adjustment.num_points == 1


def test_a_calibration_is_gone_on_from() -> None:
    first = calibrated_request(replace(REQUEST, measured=(MEASURED,)))
    other = replace(MEASURED, pp=1, dp=4, num_micro_batches=2)
    both = calibrated_request(replace(first, measured=(other,), calibration=first.calibration))
    assert isinstance(both.calibration, Calibration)
    assert both.calibration.adjustment is not None
    assert both.calibration.adjustment.num_points == 2


@pytest.mark.parametrize("request_", [REQUEST, ON_CLUSTER], ids=["virtual", "cluster"])
def test_what_to_measure_next_is_for_the_gpus_of_the_best_point(request_: ParallelRequest) -> None:
    found = answer_task(request_, SolveMonitor())
    following = found.measure_next
    assert following is not None
    assert following.plan.num_gpus == found.best.num_gpus
    assert following.plan != following.rival
    # Software runs no others, and some of the grids' are.
    assert following.plan.is_symmetric
    assert following.rival.is_symmetric
    assert 0 < following.gain < 0.2
    assert following.deviation_after < following.deviation
    # Who has measured it is told something else, or nothing.
    first = following.plan.stages[0]
    told = MeasuredPlan(
        gpu_type="gpu",
        pp=following.plan.pp,
        dp=first.dp,
        tp=first.tp,
        num_micro_batches=following.plan.num_micro_batches,
        iteration_s=following.interval.iteration_s,
    )
    again = answer_task(replace(request_, measured=(told,)), SolveMonitor()).measure_next
    assert again is None or again.plan != following.plan


def test_plans_that_are_surely_slower_need_no_measurement() -> None:
    """Of three plans whose times are known to 5 %, one is slower by half."""
    found = gains(np.log([1.0, 1.02, 1.5]), np.diag([0.05**2] * 3))
    assert found[:2].min() > 5e-3
    assert found[2] < 1e-4


def test_one_candidate_needs_no_measurement() -> None:
    assert answer_task(GIVEN, SolveMonitor()).measure_next is None


def test_only_plans_that_software_runs_are_to_be_measured() -> None:
    """Over links with a tenth of the bandwidth the best plan has stages of different degrees."""
    found = answer_task(
        replace(REQUEST, cluster=CLUSTER, offers=offers_of(CLUSTER, free_gpus(CLUSTER))), SolveMonitor()
    )
    assert not found.best.estimate.plan.is_symmetric
    assert found.measure_next is not None
    assert found.measure_next.plan.is_symmetric
    assert found.measure_next.rival.is_symmetric
