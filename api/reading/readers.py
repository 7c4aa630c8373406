"""Who reads: this process what is small; what is large an idle worker, which may plan it then, or another process."""

import threading
from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pkgutil import resolve_name
from typing import Any

from starlette.concurrency import run_in_threadpool

from api.common.tasks import run_task
from solver.monitor import SolveMonitor
from solver.pool import QueueFullError, WorkerPool
from stowplan.errors import WorkerError


class Readers:
    """Runs tasks that read; while one does, the interpreter lock of this process is free.

    Up to `small_bytes` are read here. A larger text is read by one of the `workers` that plan if one is idle, else by
    the processes of `pool`, which start with the first one: they are there while all workers solve.
    """

    def __init__(self, pool: WorkerPool, limit_s: float, small_bytes: int, workers: WorkerPool | None = None) -> None:
        self._pool = pool
        self._workers = workers
        self._limit_s = limit_s
        self._small_bytes = small_bytes
        # What comes of a text is stored, by one at a time: threads that wait for one another would take processor time
        # for each change of turns, and get them in any order.
        self._in_turn = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read")
        self._starting = threading.Lock()
        self._started = False

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                self._pool.start()
                self._started = True

    def close(self) -> None:
        """End the processes, and what is read here."""
        self._pool.close()
        self._in_turn.shutdown()

    async def read(
        self,
        task: str,
        argument: object,
        num_bytes: int,
        wants: str | None = None,
        then: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Have a text of `num_bytes` read by `task`, a function `package.module:function`, and give what it returns.

        `wants` names what another task has kept that reads it sooner: of the idle workers, the one that has it does.
        With `then` what it returns goes through that, in a thread of this process: the one that has read, where it was
        read here. Small texts are read one after another then, in the order in which they came.

        Raises
        ------
        WorkerTimeoutError
            When it is not read in time.
        QueueFullError
            When too many large texts wait.
        StowplanError
            What the task raises.
        """
        if num_bytes <= self._small_bytes:
            if then is None:
                return await run_in_threadpool(_read_here, task, argument, then)
            context = copy_context()
            return await get_running_loop().run_in_executor(
                self._in_turn, context.run, _read_here, task, argument, then
            )
        found = await self._read_elsewhere(task, argument, wants)
        return found if then is None else await run_in_threadpool(then, found)

    async def _read_elsewhere(self, task: str, argument: object, wants: str | None) -> Any:
        if self._workers is not None:
            with suppress(QueueFullError, WorkerError):
                return await run_task(self._workers, task, argument, self._limit_s, at_once=True, wants=wants)
        await run_in_threadpool(self._start)
        return await run_task(self._pool, task, argument, self._limit_s)


def _read_here(task: str, argument: object, then: Callable[[Any], Any] | None) -> Any:
    found = resolve_name(task)(argument, SolveMonitor())
    return found if then is None else then(found)
