import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.errors import InputError
from tests.growth import work
from workloads.generators.failures import FailureParameters, node_failures

_HOUR_S = 3600.0
_PARAMETERS = FailureParameters(mtbf_s=10 * _HOUR_S, repair_s=2 * _HOUR_S)
_NODES = tuple(f"n{k}" for k in range(20))


@given(st.integers(0, 2**32), st.booleans())
def test_a_node_is_up_between_its_failures(seed: int, exponential: bool) -> None:
    parameters = FailureParameters(mtbf_s=3.0, repair_s=1.0, exponential_repair=exponential)
    failures = node_failures(("a", "b"), 50.0, parameters, seed)
    assert list(failures) == sorted(failures, key=lambda failure: (failure.down_s, failure.node))
    for node in ("a", "b"):
        own = [failure for failure in failures if failure.node == node]
        assert all(0 < failure.down_s < 50.0 and failure.down_s < failure.up_s for failure in own)
        assert all(first.up_s < second.down_s for first, second in itertools.pairwise(own))
        assert exponential or all(failure.up_s - failure.down_s == pytest.approx(1.0) for failure in own)


@pytest.mark.parametrize("exponential", [False, True])
def test_times_have_the_stated_means(exponential: bool) -> None:
    parameters = FailureParameters(mtbf_s=10.0, repair_s=2.0, exponential_repair=exponential)
    failures = node_failures(_NODES, 1200.0, parameters, 7)
    # 20 nodes x 1,200 s / (10 + 2) s; five standard deviations are about 190.
    assert len(failures) == pytest.approx(2000, abs=190)
    assert np.mean([failure.up_s - failure.down_s for failure in failures]) == pytest.approx(2.0, abs=0.25)
    by_node = {node: [failure for failure in failures if failure.node == node] for node in _NODES}
    up = [later.down_s - earlier.up_s for own in by_node.values() for earlier, later in itertools.pairwise(own)]
    assert np.mean(up) == pytest.approx(10.0, abs=1.2)
    # An exponential time is as wide as its mean.
    assert np.std(up) == pytest.approx(10.0, abs=1.6)


def test_more_nodes_and_more_time_leave_the_failures_that_there_are() -> None:
    some = node_failures(_NODES[:5], 1e5, _PARAMETERS, 1)
    more = node_failures((*_NODES, "other"), 2e5, _PARAMETERS, 1)
    assert [failure for failure in more if failure.node in _NODES[:5] and failure.down_s < 1e5] == list(some)
    assert node_failures(_NODES[:5], 1e5, _PARAMETERS, 1) == some
    assert node_failures(_NODES[:5], 1e5, _PARAMETERS, 2) != some


def test_what_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="named twice"):
        node_failures(("a", "a"), 1.0, _PARAMETERS, 1)
    with pytest.raises(InputError, match="horizon"):
        node_failures(("a",), 0.0, _PARAMETERS, 1)
    with pytest.raises(InputError, match="mtbf_s is 0"):
        FailureParameters(mtbf_s=0, repair_s=1)
    with pytest.raises(InputError, match="repair_s is inf"):
        FailureParameters(mtbf_s=1, repair_s=float("inf"))


def test_making_grows_with_the_nodes() -> None:
    def cost(num_nodes: int) -> int:
        nodes = [f"n{k}" for k in range(num_nodes)]
        return work(lambda: node_failures(nodes, 1e6, _PARAMETERS, 1))

    assert cost(20) <= 2.3 * cost(10)
