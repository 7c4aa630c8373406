"""Calibration by launches of which only whole steps are known."""

from dataclasses import replace

import numpy as np
import pytest

from models.performance.goodput.observed_goodput import goodput_observations
from models.performance.iteration.calibration import calibrate
from models.performance.iteration.coefficients import Calibration, GpuCoefficients
from models.performance.iteration.modelling import performance_model
from models.performance.iteration.step_table import MeasuredRun, StepTable
from models.software import Software
from tests.models.performance.iteration.step_scenes import CLUSTER, MODEL, measured_run, plan_of


def told(
    pp: int = 2, dp: int = 1, *, launch: int = 1, slower: float = 1.6, said: Calibration | None = None
) -> MeasuredRun:
    """A launch whose steps take so many times what the model says, one of them ten times that."""
    plan = plan_of(pp, dp, 1)
    step_s = np.full(20, slower * performance_model(MODEL, CLUSTER, said).iteration(plan).total_s)
    step_s[9] *= 10.0
    steps = StepTable.of_whole_steps(np.arange(1, 21), 1e9 + np.cumsum(step_s), step_s)
    return MeasuredRun(
        launch=launch, job=MODEL, plan=plan, cluster=CLUSTER, records=steps, first_step=1, whole_steps=True
    )


def test_predictions_follow_whole_steps() -> None:
    found = calibrate([told(2, 1), told(1, 2, launch=2)])
    assert found.calibration is not None
    assert (found.calibration.gpus, found.calibration.sizes) == ({}, None)
    assert found.calibration.adjustment is not None
    assert found.calibration.adjustment.num_points == 2
    assert found.calibration.measured_at_s == pytest.approx(1e9, rel=1e-3)
    for report in found.runs:
        assert (report.used, report.num_steps) == (True, 17)
        assert report.measured_s == pytest.approx(1.6 * report.white_box_s)
        assert report.calibrated_s == pytest.approx(report.measured_s, rel=0.1)
    # Another plan of the job is predicted better, too.
    plan = plan_of(2, 2, 1)
    before, after = (
        performance_model(MODEL, CLUSTER, one).iteration(plan).total_s for one in (None, found.calibration)
    )
    assert after / before == pytest.approx(1.6, rel=0.15)


def test_of_replicas_that_share_experts_steps_are_taken_as_they_are() -> None:
    """Their passes are not those that coefficients are of."""
    model = replace(MODEL, num_experts=4, software=Software.MEGATRON_CORE)
    shared = measured_run(replace(plan_of(1, 2, 1), expert_parallel=2), noise=0.0, job=model)
    found = calibrate([shared]).calibration
    assert found is not None
    assert found.gpus == {}
    assert found.adjustment is not None


def test_coefficients_that_a_trainer_shows_stay() -> None:
    ran = measured_run(plan_of(2, 1, 1), noise=0.0)
    alone = calibrate([ran]).calibration
    assert alone is not None
    both = calibrate([told(1, 2, launch=2, slower=1.2, said=alone), ran]).calibration
    assert both is not None
    assert both.gpus == alone.gpus
    assert both.adjustment is not None
    plan = plan_of(1, 2, 1)
    predicted = [performance_model(MODEL, CLUSTER, one).iteration(plan).total_s for one in (alone, both)]
    assert 1.0 < predicted[1] / predicted[0] <= 1.2


def test_what_was_said_before_is_set_right() -> None:
    said = Calibration(gpus={"cpu": GpuCoefficients(compute_s=0.05, backward_ratio=2.0, optimizer_s=0.01, overlap=1.0)})
    run = told(said=said, slower=1.5)
    found = calibrate([run], said)
    assert found.calibration is not None
    assert found.calibration.gpus == said.gpus
    assert found.runs[0].calibrated_s == pytest.approx(found.runs[0].measured_s, rel=0.2)


@pytest.mark.parametrize("slower", [0.1, 20.0])
def test_times_of_something_else_are_said(slower: float) -> None:
    found = calibrate([told(slower=slower), measured_run(plan_of(2, 1, 1), 2)])
    mine = found.runs[1]
    assert not mine.used
    assert "too far for a calibration" in mine.detail
    assert found.calibration is not None
    assert found.calibration.adjustment is None
    assert calibrate([told(slower=slower)]).calibration is None


def test_few_steps_and_other_models_do_not_count() -> None:
    run = told()
    steps = run.records
    few = replace(run, records=StepTable.of_whole_steps(steps.step[:5], steps.started_at_s[:5], steps.step_s[:5]))
    assert calibrate([few]).runs[0].detail == "has fewer than 3 steps of all ranks behind the first 3"
    other = replace(told(launch=2), job=replace(MODEL, vocabulary_size=8_100))
    assert [report.used for report in calibrate([run, other]).runs] == [True, False]


def test_they_tell_sia_nothing_of_synchronisation() -> None:
    assert goodput_observations([told(1, 2)]) is None
