"""All measurements of a site become one calibration: in whatever order, and not where they contradict one another."""

import math
from dataclasses import replace
from typing import Any

import pytest

from models.measured.base import Bandwidth, Training
from models.parallelism.measured_site import MeasuredSite, SiteMeasurement
from models.parallelism.request import Degrees, MeasuredPlan
from models.parallelism.site_calibration import calibrated_site, calibrated_site_task
from models.performance.iteration.adjustment import Adjustment
from solver.monitor import SolveMonitor
from stowplan.errors import InputError
from tests.models.parallelism.test_planner import DEGREES, REQUEST
from tests.models.parallelism.test_uncertainty import PREDICTED_S

KIND, SIZE = REQUEST.offers[0].gpu_type, REQUEST.offers[0].gpus_per_node


def training(seconds: float, name: str = "log", **degrees: Any) -> SiteMeasurement:
    found = Training(num_iterations=9, iteration_s=seconds)
    return SiteMeasurement(name=name, found=found, degrees=replace(DEGREES, **degrees))


def links(share: float) -> SiteMeasurement:
    reached = share * KIND.intra_node_bandwidth_bytes_per_s
    return SiteMeasurement(name="links", found=Bandwidth(bytes_per_s=reached, num_nodes=1, saturation_bytes=1e6))


def site(*measurements: SiteMeasurement) -> MeasuredSite:
    return MeasuredSite(gpu_type=KIND, gpus_per_node=SIZE, measurements=measurements, model=REQUEST.model)


def fitted(*measurements: SiteMeasurement) -> Adjustment:
    found = calibrated_site(site(*measurements)).calibration.adjustment
    assert found is not None
    return found


def test_slow_iterations_make_computation_slower_and_the_order_is_nothing() -> None:
    slow, other = training(1.25 * PREDICTED_S), training(1.2 * PREDICTED_S, num_micro_batches=16)
    assert fitted(slow).computation > 1.05
    forth, back = fitted(links(0.5), slow, other), fitted(other, slow, links(0.5))
    assert forth.logs == pytest.approx(back.logs, abs=1e-9)
    assert forth.num_points == 2
    assert fitted(links(0.4)).link > fitted(links(0.6)).link


def test_what_is_measured_next_was_not_measured() -> None:
    found = calibrated_site_task(site(training(1.25 * PREDICTED_S)), SolveMonitor())
    assert found.measure_next is not None
    assert found.measure_next.gain > 0
    assert found.measure_next.plan.num_gpus == DEGREES.num_gpus
    assert calibrated_site_task(replace(site(links(0.5)), model=None), SolveMonitor()).measure_next is None


def test_contradictions() -> None:
    with pytest.raises(InputError) as caught:
        calibrated_site(site(training(PREDICTED_S, "first"), training(1.6 * PREDICTED_S, "second")))
    [issue] = caught.value.issues
    assert (issue.code, issue.pointer) == ("contradiction", "/measurements/1")
    assert issue.detail.startswith("second: has ")
    assert "first" in issue.detail
    with pytest.raises(InputError, match="1 error"):
        calibrated_site(site(links(0.9), links(0.3)))
    # Of different plans no pair is wrong by itself: what the factors cannot explain is told.
    odd = calibrated_site(site(training(0.7 * PREDICTED_S), training(1.9 * PREDICTED_S, num_micro_batches=16)))
    assert {issue.code for issue in odd.warnings} == {"contradiction"}
    assert calibrated_site(site(training(1.1 * PREDICTED_S))).warnings == ()


def test_all_faults_are_told_with_the_names_of_measurements() -> None:
    batch = SiteMeasurement(
        name="batch", found=Training(num_iterations=9, tokens_per_s=1.0, global_batch=7), degrees=DEGREES
    )
    with pytest.raises(InputError) as caught:
        calibrated_site(site(training(1.0, "deep", pp=999), batch, replace(links(0.5), name="ok"), links(1e-4)))
    told = [(issue.pointer, issue.detail.partition(":")[0]) for issue in caught.value.issues]
    assert ("/measurements/0/degrees/pp", "deep") in told
    assert ("/measurements/1", "batch") in told
    assert ("/measurements/3", "links") in told
    with pytest.raises(InputError) as caught:
        calibrated_site(site(training(math.nan, "none")))
    assert [issue.pointer for issue in caught.value.issues] == ["/measurements/0/iteration_s"]


@pytest.mark.parametrize(
    "more",
    [
        replace(DEGREES, virtual_stages=2),
        replace(DEGREES, context_parallel=2),
        replace(DEGREES, expert_parallel=2),
        replace(DEGREES, recomputed_layers=1),
    ],
)
def test_the_time_of_a_plan_that_has_more_is_not_that_of_its_degrees(more: Degrees) -> None:
    plain = MeasuredPlan.of(DEGREES, KIND.name, 2.0)
    assert plain is not None
    assert (plain.pp, plain.dp, plain.tp, plain.iteration_s) == (DEGREES.pp, DEGREES.dp, DEGREES.tp, 2.0)
    assert MeasuredPlan.of(more, KIND.name, 2.0) is None
