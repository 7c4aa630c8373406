"""A Ray cluster of two nodes on this machine."""

from collections.abc import Iterator

import pytest
from ray.cluster_utils import Cluster

from solver.ray_engine import RayEngine


class RayTestCluster:
    """The cluster, and an engine that is connected to it. A node more can be had, and be killed."""

    def __init__(self) -> None:
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
        self._cluster.add_node(num_cpus=4)
        self.address: str = self._cluster.address
        self.engine = RayEngine(self.address)

    def close(self) -> None:
        """End all of it."""
        self.engine.close()
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayTestCluster]:
    with pytest.MonkeyPatch.context() as patched:
        # What nodes and drivers of the cluster know each other by; without it Ray writes one to the home of whoever
        # tests.
        patched.setenv("RAY_AUTH_TOKEN", "of-a-test-on-one-machine-0123456789")
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = RayTestCluster()
        try:
            yield cluster
        finally:
            cluster.close()
