"""Data-parallel launches as Sia sees them, and the gradient noise behind them."""

from dataclasses import replace

import numpy as np
import pytest

from models.performance.goodput.check import performance_issues
from models.performance.goodput.fit import fit_models
from models.performance.goodput.observed_goodput import goodput_observations, gradient_statistics
from models.performance.iteration.step_table import MeasuredRun, StepTable
from tests.models.performance.iteration.step_scenes import CLUSTER, MODEL, measured_run, plan_of, true_step_s
from topology.cluster import Tier


def test_observations_give_the_measured_steps_back() -> None:
    runs = [measured_run(plan_of(1, dp, 1, 4), dp, noise=0.0) for dp in (1, 2, 4)]
    found = goodput_observations(runs)
    assert found is not None
    assert not performance_issues(found, "", {"cpu"})
    assert (found.batch.initial, found.batch.maximum) == (32, 32)
    # Newest launch first: four replicas of one node, with 32 / 4 / 4 sequences each.
    assert [(o.num_replicas, o.num_nodes, o.local_batch) for o in found.observations] == [
        (4, 1, 2),
        (2, 1, 4),
        (1, 1, 8),
    ]
    for observation, dp in zip(found.observations, (4, 2, 1), strict=True):
        accumulated_s = 3 * (observation.step_time_s - observation.sync_time_s)
        assert accumulated_s + observation.step_time_s == pytest.approx(true_step_s(plan_of(1, dp, 1, 4)), rel=0.02)
        assert (observation.sync_time_s > 0) == (dp > 1)
    assert set(fit_models([found])[0].profiles) == {"cpu"}


def test_a_launch_across_a_slow_tier_is_observed_as_one() -> None:
    """n0 and n1 are in two racks; the core has a tenth of the bandwidth. Four replicas are all on n0."""
    nodes = tuple(replace(node, path=(node.id,)) for node in CLUSTER.nodes)
    racks = replace(CLUSTER, nodes=nodes, tiers=(Tier(name="rack"),), core_bandwidth_fraction=0.1)
    runs = [replace(measured_run(plan_of(1, dp, 1), dp), cluster=racks) for dp in (4, 8)]
    found = goodput_observations(runs)
    assert found is not None
    assert [(o.num_nodes, o.bandwidth_fraction) for o in found.observations] == [(2, 0.1), (1, 1.0)]


def test_noise_follows_the_formula() -> None:
    # |g_b|^2 = 3 over b = 16 sequences, |g_B|^2 = 2 over B = 32:
    # |G|^2 = (32 x 2 - 16 x 3) / 16 = 1, S = (3 - 2) / (1/16 - 1/32) = 32, S / B = 1.
    run = measured_run(plan_of(1, 2, 1))
    statistics = gradient_statistics(run, settled(run), 32)
    assert statistics is not None
    assert statistics.squared_norm == pytest.approx(1.0)
    assert statistics.variance == pytest.approx(1.0)


def test_micro_batches_of_one_replica_tell_the_noise() -> None:
    # |g_b|^2 = 3 over b = 8 sequences, |g_B|^2 = 2 over B = 32: |G|^2 = (64 - 24) / 24 = 5/3, S = 1 / (1/8 - 1/32).
    run = measured_run(plan_of(1, 1, 1, 4))
    steps = settled(run)
    told = replace(steps, small_square=0 * steps.small_square + 3.0, large_square=0 * steps.large_square + 2.0)
    statistics = gradient_statistics(run, told, 32)
    assert statistics is not None
    assert statistics.squared_norm == pytest.approx(5 / 3)
    assert statistics.variance == pytest.approx(32 / 3 / 32)
    # The same norm, computed in two ways: nobody has measured between them.
    assert gradient_statistics(run, replace(told, small_square=told.large_square * 1.0001), 32) is None


def test_noise_is_estimated_without_bias() -> None:
    # Gradients of one sequence: G = (1, 0, ..., 0) with 40 dimensions of variance 0.5, so |G|^2 = 1 and S = 20.
    random, run = np.random.default_rng(7), measured_run(plan_of(1, 4, 1), num_steps=3000)
    steps = settled(run)
    halves = np.zeros((len(steps.step), 4, 40))
    halves[..., 0] = 1.0
    halves += random.normal(scale=np.sqrt(0.5 / 8), size=halves.shape)
    small = np.square(halves).sum(axis=2).mean(axis=1)
    large = np.square(halves.mean(axis=1)).sum(axis=1)
    known = replace(steps, small_square=small[:, None], large_square=large[:, None])
    statistics = gradient_statistics(run, known, 32)
    assert statistics is not None
    assert statistics.squared_norm == pytest.approx(1.0, rel=0.05)
    assert statistics.variance == pytest.approx(20 / 32, rel=0.05)


def test_estimates_below_zero_are_zero() -> None:
    run = measured_run(plan_of(1, 2, 1))
    steps = settled(run)
    signal = gradient_statistics(run, replace(steps, small_square=steps.large_square), 32)
    noise = gradient_statistics(run, replace(steps, large_square=steps.small_square / 8), 32)
    nothing = 0 * steps.small_square
    assert signal is not None
    assert signal.variance == 0.0
    assert signal.squared_norm == pytest.approx(2.0)
    assert noise is not None
    assert noise.squared_norm == 0.0
    assert gradient_statistics(run, replace(steps, small_square=nothing, large_square=nothing), 32) is None


@pytest.mark.parametrize("degrees", [(2, 1, 1), (1, 1, 2), (1, 1, 1)])
def test_without_replicas_nothing_is_known(degrees: tuple[int, int, int]) -> None:
    assert goodput_observations([measured_run(plan_of(*degrees))]) is None
    assert goodput_observations([]) is None


def test_other_models_are_left_out() -> None:
    other = replace(MODEL, hidden_size=256)
    runs = [measured_run(plan_of(1, 2, 1, job=other), 1, job=other), measured_run(plan_of(1, 2, 1), 2)]
    found = goodput_observations(runs)
    assert found is not None
    assert len(found.observations) == 1


def settled(run: MeasuredRun) -> StepTable:
    steps = run.settled()
    assert steps is not None
    return steps
