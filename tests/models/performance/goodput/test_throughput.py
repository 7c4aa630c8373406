import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.performance.goodput.efficiency import efficiency, signal_share
from models.performance.goodput.spec import ThroughputParameters
from models.performance.goodput.throughput import (
    Coefficients,
    gradient_time_s,
    iteration_time_s,
    overlapped_time_s,
    sync_time_s,
    throughput,
)

PARAMETERS = ThroughputParameters(alpha_c=1.0, beta_c=0.5, alpha_r=1.0, beta_r=0.5, alpha_n=3.0, beta_n=1.0, gamma=2.0)


def test_gradient_time() -> None:
    assert gradient_time_s(1.0, 0.5, np.array([2, 6])).tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("num_nodes", "num_replicas", "expected_s"),
    [(1, 1, 0.0), (1, 2, 1.0), (1, 4, 2.0), (2, 2, 3.0), (2, 4, 5.0), (4, 1, 0.0)],
)
def test_sync_time(num_nodes: int, num_replicas: int, expected_s: float) -> None:
    assert sync_time_s(PARAMETERS, num_nodes, num_replicas) == expected_s


def test_iteration_by_hand() -> None:
    """T_grad = 1 + 0.5*2 = 2 and T_sync = 1 + 0.5*2 = 2, so the last step takes sqrt(8) and one more takes 2."""
    assert iteration_time_s(PARAMETERS, 1, 4, 2, 1) == pytest.approx(2 + math.sqrt(8), rel=1e-15)
    assert throughput(PARAMETERS, 1, 4, 2, 1) == pytest.approx(16 / (2 + math.sqrt(8)), rel=1e-15)


def test_across_nodes_by_hand() -> None:
    """T_grad = 4 (m = 6), T_sync = 3 on two nodes: the 3-4-5 triangle."""
    assert iteration_time_s(PARAMETERS, 2, 2, 6, 0) == pytest.approx(5.0, rel=1e-15)
    assert throughput(PARAMETERS, 2, 2, 6, 0) == pytest.approx(12 / 5, rel=1e-15)


def test_a_share_of_the_bandwidth_makes_synchronisation_across_nodes_longer() -> None:
    """T_sync = 3 at all of it. At 3/4: T_grad = 3 (m = 4), T_sync = 4, the 3-4-5 triangle; inside a node it stays."""
    assert sync_time_s(PARAMETERS, 2, 2, 0.1) == pytest.approx(30.0, rel=1e-15)
    assert iteration_time_s(PARAMETERS, 2, 2, 4, 0, 0.75) == pytest.approx(5.0, rel=1e-15)
    assert sync_time_s(PARAMETERS, 1, 4, 0.1) == 2.0
    assert sync_time_s(PARAMETERS, 2, 4, 1.0) == sync_time_s(PARAMETERS, 2, 4)


def test_one_replica_never_synchronises() -> None:
    assert iteration_time_s(PARAMETERS, 1, 1, 2, 3) == 8.0


def test_arrays_equal_scalars() -> None:
    fields = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n", "gamma")
    two = Coefficients(**{name: np.array([[getattr(PARAMETERS, name)], [1.5]]) for name in fields})
    other = ThroughputParameters(**dict.fromkeys(fields, 1.5))
    nodes, replicas = np.array([1, 1, 2]), np.array([1, 4, 8])
    found = throughput(two, nodes, replicas, 3, 2)
    expected = [
        [float(throughput(p, n, r, 3, 2)) for n, r in zip(nodes.tolist(), replicas.tolist(), strict=True)]
        for p in (PARAMETERS, other)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


times = st.floats(1e-6, 1e4)


@given(gradient_s=times, sync_s=st.one_of(st.just(0.0), times), gamma=st.floats(1, 10))
@settings(max_examples=100, deadline=None)
def test_overlap_lies_between_the_longer_time_and_the_sum(gradient_s: float, sync_s: float, gamma: float) -> None:
    found = float(overlapped_time_s(gradient_s, sync_s, gamma))
    assert max(gradient_s, sync_s) <= found <= (gradient_s + sync_s) * (1 + 1e-12)
    assert found == pytest.approx((gradient_s**gamma + sync_s**gamma) ** (1 / gamma), rel=1e-12)


def test_efficiency_by_hand() -> None:
    """sqr = 1, var = 3, scale = 2: (3 + 1) / (3/2 + 1) / 2 = 0.8."""
    assert efficiency(signal_share(1.0, 3.0), 2.0) == pytest.approx(0.8, rel=1e-15)


positive = st.floats(1e-6, 1e6)


@given(squared_norm=positive, variance=positive, scale=st.floats(1, 1e4), growth=st.floats(1.01, 100))
@settings(max_examples=100, deadline=None)
def test_efficiency_is_one_at_the_initial_batch_and_falls(
    squared_norm: float, variance: float, scale: float, growth: float
) -> None:
    share = signal_share(squared_norm, variance)
    found = float(efficiency(share, scale))
    assert efficiency(share, 1.0) == 1.0
    assert efficiency(share, scale * growth) < found <= 1.0
    assert found == pytest.approx((variance + squared_norm) / (variance / scale + squared_norm) / scale, rel=1e-9)
    # Progress per step never falls with the batch, and never grows faster than the batch.
    assert found * scale >= 1 - 1e-12


def test_pure_noise_loses_nothing_and_pure_signal_everything() -> None:
    assert efficiency(signal_share(0.0, 2.0), 8.0) == 1.0
    assert efficiency(signal_share(2.0, 0.0), 8.0) == 1 / 8
