"""What only a cluster can do: lose a node, have no CPU free, have something else installed."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.options import SolveOptions
from solver.pool import WorkerPool
from solver.ray_engine import RayEngine
from solver.ray_host import Ended, Installation, WorkerHost
from stowplan.errors import InputError, WorkerError
from tests.ray_cluster import RayTestCluster
from tests.solver import solving_tasks, tasks
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def name(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{function.__name__}"


def pids_of(pool: WorkerPool, count: int) -> set[int]:
    """Processes of all workers."""
    seen: set[int] = set()

    def look() -> set[int]:
        tickets = [pool.submit(name(tasks.process_facts), None, 10) for _ in range(count)]
        seen.update(ticket.result(30)["pid"] for ticket in tickets)
        return seen

    return eventually(look, lambda pids: len(pids) == count)


@pytest.fixture
def pool(ray_cluster: RayTestCluster) -> Iterator[WorkerPool]:
    with WorkerPool(1, 3, preload=("tests.solver.tasks",), attempts=2, engine=ray_cluster.engine) as running:
        yield running


def test_a_task_whose_node_is_killed_is_begun_again_on_another(
    pool: WorkerPool, ray_cluster: RayTestCluster, tmp_path: Path
) -> None:
    (pid,) = pids_of(pool, 1)
    ran = tmp_path / "ran"
    begun: list[int] = []
    ticket = pool.submit(name(tasks.hang_first), str(ran), 120, on_start=lambda: begun.append(1))
    eventually(ran.exists)
    ray_cluster.kill_node_of(pid)
    assert ticket.result(60) == "second"
    assert len(begun) == 2
    # Whatever ran there is gone with it.
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    ray_cluster.add_node(2)


def test_what_was_found_on_a_node_that_is_killed_is_kept(pool: WorkerPool, ray_cluster: RayTestCluster) -> None:
    (pid,) = pids_of(pool, 1)
    options = SolveOptions(solver="highs", time_limit_s=60, relative_gap=0.0)
    ticket = pool.submit(name(solving_tasks.optimise), options, 90)
    eventually(lambda: ticket.last_incumbent is not None)
    ray_cluster.kill_node_of(pid)
    with pytest.raises(WorkerError, match=r"its worker died \(.*(node has died|connection .* lost)\)?"):
        ticket.result(60)
    assert ticket.last_incumbent is not None
    assert pool.submit(name(tasks.echo), "alive", 10).result(60) == "alive"
    ray_cluster.add_node(2)


def test_an_actor_that_dies_takes_its_worker_along_and_nothing_else(pool: WorkerPool) -> None:
    (pid,) = pids_of(pool, 1)
    ticket = pool.submit(name(tasks.wait), 60.0, 60)
    eventually(lambda: ticket.last_incumbent is not None)
    actor = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(actor, signal.SIGKILL)
    with pytest.raises(WorkerError, match="its worker died"):
        ticket.result(60)
    assert ticket.last_incumbent is not None
    np.testing.assert_array_equal(ticket.last_incumbent, tasks.POINT)
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    assert pool.submit(name(tasks.echo), "alive", 10).result(60) == "alive"


def test_slots_are_spread_and_one_without_a_cpu_says_so_and_waits(ray_cluster: RayTestCluster) -> None:
    """Four CPUs there are: those of the first pool are held, and given back when it closes."""
    with WorkerPool(4, 8, preload=("tests.solver.tasks",), engine=ray_cluster.engine) as first:
        assert len({ray_cluster.node_of(pid) for pid in pids_of(first, 4)}) == 2
        other = WorkerPool(1, 1, engine=ray_cluster.engine, start_limit_s=0.5, start_attempts=1, gives_up=False)
        with other:
            waiting = other.submit(name(tasks.echo), 1, 10)
            trouble = eventually(lambda: other.trouble)
            assert trouble is not None
            assert "no node of the Ray cluster has a CPU free, 4 of 4 are taken" in trouble
            assert first.submit(name(tasks.echo), 2, 10).result(20) == 2
            first.close()
            assert waiting.result(60) == 1
            assert other.trouble is None


def test_nodes_with_another_version_are_refused(ray_cluster: RayTestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Installation(stowplan="9.9", python="3.99.0")
    monkeypatch.setattr(Installation, "here", lambda: ours)
    with WorkerPool(1, 1, engine=ray_cluster.engine, start_attempts=1) as pool:
        ticket = pool.submit(name(tasks.echo), 1, 10)
        with pytest.raises(
            WorkerError, match=r"has stowplan .*this machine 9\.9 with Python 3\.99\.0; install the same"
        ):
            ticket.result(60)


def test_a_worker_whose_end_comes_first_never_begins() -> None:
    host = WorkerHost(())
    host.kill(1)
    assert list(host.relay(1, (), ())) == []


def test_a_host_relays_until_the_end() -> None:
    host = WorkerHost(())
    relay = host.relay(1, ("tests.solver.tasks",), ())
    said: list[Any] = [next(relay), next(relay)]
    assert said[0].installation == Installation.here()
    # What is for nobody goes nowhere.
    host.send(2, b"")
    threading.Timer(0.1, host.kill, (1,)).start()
    assert list(relay)[-1] == Ended(how="signal 9")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://head:10001", "workers are talked to from a node of the cluster itself"),
        ("127.0.0.1:1", "Connection refused; start Ray on this machine"),
        ("head", "must be auto, local, or HOST:PORT"),
    ],
)
def test_what_is_no_cluster_is_refused(address: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        RayEngine(address)
    assert said in refused.value.detail


def test_a_process_is_connected_to_one_cluster(ray_cluster: RayTestCluster) -> None:
    assert ray_cluster.engine.slot()
    with pytest.raises(InputError, match="no connection to the Ray cluster"):
        RayEngine(ray_cluster.address)
