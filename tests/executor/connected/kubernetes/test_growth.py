"""What a large cluster costs."""

import time

import pytest

from executor.connected.kubernetes.observing import Objects, observe
from executor.connected.kubernetes.terms import Terms
from models.cluster_state import StateOptions
from tests.executor.connected.kubernetes.scenes import connected, gang, nodes, served
from tests.growth import work
from tests.models.cluster_state.kubernetes_documents import pod

# CPU seconds on a loaded machine, where they count for more.
MOST_S = 10.0


def objects(num: int) -> Objects:
    """A quarter of the nodes is in use, and as many pods wait in gangs of four."""
    running = [pod(f"run-{k}", f"run-{k // 2}", node=f"n{k}") for k in range(num // 4)]
    waiting = [one for k in range(num // 16) for one in gang(f"train{k}", 4)]
    for k, one in enumerate([*running, *waiting]):
        one["metadata"]["uid"] = str(k)
    return Objects(nodes=nodes(num), pods=[*running, *waiting])


def test_twice_the_cluster_is_twice_the_work() -> None:
    small, large = objects(128), objects(256)
    options = StateOptions(taken_at_s=1.0)
    first, second = (work(lambda found=found: observe(found, Terms(), options)) for found in (small, large))  # type: ignore[misc]
    assert second < 2.3 * first


@pytest.mark.slow
def test_ten_thousand_nodes_are_listed_and_read_in_seconds() -> None:
    found = objects(10_000)
    with served(("nodes", found.nodes), ("pods", found.pods)) as server:
        # Of this thread alone: the server has others.
        begun_s = time.thread_time()
        with connected(server) as connection:
            passed_s = time.thread_time() - begun_s
            assert len(connection.backend.state.cluster.nodes) == 10_000
            assert len(connection.backend.state.gangs) == 625
    assert passed_s < MOST_S
