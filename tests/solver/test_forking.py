"""What workers share that are forked from one process, and what becomes of them when that cannot be."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from solver import forking
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


@contextmanager
def stopped_template(pool: WorkerPool) -> Iterator[None]:
    template = parent_of(pid_of(pool))
    os.kill(template, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(template, signal.SIGCONT)


@contextmanager
def open_files(most: int) -> Iterator[None]:
    """So many descriptors at most for this process, as a soft limit."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_worker_that_is_not_there_yet_can_be_killed(engine: ForkingEngine) -> None:
    with WorkerPool(1, 3, engine=engine) as pool, stopped_template(pool):
        worker = engine.worker((), ())
        worker.launch()
        assert worker.alive
        assert not worker.poll(0)
        worker.kill()
        assert worker.poll(10)
        with pytest.raises(EOFError):
            worker.receive()


def test_a_template_that_hangs_is_given_up(engine: ForkingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with WorkerPool(1, 3, engine=engine) as pool:
        first = pid_of(pool)
        with stopped_template(pool):
            worker = engine.worker((), ())
            worker.launch()
            monkeypatch.setattr(forking, "_ANSWER_LIMIT_S", 0.0)
            worker.dispose()
            until(lambda: not is_alive(first))
            monkeypatch.undo()
            assert pid_of(pool) != first


def test_the_end_of_a_worker_is_seen_with_any_number_of_open_files(engine: ForkingEngine) -> None:
    with open_files(1300), ExitStack() as files:
        for _ in range(1100):
            files.enter_context(Path(os.devnull).open())
        with WorkerPool(1, 3, engine=engine) as pool:
            first = pid_of(pool)
            os.kill(first, signal.SIGKILL)
            until(lambda: not is_alive(first))
            assert pid_of(pool) != first


def test_a_worker_without_a_descriptor_left_for_it_takes_no_other_with_it(engine: ForkingEngine) -> None:
    with WorkerPool(1, 3, engine=engine) as pool:
        first = pid_of(pool)
        worker = engine.worker((), ())
        with stopped_template(pool):
            worker.launch()
            lowest = os.open(os.devnull, os.O_RDONLY)
            os.close(lowest)
            limit = open_files(lowest)
            limit.__enter__()
        until(lambda: not worker.alive)
        limit.__exit__(None, None, None)
        worker.dispose()
        assert pid_of(pool) == first


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
