"""What workers share that are forked from one process, and what becomes of them when that cannot be."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from solver.forking import ForkedWorker, ForkingEngine
from solver.pool import WorkerPool
from solver.process import WorkerProcess
from solver.template import can_fork
from stowplan.errors import WorkerError
from tests.solver import tasks
from tests.solver.test_pool import is_alive, name, pid_of, until

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system has no descriptors of processes")
FACTS, LOADED = name(tasks.process_facts), name(tasks.is_loaded)


@pytest.fixture
def engine() -> Iterator[ForkingEngine]:
    with closing(ForkingEngine(("tests.solver.tasks",), ("no_such_module", "colorsys"))) as engine:
        yield engine


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_workers_have_one_parent_and_nothing_of_one_another(engine: ForkingEngine) -> None:
    with WorkerPool(2, 2, engine=engine) as pool:
        until(lambda: pool.num_ready == 2)
        pids: set[int] = set()
        while len(pids) < 2:
            found = [pool.submit(FACTS, None, 10) for _ in range(2)]
            pids |= {int(ticket.result(20)["pid"]) for ticket in found}
        assert len({parent_of(pid) for pid in pids}) == 1
        assert os.getpid() not in {parent_of(pid) for pid in pids}
        for pid in pids:
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            assert sum(link.startswith("socket:") for link in links) == 1
            assert not any("pidfd" in link for link in links)
            assert os.getpgid(pid) == pid


def test_what_the_template_loads_workers_have(engine: ForkingEngine) -> None:
    loads = ("no_such_module", "colorsys")
    with WorkerPool(1, 3, idle_load=loads, warm_spare=True, engine=engine) as pool:
        first = pid_of(pool)
        assert not pool.submit(LOADED, "colorsys", 10).result(20)
        pool.load_idle()
        end_s = time.monotonic() + 30
        while pid_of(pool) == first:
            assert pool.num_ready >= 1
            assert time.monotonic() < end_s
            time.sleep(0.02)
        assert pool.submit(LOADED, "colorsys", 10).result(20)
        # Nobody is replaced for it again.
        second = pid_of(pool)
        time.sleep(0.6)
        assert pid_of(pool) == second
        assert pool.num_restarts == 0


def test_workers_die_with_the_template_and_come_again(engine: ForkingEngine) -> None:
    with WorkerPool(1, 3, engine=engine) as pool:
        worker = pid_of(pool)
        os.kill(parent_of(worker), signal.SIGKILL)
        until(lambda: not is_alive(worker))
        assert pid_of(pool) != worker


def test_nobody_is_forked_beside_a_thread(caplog: pytest.LogCaptureFixture) -> None:
    with closing(ForkingEngine(("tests.solver.starts_a_thread",), ())) as engine:
        assert isinstance(engine.worker((), ()), ForkedWorker)
        with WorkerPool(1, 3, engine=engine) as pool:
            assert pool.submit(FACTS, None, 10).result(60)["stdin"] == ""
        assert type(engine.worker((), ())) is WorkerProcess
    assert "a worker cannot be forked: it has 2 threads" in caplog.text


def test_workers_that_cannot_be_had_are_told_of() -> None:
    engine = ForkingEngine(("no_such_module",), ())
    with closing(engine), WorkerPool(1, 3, start_attempts=2, engine=engine) as pool:
        ticket = pool.submit(FACTS, None, 10)
        with pytest.raises(WorkerError, match="a worker died at start"):
            ticket.result(60)
    worker = engine.worker((), ())
    with pytest.raises(WorkerError, match="the engine was closed"):
        worker.launch()
