"""A Ray cluster that tests of pools share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ray_cluster import RayTestCluster


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator["RayTestCluster"]:
    # Ray takes a second to load, and most tests here do without.
    from tests.ray_cluster import ray_test_cluster

    with ray_test_cluster(2, 2) as cluster:
        yield cluster
