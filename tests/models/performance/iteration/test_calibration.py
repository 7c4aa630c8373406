"""Calibration: what a few noisy launches say, and how well it predicts plans that never ran."""

from dataclasses import replace

import numpy as np
import pytest

from models.performance.iteration.calibration import calibrate, same_costs
from models.performance.iteration.modelling import performance_model
from models.performance.iteration.step_measurements import step_time_s
from models.performance.iteration.step_table import MIN_STEPS, WARM_UP_STEPS
from models.transformer import Precision
from tests.models.performance.iteration.step_scenes import (
    CLUSTER,
    MODEL,
    TRUTH,
    measured_run,
    plan_of,
    true_step_s,
    without_ranks,
)

DEGREES = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2), (4, 2, 1), (1, 4, 1)]


def test_plans_that_never_ran_are_predicted() -> None:
    ran = [measured_run(plan_of(2, 1, 1), 1), measured_run(plan_of(1, 2, 1), 2, seed=1)]
    found = calibrate(ran).calibration
    assert found is not None
    model, white = performance_model(MODEL, CLUSTER, found), performance_model(MODEL, CLUSTER)
    for degrees in DEGREES:
        plan = plan_of(*degrees)
        truth = true_step_s(plan)
        assert model.iteration(plan).total_s == pytest.approx(truth, rel=0.05), degrees
        assert abs(white.iteration(plan).total_s - truth) > 0.15 * truth


@pytest.mark.parametrize("degrees", [(2, 2, 1), (2, 2, 2), (4, 1, 1)])
def test_a_noiseless_launch_gives_the_truth_back(degrees: tuple[int, int, int]) -> None:
    found = calibrate([measured_run(plan_of(*degrees), noise=0.0)]).calibration
    assert found is not None
    truth, coefficients = TRUTH.gpus["cpu"], found.gpus["cpu"]
    assert coefficients.compute_s == pytest.approx(truth.compute_s)
    assert coefficients.backward_ratio == pytest.approx(truth.backward_ratio)
    # Ranks that wait for others do not count: the wait is longer than the optimiser here.
    assert coefficients.optimizer_s == pytest.approx(truth.optimizer_s)
    assert coefficients.overlap == pytest.approx(truth.overlap if degrees[1] > 1 else 1.0, rel=1e-4)
    assert found.sizes is None
    assert found.measured_at_s == pytest.approx(1e9 + 29 + true_step_s(plan_of(*degrees)), rel=1e-9)


def test_reports_say_measured_and_predicted() -> None:
    run = measured_run(plan_of(2, 2, 1))
    report = calibrate([run]).runs[0]
    steps = run.settled()
    assert steps is not None
    assert (report.launch, report.used, report.num_steps) == (1, True, 30 - WARM_UP_STEPS)
    assert report.measured_s == step_time_s(steps) == pytest.approx(true_step_s(run.plan), rel=0.06)
    assert report.calibrated_s == pytest.approx(report.measured_s, rel=0.05)
    assert report.white_box_s < 0.85 * report.measured_s


def test_order_and_missing_ranks_change_little() -> None:
    ran = [measured_run(plan_of(2, 1, 1), 1), measured_run(plan_of(2, 2, 1), 2, seed=1)]
    both = calibrate(ran)
    assert calibrate(ran[::-1]) == both
    assert [report.launch for report in both.runs] == [2, 1]
    silent = calibrate([ran[0], without_ranks(ran[1], 1, 3)]).calibration
    assert silent is not None
    assert both.calibration is not None
    assert silent.gpus["cpu"].compute_s == pytest.approx(both.calibration.gpus["cpu"].compute_s, rel=0.05)


def test_launches_without_tensor_parallelism_and_replicas_have_the_say() -> None:
    # A stated bandwidth 100 times too low: the formula's communication swallows the pass.
    slow = replace(CLUSTER.gpu_types[0], intra_node_bandwidth_bytes_per_s=4e7)
    cluster = replace(CLUSTER, gpu_types=(slow,))
    split = replace(measured_run(plan_of(1, 1, 4), 2), cluster=cluster)
    whole = replace(measured_run(plan_of(2, 1, 1), 1), cluster=cluster)
    alone = calibrate([split]).calibration
    both = calibrate([split, whole]).calibration
    assert alone is not None
    assert both is not None
    assert alone.gpus["cpu"].compute_s < 0.6 * TRUTH.gpus["cpu"].compute_s
    assert both.gpus["cpu"].compute_s == pytest.approx(TRUTH.gpus["cpu"].compute_s, rel=0.05)


def test_handling_of_gradients_counts_with_the_optimiser() -> None:
    run = measured_run(plan_of(2, 1, 1), noise=0.0)
    # Ranks of stage 1 wait 0.2 s more, for the gradients of the tied embeddings.
    handling = 0.05 + 0.2 * run.records.rank.astype(np.float64)
    found = calibrate([replace(run, records=replace(run.records, reduction_s=handling))]).calibration
    assert found is not None
    model = performance_model(MODEL, CLUSTER, found)
    assert model.iteration(run.plan).total_s == pytest.approx(true_step_s(run.plan) + 0.05)


def test_memory_counts_only_where_it_is_that_of_tensors() -> None:
    run = measured_run(plan_of(2, 1, 1))
    on_cuda = calibrate([replace(run, tensor_memory=True)]).calibration
    assert on_cuda is not None
    assert on_cuda.sizes is not None
    model = performance_model(MODEL, CLUSTER, on_cuda)
    assert max(part.total_bytes for part in model.memory(run.plan)) == pytest.approx(1e9, rel=0.3)


def test_launches_that_say_nothing_are_named() -> None:
    other = replace(MODEL, hidden_size=256)
    young = measured_run(plan_of(1, 1, 1), 3, num_steps=WARM_UP_STEPS + MIN_STEPS - 1, first_step=8)
    foreign = measured_run(plan_of(1, 1, 1, job=other), 2, job=other)
    reports = calibrate([young, foreign, measured_run(plan_of(1, 1, 1), 1)]).runs
    assert [(report.used, report.detail) for report in reports] == [
        (False, "has fewer than 3 steps of all ranks behind the first 3"),
        (False, "trains another model than the newest launch"),
        (True, ""),
    ]
    nothing = calibrate([young])
    assert nothing.calibration is None
    assert nothing.runs[0].measured_s is nothing.runs[0].calibrated_s is None


def test_a_restarted_launch_settles_anew() -> None:
    run = measured_run(plan_of(2, 1, 1), first_step=101)
    steps = run.settled()
    assert steps is not None
    assert steps.step[0] == 101 + WARM_UP_STEPS
    later = replace(run, first_step=1).settled()
    assert later is not None
    assert later.step[0] == 101


def test_batches_and_names_are_no_costs() -> None:
    assert same_costs(MODEL, replace(MODEL, global_batch=64, micro_batch=2, zero_stage=0, name="mine", head_size=64))
    assert not same_costs(MODEL, replace(MODEL, precision=Precision.BF16))
