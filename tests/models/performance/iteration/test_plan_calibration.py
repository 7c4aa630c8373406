"""Factors from iteration times of plans: a truth is found again, one point moves the level, intervals cover."""

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.catalogue import find_model
from models.parallelism.request import Degrees
from models.parallelism.uncertainty import gains, measured_time
from models.performance.iteration.adjustment import NAMES, Adjustment, deviations, is_covariance, told
from models.performance.iteration.plan_calibration import MeasuredTime, Prediction, calibrate_plans
from models.transformer import Transformer
from stowplan.errors import InputError
from tests.growth import work
from topology.gpu_catalogue import find_product, gpu_type_of

A100 = gpu_type_of(find_product("a100-80gb"), "bf16")
DEGREES = ((1, 16, 1, 4), (1, 8, 2, 8), (2, 8, 1, 8), (2, 4, 2, 16), (4, 2, 2, 32), (4, 4, 1, 16), (2, 1, 8, 64))
SLOW = Adjustment(computation=1.2, memory=0.9, link=1.3, network=1.2)


@cache
def model() -> Transformer:
    found = find_model("llama2-7b", global_batch=64)
    assert isinstance(found, Transformer)
    return found


@cache
def unmeasured(index: int) -> MeasuredTime:
    pp, dp, tp, count = DEGREES[index]
    degrees = Degrees(pp=pp, dp=dp, tp=tp, num_micro_batches=count)
    return measured_time(model(), A100, 8, degrees, 1.0)


def shown(index: int, truth: Adjustment = SLOW, factor: float = 1.0, *, stages: bool = False) -> MeasuredTime:
    """What the plan takes where these factors hold, times `factor`."""
    plan = unmeasured(index)
    found = plan.model_of(truth).iteration(plan.plan)
    times = tuple(stage.forward_s + stage.backward_s for stage in found.stages)
    return replace(plan, iteration_s=factor * found.total_s, stage_s=times if stages else None)


def test_nothing_measured_changes_nothing() -> None:
    assert calibrate_plans([]) == Adjustment()


def test_a_truth_is_found_again_where_plans_are_sure_to_show_it() -> None:
    sure = Adjustment(residual=1e-3)
    found = calibrate_plans([shown(k, stages=True) for k in range(len(DEGREES))], sure)
    assert found.num_points == len(DEGREES)
    for k in range(len(DEGREES)):
        plan = unmeasured(k)
        assert plan.model_of(found).iteration(plan.plan).total_s == pytest.approx(shown(k).iteration_s, rel=0.01)
    assert found.computation == pytest.approx(SLOW.computation, rel=0.05)


def test_one_point_mostly_moves_the_level() -> None:
    found = calibrate_plans([shown(3, Adjustment(), 1.2)])
    moved = dict(zip(NAMES, np.abs(found.logs).tolist(), strict=True))
    assert max(moved, key=lambda name: moved[name]) == "computation"
    # Nor all the way: the plan may be off by itself.
    plan = unmeasured(3)
    ratio = plan.model_of(found).iteration(plan.plan).total_s / shown(3, Adjustment()).iteration_s
    assert 1.08 < ratio < 1.18
    other = unmeasured(0)
    before = other.model_of(Adjustment()).iteration(other.plan).total_s
    assert other.model_of(found).iteration(other.plan).total_s > 1.05 * before


def test_a_plan_measured_again_counts_once() -> None:
    once = calibrate_plans([shown(3)])
    thrice = calibrate_plans([shown(3, factor=factor) for factor in (0.98, 1.0, 1 / 0.98)])
    assert thrice.num_points == 1
    assert thrice.logs == pytest.approx(once.logs)
    assert thrice.spread() == pytest.approx(once.spread())


def test_the_same_plan_of_another_job_is_another_point() -> None:
    plan = shown(3)
    degrees = Degrees(pp=2, dp=4, tp=2, num_micro_batches=16)
    longer = measured_time(replace(model(), sequence_length=2 * model().sequence_length), A100, 8, degrees, 1.0)
    longer = replace(longer, iteration_s=longer.model_of(SLOW).iteration(longer.plan).total_s)
    assert longer.plan == plan.plan
    assert calibrate_plans([plan, longer]).num_points == 2


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(0, len(DEGREES) - 1), min_size=1, max_size=5, unique=True),
    st.lists(st.floats(0.8, 1.3), min_size=5, max_size=5),
)
def test_more_points_never_widen_an_interval_much(indices: list[int], factors: list[float]) -> None:
    points = [shown(k, factor=factor) for k, factor in zip(indices, factors, strict=False)]
    plan = unmeasured(6)
    widths = []
    for count in range(len(points) + 1):
        found = calibrate_plans(points[:count])
        assert is_covariance(found.spread().tolist())
        interval = Prediction(plan.model_of, found).interval(plan.plan)
        assert interval.low_s < interval.iteration_s < interval.high_s
        widths.append(math.log(interval.high_s / interval.low_s))
    assert all(after <= 1.05 * before for before, after in pairwise(widths))


def test_intervals_cover_what_they_say() -> None:
    rng, covered = np.random.default_rng(1), []
    shipped = deviations()
    spread = np.array([shipped.factors[name] for name in NAMES])
    for _ in range(40):
        truth = Adjustment().at(rng.normal(0.0, spread))
        noise = np.exp(rng.normal(0.0, shipped.residual, len(DEGREES)))
        found = calibrate_plans([shown(k, truth, noise[k]) for k in (0, 3)])
        for k in (1, 2, 4, 5, 6):
            plan, seconds = unmeasured(k), shown(k, truth, noise[k]).iteration_s
            interval = Prediction(plan.model_of, found).interval(plan.plan)
            covered.append(interval.low_s <= seconds <= interval.high_s)
    assert 0.85 <= np.mean(covered) <= 0.97


@pytest.mark.parametrize(
    ("wrong", "code", "field"),
    [
        ({"iteration_s": -1.0}, "out_of_range", "iteration_s"),
        ({"iteration_s": math.inf}, "out_of_range", "iteration_s"),
        ({"iteration_s": 4000.0 * 60}, "other_model", "iteration_s"),
        ({"stage_s": (1.0,)}, "other_plan", "stage_s"),
        ({"stage_s": (1.0, 0.0)}, "out_of_range", "stage_s"),
    ],
)
def test_times_that_are_none(wrong: dict[str, object], code: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        calibrate_plans([shown(0), replace(shown(3), **wrong)])  # type: ignore[arg-type]
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [(code, f"/1/{field}")]


def test_one_factor_that_was_measured_by_itself() -> None:
    found = told(Adjustment(), "network", 2.0, 1e-6)
    assert found.network == pytest.approx(2.0)
    assert found.computation == 1.0
    assert found.spread()[4, 4] < 1e-9


def test_gains_by_hand() -> None:
    # Of two plans alike, measuring either shows the difference; one that is surely slower is not worth it.
    unlike = gains(np.array([0.0, 0.0, 1.0]), np.diag([0.01, 0.01, 1e-12]), measurement=0.0)
    # E[max(0, N(0, 0.1^2))] = 0.1 / sqrt(2 pi)
    assert unlike[:2] == pytest.approx([0.1 / math.sqrt(2 * math.pi)] * 2, rel=0.02)
    assert unlike[2] == pytest.approx(0.0, abs=1e-9)
    # What moves both alike does not help to choose.
    assert gains(np.zeros(2), np.full((2, 2), 0.01), measurement=0.0) == pytest.approx([0.0, 0.0], abs=1e-9)


def test_the_cost_grows_with_the_number_of_plans() -> None:
    few, many = ([shown(k) for k in range(count)] for count in (3, 6))
    calibrate_plans(many)
    assert work(lambda: calibrate_plans(many)) < 2.3 * work(lambda: calibrate_plans(few))
