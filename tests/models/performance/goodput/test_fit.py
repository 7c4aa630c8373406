import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.performance.goodput import fit
from models.performance.goodput.fit import fit_models, fit_parameters
from models.performance.goodput.spec import (
    BatchRange,
    GoodputObservations,
    GradientStatistics,
    Observation,
    ThroughputParameters,
)
from stowplan.errors import InputError

from .reference import iteration_s

NAMES = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n", "gamma")
FLOOR_S = 1e-8
TRUE = ThroughputParameters(alpha_c=0.1, beta_c=0.01, alpha_r=0.15, beta_r=0.01, alpha_n=0.5, beta_n=0.02, gamma=1.6)
SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (2, 16), (4, 32))
BATCHES = (4, 8, 16, 32, 64)


def measured(
    parameters: ThroughputParameters,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    batches: Sequence[int] = BATCHES,
    noise: float = 0.0,
    gpu_type: str = "A",
) -> tuple[Observation, ...]:
    """What a job with these parameters would report, each time with log-normal noise."""
    rng = np.random.default_rng(0)
    found = []
    for nodes, replicas in shapes:
        for local_batch in batches:
            factor = math.exp(noise * rng.standard_normal())
            step_s = iteration_s(parameters, nodes, replicas, local_batch, 0)
            gradient_s = parameters.alpha_c + parameters.beta_c * local_batch
            found.append(
                Observation(
                    gpu_type=gpu_type,
                    num_nodes=nodes,
                    num_replicas=replicas,
                    local_batch=local_batch,
                    step_time_s=step_s * factor,
                    sync_time_s=max(step_s - gradient_s, 0.0) * factor,
                )
            )
    return tuple(found)


def objective(p: ThroughputParameters, observations: Sequence[Observation]) -> float:
    """The objective of the fit as the module documents it."""
    gradient_s = [p.alpha_c + p.beta_c * o.local_batch for o in observations]
    steps = [
        math.log(iteration_s(p, o.num_nodes, o.num_replicas, o.local_batch, 0) / o.step_time_s) for o in observations
    ]
    gradients = [
        math.log(time_s / (o.step_time_s - o.sync_time_s)) for time_s, o in zip(gradient_s, observations, strict=True)
    ]
    return (
        float(np.sqrt(np.mean(np.square(steps))) + np.sqrt(np.mean(np.square(gradients))))
        + 1e-3 * (p.gamma - 1) ** 2
        + 1e-2 * ((p.beta_n / p.alpha_n) ** 2 + (p.beta_r / p.alpha_r) ** 2)
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize(
    "true",
    [TRUE, replace(TRUE, gamma=1.0), replace(TRUE, beta_r=1e-6, beta_n=1e-6), replace(TRUE, alpha_c=1e-5, gamma=2.4)],
)
def test_recovers_known_parameters(true: ThroughputParameters, scale: float) -> None:
    true = replace(true, **{name: scale * getattr(true, name) for name in NAMES if name != "gamma"})
    found = fit_parameters(measured(true))
    for nodes, replicas in (*SHAPES, (8, 64)):
        for local_batch in (4, 64, 256):
            expected_s = iteration_s(true, nodes, replicas, local_batch, 0)
            assert iteration_s(found, nodes, replicas, local_batch, 0) == pytest.approx(expected_s, rel=0.02)
    for name in ("beta_c", "alpha_r", "alpha_n", "gamma"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.1)


def behind_a_slow_tier(fraction: float) -> tuple[Observation, ...]:
    """Steps of a job whose nodes had such a share of the bandwidth between them."""
    slower = replace(TRUE, alpha_n=TRUE.alpha_n / fraction, beta_n=TRUE.beta_n / fraction)
    return tuple(replace(o, bandwidth_fraction=fraction if o.num_nodes > 1 else 1.0) for o in measured(slower))


@pytest.mark.parametrize("fraction", [0.5, 0.1])
def test_steps_across_a_slow_tier_are_read_as_such(fraction: float) -> None:
    """They tell the same of the job as steps under one switch; taken for such steps they would not."""
    seen = behind_a_slow_tier(fraction)
    # Half of them under one switch: what is fitted are the parameters of both.
    found = [fit_parameters(seen), fit_parameters((*seen, *measured(TRUE, shapes=[(2, 8), (4, 16)])))]
    for parameters in found:
        assert parameters.alpha_n == pytest.approx(TRUE.alpha_n, rel=0.1)
        expected_s = iteration_s(TRUE, 4, 32, 16, 0)
        assert iteration_s(parameters, 4, 32, 16, 0) == pytest.approx(expected_s, rel=0.02)
    misread = fit_parameters([replace(o, bandwidth_fraction=1.0) for o in seen])
    assert misread.alpha_n > 0.9 * TRUE.alpha_n / fraction


def test_the_slope_of_the_objective_counts_the_share() -> None:
    """Against differences of the objective."""
    data = fit._Measured.of(behind_a_slow_tier(0.2))
    theta = np.array([*np.log([0.09, 0.012, 0.2, 0.02, 0.4, 0.03]), 1.8])
    value, slope = fit._objective(theta, data)
    for k in range(7):
        step = np.zeros(7)
        step[k] = 1e-6
        assert (fit._objective(theta + step, data)[0] - value) / 1e-6 == pytest.approx(slope[k], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.3])
def test_no_nearby_parameters_are_better(noise: float) -> None:
    observations = measured(TRUE, noise=noise)
    found = fit_parameters(observations)
    value = objective(found, observations)
    assert value <= objective(TRUE, observations) + 1e-4
    rng = np.random.default_rng(1)
    for _ in range(300):
        factors = np.exp(0.02 * rng.standard_normal(7))
        other = replace(found, **{name: getattr(found, name) * f for name, f in zip(NAMES, factors, strict=True)})
        assert value <= objective(replace(other, gamma=min(max(other.gamma, 1.0), 10.0)), observations) + 1e-4


def test_the_order_of_observations_means_nothing() -> None:
    observations = measured(TRUE, noise=0.1)
    assert fit_parameters(observations) == fit_parameters(observations[::-1])


def test_one_point_splits_the_gradient_time_in_half() -> None:
    found = fit_parameters(measured(TRUE, shapes=[(1, 1)], batches=[8]))
    gradient_s = 0.1 + 0.01 * 8
    assert found.alpha_c == pytest.approx(gradient_s / 2, rel=1e-9)
    assert found.beta_c == pytest.approx(gradient_s / 2 / 8, rel=1e-3)
    assert found.alpha_r == pytest.approx(FLOOR_S)


def test_equal_points_are_one_point() -> None:
    observation = measured(TRUE, shapes=[(1, 2)], batches=[8])[0]
    for observations in ([observation], [observation] * 5):
        found = fit_parameters(observations)
        assert iteration_s(found, 1, 2, 8, 0) == pytest.approx(observation.step_time_s, rel=1e-3)
        assert found.alpha_c == pytest.approx((observation.step_time_s - observation.sync_time_s) / 2)


def test_one_replica_says_nothing_about_synchronisation() -> None:
    found = fit_parameters(measured(TRUE, shapes=[(1, 1)]))
    assert found.alpha_c == pytest.approx(0.1, rel=1e-3)
    assert found.beta_c == pytest.approx(0.01, rel=1e-3)
    assert found.gamma == pytest.approx(1.0, abs=1e-3)
    assert (found.alpha_r, found.beta_r) == pytest.approx((FLOOR_S, FLOOR_S))
    assert (found.alpha_n, found.beta_n) == pytest.approx((1.1 * FLOOR_S, 1.1 * FLOOR_S))


def test_unseen_nodes_cost_a_tenth_more() -> None:
    found = fit_parameters(measured(TRUE, shapes=[(1, 1), (1, 2), (1, 8)]))
    assert found.alpha_r == pytest.approx(0.15, rel=0.05)
    assert found.alpha_n == pytest.approx(1.1 * found.alpha_r)
    assert found.beta_n == pytest.approx(1.1 * found.beta_r)


def test_two_replicas_say_nothing_about_more() -> None:
    found = fit_parameters(measured(TRUE, shapes=[(1, 1), (1, 2)]))
    assert found.beta_r == pytest.approx(FLOOR_S)
    mixed = fit_parameters(measured(TRUE, shapes=[(1, 1), (1, 2), (1, 8), (2, 2)]))
    assert mixed.alpha_n == pytest.approx(0.5, rel=0.05)
    assert mixed.beta_n == pytest.approx(1.1 * mixed.beta_r)


def test_synchronisation_that_takes_no_time() -> None:
    free = [replace(o, step_time_s=0.1 + 0.01 * o.local_batch, sync_time_s=0.0) for o in measured(TRUE)]
    found = fit_parameters(free)
    for o in free:
        assert iteration_s(found, o.num_nodes, o.num_replicas, o.local_batch, 0) == pytest.approx(
            o.step_time_s, rel=1e-2
        )


def test_noise_is_averaged() -> None:
    found = fit_parameters(measured(TRUE, noise=0.05))
    for nodes, replicas in SHAPES:
        for local_batch in BATCHES:
            expected_s = iteration_s(TRUE, nodes, replicas, local_batch, 0)
            assert iteration_s(found, nodes, replicas, local_batch, 0) == pytest.approx(expected_s, rel=0.1)


@pytest.mark.parametrize("change", [{"step_time_s": math.nan}, {"sync_time_s": -1.0}, {"sync_time_s": 1e9}])
def test_times_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    first, *others = measured(TRUE)
    with pytest.raises(InputError, match="0 <= sync_time_s < step_time_s"):
        fit_parameters([replace(first, **change), *others])


def test_no_observations_are_refused() -> None:
    with pytest.raises(InputError, match="at least one observation"):
        fit_parameters([])


def observed(observations: tuple[Observation, ...]) -> GoodputObservations:
    return GoodputObservations(
        batch=BatchRange(initial=8, maximum=64),
        gradient=GradientStatistics(squared_norm=1.0, variance=2.0),
        observations=observations,
        max_local_batch={"B": 100},
        gpus_per_replica={"A": 4},
    )


def test_a_model_has_the_types_that_were_observed() -> None:
    faster = replace(TRUE, alpha_c=0.05)
    model = fit_models([observed(measured(TRUE) + measured(faster, shapes=[(1, 1)], gpu_type="B"))])[0]
    assert list(model.profiles) == ["A", "B"]
    a, b = model.profiles["A"], model.profiles["B"]
    assert (a.single_gpu_only, a.max_local_batch, a.gpus_per_replica) == (False, 64, 4)
    assert (b.single_gpu_only, b.max_local_batch, b.gpus_per_replica) == (True, 100, 1)
    assert a.parameters == fit_parameters(measured(TRUE))
    assert (model.batch.maximum, model.gradient.variance) == (64, 2.0)


def test_equal_observations_are_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []

    def counting(observations: Sequence[Observation]) -> ThroughputParameters:
        fitted.append(len(observations))
        return TRUE

    monkeypatch.setattr(fit, "fit_parameters", counting)
    other = measured(TRUE, batches=[4])
    models = fit_models([observed(measured(TRUE)), observed(other), observed(measured(TRUE))])
    assert fitted == [len(measured(TRUE)), len(other)]
    assert models[0] == models[2]
