"""Ray clusters of several nodes on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from solver.ray_engine import RayEngine


class RayTestCluster:
    """A cluster whose first node is ours and runs nothing."""

    def __init__(self, *cpus: int) -> None:
        # Without what scales a cluster, and what brings output of tasks to drivers: each takes a second to load.
        head = {"num_cpus": 0, "include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        for count in cpus:
            self.add_node(count)
        self.address: str = self._cluster.address

    @cached_property
    def engine(self) -> RayEngine:
        """An engine, which this process has one of at a time."""
        return RayEngine(self.address)

    def add_node(self, cpus: int) -> None:
        """Start one more node."""
        self._cluster.add_node(num_cpus=cpus, include_log_monitor=False)

    def node_of(self, pid: int) -> Any:
        """The node that a process of this machine runs on."""
        above = _ancestors(pid)
        for node in self._cluster.list_all_nodes():
            if node.all_processes["raylet"][0].process.pid in above:
                return node
        raise AssertionError(f"process {pid} runs on no node of the cluster")

    def kill_node_of(self, pid: int) -> None:
        """Kill the node that a process runs on, without a word."""
        self._cluster.remove_node(self.node_of(pid), allow_graceful=False)

    def kill_node_with_a_worker(self) -> None:
        """Kill the node of the only worker."""
        raylets = {node.all_processes["raylet"][0].process.pid for node in self._cluster.list_all_nodes()}
        (pid,) = (pid for pid in _worker_processes() if raylets & _ancestors(pid))
        self.kill_node_of(pid)

    def close(self) -> None:
        """End all of it."""
        ray.shutdown()
        self._cluster.shutdown()


def _worker_processes() -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and b"from solver.worker import main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def _ancestors(pid: int) -> set[int]:
    found = set()
    while pid > 1:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return found


@contextmanager
def ray_test_cluster(*cpus: int) -> Iterator[RayTestCluster]:
    """Run a cluster; beside ours it has nodes with so many CPUs each."""
    with pytest.MonkeyPatch.context() as patched:
        # By which nodes and drivers know each other; without it Ray writes one to the home of whoever tests.
        patched.setenv("RAY_AUTH_TOKEN", "of-a-test-on-one-machine-0123456789")
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = RayTestCluster(*cpus)
        try:
            yield cluster
        finally:
            cluster.close()
