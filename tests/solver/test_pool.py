"""Workers die in every way, on this machine and on a Ray cluster; the pool lives."""

import asyncio
import os
import pickle
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from multiprocessing.connection import Pipe
from pathlib import Path

import numpy as np
import pytest

from solver import worker
from solver.engine import Worker, WorkerEngine
from solver.feasibility import violations
from solver.forking import ForkingEngine
from solver.monitor import Progress
from solver.options import SolveOptions
from solver.pool import QueueFullError, WorkerPool
from solver.process import LocalEngine
from solver.result import Limit, SolveResult, TerminationReason
from solver.ticket import DeadlineError, Pickled, TaskCanceledError, Ticket
from stowplan.errors import InputError, StowplanError, WorkerError
from tests.paths import ROOT
from tests.solver import solving_tasks, tasks
from tests.solver.instances import slow_knapsack

pytestmark = pytest.mark.slow


def name(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{function.__name__}"


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def pid_of(pool: WorkerPool) -> int:
    facts = pool.submit(name(tasks.process_facts), None, 10).result(20)
    return int(facts["pid"])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that nobody has reaped is dead as well.
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


# What a pool decides by itself, whoever runs its workers, is tested with processes of this machine alone, which start
# in a tenth of the time: that it tries again, waits longer, or has a spare load beside.
@pytest.fixture(scope="module", params=["local", "forking", "ray"])
def engine(request: pytest.FixtureRequest) -> Iterator[WorkerEngine]:
    if request.param == "local":
        yield LocalEngine()
    elif request.param == "forking":
        with closing(ForkingEngine(("solver.worker",), ())) as forking:
            yield forking
    else:
        yield request.getfixturevalue("ray_cluster").engine


@pytest.fixture(scope="module")
def pool(engine: WorkerEngine) -> Iterator[WorkerPool]:
    with WorkerPool(1, 3, preload=("tests.solver.tasks",), engine=engine) as running:
        yield running


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.ticket.GRACE_S", 0.3)


def test_workers_get_no_variable_that_they_do_not_need(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"STOWPLAN_TOKEN": None, "LC_TIME": "set", "OMP_NUM_THREADS": "set"}
    for variable in expected:
        monkeypatch.setenv(variable, "set")
    with WorkerPool(1, 3, preload=("tests.solver.tasks",)) as fresh:
        assert fresh.submit(name(tasks.variables), list(expected), 10).result(20) == expected


def test_results_come_back(pool: WorkerPool) -> None:
    started = threading.Event()
    ticket = pool.submit(name(tasks.echo), {"point": tasks.POINT}, 10, on_start=started.set)
    np.testing.assert_array_equal(ticket.result(20)["point"], tasks.POINT)
    assert started.is_set()
    assert ticket.done()
    assert ticket.queued_s >= 0
    until(lambda: pool.num_busy == 0)
    assert (pool.num_ready, pool.queue_length) == (1, 0)


def test_short_tasks_do_not_wait_behind_long_ones() -> None:
    begun: list[str] = []
    # Nothing runs before all wait.
    stopped = WorkerPool(1, 9, preload=("tests.solver.tasks",))
    tickets = [
        stopped.submit(name(tasks.echo), None, deadline_s, on_start=partial(begun.append, label))
        for label, deadline_s in (("hour", 3600.0), ("day", 86400.0), ("minute", 60.0), ("second minute", 60.0))
    ]
    with stopped:
        for ticket in tickets:
            ticket.result(60)
    assert begun == ["minute", "second minute", "hour", "day"]


def test_what_is_pickled_is_a_value_again_in_the_worker(pool: WorkerPool) -> None:
    packed = Pickled(pickle.dumps({"answer": 42}))
    assert pool.submit(name(tasks.echo), ("a", packed), 10).result(20) == ("a", {"answer": 42})


def test_workers_are_fresh_interpreters_without_input(pool: WorkerPool) -> None:
    # A forked child would have all modules of this process, and hang after a solve with several threads.
    facts = pool.submit(name(tasks.process_facts), None, 10).result(20)
    assert facts["pid"] != os.getpid()
    assert facts["test_runner"] is False
    assert facts["stdin"] == ""


def test_errors_come_back(pool: WorkerPool) -> None:
    with pytest.raises(InputError, match="no such thing"):
        pool.submit(name(tasks.refuse), None, 10).result(20)
    for function, text in ((tasks.fail, "ZeroDivisionError: a bug"), (tasks.unpicklable, "lambda")):
        with pytest.raises(StowplanError, match=text):
            pool.submit(name(function), None, 10).result(20)
    with pytest.raises(WorkerError, match=r"no task .*missing"):
        pool.submit("tests.solver.tasks:missing", None, 10).result(20)
    with pytest.raises(WorkerError, match="cannot be read"):
        pool.submit(name(tasks.odd), None, 10).result(20)


def test_what_cannot_be_sent_or_awaited_is_refused(pool: WorkerPool) -> None:
    for deadline_s in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="deadline_s"):
            pool.submit(name(tasks.echo), None, deadline_s)
    # The system cannot wait for so long at once.
    assert pool.submit(name(tasks.echo), "later", 1e9).result(20) == "later"
    with pytest.raises((AttributeError, TypeError), match=r"lambda|lock"):
        pool.submit(name(tasks.echo), threading.Lock(), 10)
    with pytest.raises(InputError, match="at least one worker"):
        WorkerPool(0, 1)


def test_progress_arrives_merged_and_cancel_is_heard(pool: WorkerPool) -> None:
    seen: list[Progress] = []
    ticket = pool.submit(name(tasks.wait), 30.0, 60, on_progress=seen.append)
    # 101 reports at once: the first incumbent and the last bound both arrive, in few messages.
    until(lambda: ticket.last_progress is not None and ticket.last_progress.bound == 100.0)
    ticket.cancel()
    assert ticket.result(10) == "canceled"
    assert len(seen) < 20
    assert ticket.last_incumbent is not None
    np.testing.assert_array_equal(ticket.last_incumbent, tasks.POINT)
    assert ticket.last_progress is not None
    assert ticket.last_progress.objective == 5.0


def test_the_last_progress_comes_before_the_answer(pool: WorkerPool) -> None:
    ticket = pool.submit(name(tasks.wait), 0.0, 10)
    assert ticket.result(20) == "waited"
    assert ticket.last_progress is not None
    assert ticket.last_progress.bound == 100.0


def test_what_a_task_tells_comes_with_its_end_or_well_before(pool: WorkerPool) -> None:
    seen: list[tuple[object, bool]] = []

    def see(ticket: Ticket) -> None:
        seen.append((ticket.told, ticket.done()))
        ticket.go_on_for(20.0)

    quick = pool.submit(name(tasks.tell), ("soon", 0.0), 10, on_told=see)
    assert quick.result(20) == 0.0
    assert quick.told == ("soon",)
    # A machine may be so busy that it is told before.
    assert seen in ([], [(("soon",), False)])
    seen.clear()
    # Beyond the deadline that it began with.
    slow = pool.submit(name(tasks.tell), ("long", 1.0), 0.5, on_told=see)
    until(lambda: bool(seen))
    assert seen == [(("long",), False)]
    assert slow.result(20) == 1.0
    assert (slow.told, len(seen)) == (("long",), 1)
    assert pool.submit(name(tasks.echo), "next", 10).told is None


def test_progress_of_a_task_that_is_over_goes_nowhere(pool: WorkerPool) -> None:
    assert pool.submit(name(tasks.haunt), None, 10).result(20) == "gone"
    ticket = pool.submit(name(tasks.wait), 0.5, 10)
    assert ticket.result(20) == "waited"
    assert ticket.last_incumbent is not None
    assert ticket.last_incumbent[0] == 1.0


def test_deadline_asks_first(pool: WorkerPool) -> None:
    assert pool.submit(name(tasks.wait), 30.0, 0.2).result(10) == "canceled"


def test_deadline_kills_who_does_not_listen(pool: WorkerPool) -> None:
    before = pid_of(pool)
    ticket = pool.submit(name(tasks.ignore), 60.0, 0.2)
    with pytest.raises(DeadlineError, match=r"killed at its deadline of 0\.2 s"):
        ticket.result(20)
    assert ticket.elapsed_s >= 0.2
    assert ticket.last_incumbent is not None
    until(lambda: not is_alive(before))
    assert pid_of(pool) != before


def test_who_dies_when_asked_to_stop_at_the_deadline_met_the_deadline(pool: WorkerPool) -> None:
    ticket = pool.submit(name(tasks.exit_when_asked), 3, 0.2)
    with pytest.raises(DeadlineError, match="exit code 3"):
        ticket.result(20)


def test_a_worker_that_dies_fails_its_task_alone(pool: WorkerPool) -> None:
    for end, text in ((3, "exit code 3"), (None, "signal 9")):
        pid = pid_of(pool)
        if end is None:
            victim = pool.submit(name(tasks.wait), 60.0, 60)
            next_one = pool.submit(name(tasks.echo), "alive", 10)
            until(lambda: victim.last_incumbent is not None)  # noqa: B023  # used within the round
            os.kill(pid, signal.SIGKILL)
        else:
            victim = pool.submit(name(tasks.exit_at_once), end, 10)
            next_one = pool.submit(name(tasks.echo), "alive", 10)
        with pytest.raises(WorkerError, match=text) as died:
            victim.result(20)
        assert died.type is WorkerError
        assert next_one.result(20) == "alive"


def test_a_task_whose_workers_die_is_begun_again_and_not_for_ever(tmp_path: Path) -> None:
    with WorkerPool(1, 3, preload=("tests.solver.tasks",), attempts=2) as pool:
        begun: list[None] = []
        order = (str(tmp_path / "second"), 2)
        second = pool.submit(name(tasks.exit_until), order, 60, on_start=lambda: begun.append(None))
        next_one = pool.submit(name(tasks.echo), "alive", 60)
        assert second.result(60) == 2
        assert len(begun) == 2
        assert next_one.result(20) == "alive"
        third = pool.submit(name(tasks.exit_until), (str(tmp_path / "third"), 3), 60)
        with pytest.raises(WorkerError, match=r"died \(exit code 7\), 2 times in a row"):
            third.result(60)
        # What it has found is not thrown away.
        pid = pid_of(pool)
        found = pool.submit(name(tasks.wait), 60.0, 60)
        until(lambda: found.last_incumbent is not None)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="signal 9"):
            found.result(20)


def test_what_was_promised_waits_where_nothing_else_may(pool: WorkerPool) -> None:
    running = pool.submit(name(tasks.wait), 60.0, 60)
    until(lambda: running.running)
    waiting = [pool.submit(name(tasks.echo), number, 10) for number in range(3)]
    with pytest.raises(QueueFullError):
        pool.submit(name(tasks.echo), 3, 10)
    promised = pool.submit(name(tasks.echo), 4, 10, promised=True)
    running.cancel()
    assert [ticket.result(20) for ticket in (*waiting, promised)] == [0, 1, 2, 4]


def test_an_idle_worker_that_dies_is_replaced(pool: WorkerPool) -> None:
    pid = pid_of(pool)
    os.kill(pid, signal.SIGKILL)
    # Not to blame: a task that meets a dead worker goes to the next one.
    assert pool.submit(name(tasks.echo), 1, 10).result(20) == 1
    assert pid_of(pool) != pid


def test_a_full_queue_refuses_and_waiting_tasks_can_be_withdrawn(pool: WorkerPool) -> None:
    until(lambda: pool.num_ready == 1 and pool.num_busy == 0)
    running = pool.submit(name(tasks.wait), 60.0, 60)
    until(lambda: running.running)
    waiting = [pool.submit(name(tasks.echo), number, 10) for number in range(3)]
    with pytest.raises(QueueFullError) as caught:
        pool.submit(name(tasks.echo), 3, 10)
    assert caught.value.code == "queue_full"
    assert (pool.queue_length, pool.num_busy) == (3, 1)
    waiting[1].cancel()
    with pytest.raises(TaskCanceledError):
        waiting[1].result(0)
    assert pool.queue_length == 2
    assert waiting[0].queued_s > 0
    running.cancel()
    assert [ticket.result(20) for ticket in (running, waiting[0], waiting[2])] == ["canceled", 0, 2]


def test_a_task_that_is_to_begin_at_once_is_not_begun_again(engine: WorkerEngine) -> None:
    with WorkerPool(1, 3, preload=("tests.solver.tasks",), engine=engine, attempts=3) as own:
        until(lambda: own.num_ready == 1)
        with pytest.raises(WorkerError, match="exit code 3"):
            own.submit(name(tasks.exit_at_once), 3, 10, at_once=True).result(30)


def test_a_task_that_is_to_begin_at_once_does_not_wait(pool: WorkerPool) -> None:
    until(lambda: pool.num_ready == 1 and pool.num_busy == 0)
    running = pool.submit(name(tasks.wait), 60.0, 60, at_once=True)
    with pytest.raises(QueueFullError):
        pool.submit(name(tasks.echo), 1, 10, at_once=True)
    until(lambda: running.running)
    running.cancel()
    assert running.result(20) == "canceled"


def test_a_task_goes_to_the_idle_worker_that_keeps_what_it_wants(engine: WorkerEngine) -> None:
    with WorkerPool(2, 4, preload=("tests.solver.tasks",), engine=engine) as pool:
        until(lambda: pool.num_ready == 2)
        keeper = pool.submit(name(tasks.keep), "a", 10).result(20)
        until(lambda: pool.is_kept("a"))
        for _ in range(8):
            assert pool.submit(name(tasks.keep), "a", 10, wants="a").result(20) == keeper
            until(lambda: pool.num_busy == 0)
        busy = pool.submit(name(tasks.wait), 60.0, 60, wants="a")
        until(lambda: busy.running)
        # By nobody who waits.
        assert not pool.is_kept("a")
        assert pool.submit(name(tasks.keep), "b", 10, wants="a").result(20) != keeper
        busy.cancel()
        # Nobody keeps that.
        assert pool.submit(name(tasks.echo), 7, 10, wants="c").result(20) == 7


def test_a_task_does_not_wait_behind_one_that_is_for_another_worker(
    engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks again by himself.
    monkeypatch.setattr("solver.pool._IDLE_CHECK_S", 60.0)
    with WorkerPool(2, 4, preload=("tests.solver.tasks",), engine=engine) as pool:
        until(lambda: pool.num_ready == 2)
        pool.submit(name(tasks.keep), "a", 10).result(20)
        for _ in range(8):
            until(lambda: pool.num_busy == 0 and pool.is_kept("a"))
            wanting = pool.submit(name(tasks.wait), 60.0, 60, wants="a")
            assert pool.submit(name(tasks.echo), 1, 60).result(20) == 1
            until(partial(getattr, wanting, "running"))
            wanting.cancel()
            assert wanting.result(20) == "canceled"


def test_a_task_whose_worker_dies_does_not_wait_for_one_that_leaves_it_to_another(
    engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Nobody looks again by himself.
    monkeypatch.setattr("solver.pool._IDLE_CHECK_S", 60.0)
    for number in range(3):
        with WorkerPool(3, 4, preload=("tests.solver.tasks",), engine=engine, attempts=2) as pool:
            until(lambda: pool.num_ready == 3)  # used within the round
            # Begun before anybody keeps what it wants.
            wanting = pool.submit(name(tasks.hang_first), str(tmp_path / str(number)), 60, wants="a")
            until(partial(getattr, wanting, "running"))
            dies = next(worker for worker in pool._workers if worker not in pool._idle)
            pool.submit(name(tasks.keep), "a", 10).result(20)
            until(lambda: pool.is_kept("a") and pool.num_busy == 1)  # as above
            dies.kill()
            assert wanting.result(20) == "second"


def test_cancel_that_meets_the_start_is_not_lost(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets: list[Ticket] = []
    until(lambda: pool.num_ready == 1)
    kind = type(next(iter(pool._workers)))
    send = kind.send

    def cancel_between(worker: Worker, *message: object) -> None:
        if message[0] == "task":
            # Out of the queue and not yet in a worker.
            until(lambda: bool(tickets))
            tickets[0].cancel()
        send(worker, *message)

    monkeypatch.setattr(kind, "send", cancel_between)
    tickets.append(pool.submit(name(tasks.wait), 30.0, 60))
    assert tickets[0].result(10) == "canceled"


def test_a_worker_hears_no_cancel_of_what_has_ended(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    until(lambda: pool.num_ready == 1)
    kind = type(next(iter(pool._workers)))
    send = kind.send

    def watched(worker: Worker, *message: object) -> None:
        sent.append(message[0])
        send(worker, *message)

    monkeypatch.setattr(kind, "send", watched)
    ticket = pool.submit(name(tasks.echo), 1, 10)
    assert ticket.result(20) == 1
    ticket.cancel()
    assert (sent, ticket.result()) == (["task"], 1)


def test_callbacks_may_fail_and_late_ones_are_called(pool: WorkerPool, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("callback")

    ticket = pool.submit(name(tasks.wait), 0.1, 10, on_progress=fail, on_start=fail)
    ticket.done_callback(fail)
    assert ticket.result(20) == "waited"
    late: list[Ticket] = []
    ticket.done_callback(late.append)
    assert late == [ticket]
    assert "callback" in caplog.text


def test_asyncio_can_wait(pool: WorkerPool) -> None:
    async def main() -> object:
        ticket = pool.submit(name(tasks.wait), 0.2, 10)
        # Giving up waiting does not end the task.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(ticket.future), 0.01)
        return await asyncio.wrap_future(ticket.future)

    assert asyncio.run(main()) == "waited"


@pytest.mark.parametrize("solver", ["highs", "scip"])
def test_a_solve_in_a_worker_streams_and_cancels(pool: WorkerPool, solver: str) -> None:
    ticket = pool.submit(
        name(solving_tasks.optimise), SolveOptions(solver=solver, time_limit_s=60, relative_gap=0.0), 90
    )
    until(lambda: ticket.last_incumbent is not None)
    ticket.cancel()
    result = ticket.result(20)
    assert isinstance(result, SolveResult)
    assert (result.termination, result.limit) == (TerminationReason.FEASIBLE, Limit.INTERRUPTED)
    assert ticket.last_incumbent is not None
    assert not violations(slow_knapsack(), ticket.last_incumbent)


def test_workers_are_replaced_after_their_share(engine: WorkerEngine) -> None:
    with WorkerPool(1, 10, max_tasks_per_worker=2, engine=engine) as pool:
        pids = [pid_of(pool) for _ in range(4)]
        assert pool.num_restarts >= 1
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_close_ends_everything_twice(engine: WorkerEngine) -> None:
    pool = WorkerPool(2, 10, engine=engine).start()
    running = pool.submit(name(tasks.ignore), 60.0, 60)
    until(lambda: running.last_incumbent is not None)
    pid = pid_of(pool)
    tickets = [running, *(pool.submit(name(tasks.ignore), 60.0, 60) for _ in range(3))]
    for _ in range(2):
        pool.close()
    for ticket in tickets:
        with pytest.raises(WorkerError, match="closed"):
            ticket.result(0)
    assert not is_alive(pid)
    assert (pool.num_ready, pool.num_busy, pool.queue_length) == (0, 0, 0)
    with pytest.raises(WorkerError, match="closed"):
        pool.submit(name(tasks.echo), 1, 10)


def test_close_while_workers_start_and_from_a_callback(engine: WorkerEngine) -> None:
    with WorkerPool(1, 10, engine=engine):
        pass
    pool = WorkerPool(1, 10, engine=engine).start()
    closed = threading.Event()

    def close(_: Ticket) -> None:
        pool.close()
        closed.set()

    pool.submit(name(tasks.echo), 1, 10).done_callback(close)
    assert closed.wait(20)


def test_a_task_that_does_not_begin_is_given_to_another_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say while a starved worker loads a large module."""
    (tmp_path / "slow_once.py").write_text(
        f"import pathlib, time\nfirst = pathlib.Path({str(tmp_path / 'first')!r})\n"
        "if not first.exists():\n    first.touch()\n    time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("solver.ticket._BEGIN_LIMIT_S", 3.0)
    with WorkerPool(1, 3, idle_load=("slow_once",)) as pool:
        pool.load_idle()
        until((tmp_path / "first").exists)
        assert pool.submit(name(tasks.echo), 1, 10).result(60) == 1
        assert pool.num_restarts > 0


def test_modules_are_loaded_while_no_task_waits(engine: WorkerEngine) -> None:
    with WorkerPool(1, 3, idle_load=("no_such_module", "colorsys"), engine=engine) as pool:
        assert not pool.submit(name(tasks.is_loaded), "colorsys", 10).result(20)
        pool.load_idle()
        end_s = time.monotonic() + 30
        while not pool.submit(name(tasks.is_loaded), "colorsys", 10).result():
            assert time.monotonic() < end_s
            time.sleep(0.05)


def test_workers_that_never_start_are_given_up(engine: WorkerEngine, caplog: pytest.LogCaptureFixture) -> None:
    with WorkerPool(2, 10, preload=("no_such_module",), start_attempts=2, engine=engine) as pool:
        ticket = pool.submit(name(tasks.echo), 1, 10)
        reason = r"no worker starts, 2 times in a row; the last one: a worker died at start \(exit code 1\)"
        with pytest.raises(WorkerError, match=reason):
            ticket.result(60)
        with pytest.raises(WorkerError, match=reason):
            pool.submit(name(tasks.echo), 1, 10)
        assert pool.num_ready == 0
    assert "exit code 1" in caplog.text


def test_a_pool_recovers_when_workers_start_again(
    engine: WorkerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Say from a full disk, or a machine without memory; what waits is not lost."""
    (tmp_path / "starts_later.py").write_text(f"open({str(tmp_path / 'now')!r})")
    monkeypatch.syspath_prepend(tmp_path)
    with WorkerPool(1, 10, preload=("starts_later",), start_attempts=2, gives_up=False, engine=engine) as pool:
        waiting = pool.submit(name(tasks.echo), 1, 10)
        until(lambda: pool.trouble is not None)
        with pytest.raises(WorkerError, match="no worker starts"):
            pool.submit(name(tasks.echo), 2, 10)
        assert not waiting.done()
        (tmp_path / "now").touch()
        assert waiting.result(60) == 1
        assert pool.trouble is None
        assert pool.submit(name(tasks.echo), 3, 10).result(60) == 3


def test_starts_get_more_time_until_they_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine starts an interpreter in 40 ms; on a starved one a minute may be too little."""
    monkeypatch.setattr("solver.pool._MAX_PAUSE_S", 0.1)
    with WorkerPool(1, 10, start_limit_s=0.04, start_attempts=100) as pool:
        assert pool.submit(name(tasks.echo), 1, 10).result(60) == 1
        assert pool.num_restarts > 0


def test_a_spare_is_warm_before_it_takes_over() -> None:
    loaded = name(tasks.is_loaded)
    with WorkerPool(1, 10, max_tasks_per_worker=2, idle_load=("colorsys",), warm_spare=True) as pool:
        first = last = pid_of(pool)
        end_s = time.monotonic() + 60
        while last == first:
            assert time.monotonic() < end_s
            assert pool.num_ready >= 1
            is_loaded, last = pool.submit(loaded, "colorsys", 10).result(20), pid_of(pool)
        # The task before may have been the last of the old one.
        assert is_loaded or pool.submit(loaded, "colorsys", 10).result(20)


def test_a_worker_whose_spare_does_not_start_goes_on(
    engine: WorkerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "starts_once.py").write_text(f"open({str(tmp_path / 'now')!r}, 'x')")
    monkeypatch.syspath_prepend(tmp_path)
    with WorkerPool(1, 10, max_tasks_per_worker=1, preload=("starts_once",), warm_spare=True, engine=engine) as pool:
        pid = pid_of(pool)
        until(lambda: pool.num_restarts > 0 and sum(worker.alive for worker in pool._workers) == 1)
        assert pid_of(pool) == pid
        (tmp_path / "now").unlink()
        until(lambda: pid_of(pool) != pid)


@pytest.mark.parametrize("engine_name", ["local", "forking", "ray"])
def test_workers_die_with_their_parent(engine_name: str, request: pytest.FixtureRequest) -> None:
    """One that listens to nobody, one that holds the interpreter lock, and one that solves."""
    work = {
        name(tasks.ignore): "60.0",
        name(tasks.hold_the_lock): "60.0",
        name(solving_tasks.optimise): "SolveOptions(solver='scip', relative_gap=0.0)",
    }
    engine = "LocalEngine()"
    if engine_name == "forking":
        engine = "ForkingEngine((), ())"
    elif engine_name == "ray":
        address = request.getfixturevalue("ray_cluster").address
        engine = f"import_module('solver.ray_engine').RayEngine({address!r})"
    program = f"""
        import sys, time
        from importlib import import_module
        from solver.options import SolveOptions
        from solver.pool import WorkerPool
        from solver.forking import ForkingEngine
        from solver.process import LocalEngine
        assert not {{"cvxpy", "pyomo", "highspy", "pyscipopt", "ray"}} & set(sys.modules)
        pool = WorkerPool({len(work)}, {len(work)}, engine={engine}).start()
        while pool.num_ready < {len(work)}:
            time.sleep(0.01)
        pids = set()
        while len(pids) < {len(work)}:
            facts = [pool.submit({name(tasks.process_facts)!r}, None, 60) for _ in range({len(work)})]
            pids |= {{ticket.result(60)["pid"] for ticket in facts}}
        tickets = [{", ".join(f"pool.submit({task!r}, {argument}, 60)" for task, argument in work.items())}]
        while any(ticket.last_incumbent is None for ticket in tickets):
            time.sleep(0.01)
        time.sleep(0.5)
        print(*pids, flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    # An open standard input that a worker must not read.
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == len(work)
        # Ctrl-C is for the parent.
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        time.sleep(0.1)
        assert all(map(is_alive, pids))
        parent.kill()
    until(lambda: not any(map(is_alive, pids)))


def test_workers_leave_when_the_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    # On Linux the kernel is faster; elsewhere this is all there is.
    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", leave)
    ours, theirs = Pipe()
    ours.close()
    with pytest.raises(SystemExit):
        worker._listen(theirs, queue.SimpleQueue())
