"""Who reads: an idle worker that has what a text is about, which may plan it then; of others, this process what is
small, and what is large any idle worker, or another process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pkgutil import resolve_name
from typing import Any

from starlette.concurrency import run_in_threadpool

from api.common.tasks import run_task
from solver.monitor import SolveMonitor
from solver.pool import QueueFullError, WorkerPool
from stowplan.errors import WorkerError

# What becomes of a text; gets what reads it, and may have a thread for both.
Then = Callable[[Callable[[], Any]], Awaitable[Any]]
_NOTHING = object()
# A worker that keeps a base reads a small change to it in far less; one that hangs is not waited for.
NEAR_S = 1.0


class Readers:
    """Runs tasks that read; while one does, the interpreter lock of this process is free.

    What one of the `workers` that plan keeps it reads if it is idle. Up to `small_bytes` are read here otherwise, or
    where it is not back soon. A larger text is read by any worker if one is idle, else by the processes of `pool`,
    which start with the first one: they are there while all workers solve.
    """

    def __init__(self, pool: WorkerPool, limit_s: float, small_bytes: int, workers: WorkerPool | None = None) -> None:
        self._pool = pool
        self._workers = workers
        self._limit_s = limit_s
        self._small_bytes = small_bytes
        self._starting = threading.Lock()
        self._started = False

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                self._pool.start()
                self._started = True

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    async def read(
        self,
        task: str,
        argument: object,
        num_bytes: int,
        wants: str | None = None,
        then: Then | None = None,
    ) -> Any:
        """Have a text of `num_bytes` read by `task`, a function `package.module:function`, and give what it returns.

        `wants` names what another task has kept that reads it sooner: of the idle workers, the one that has it does.
        With `then` that gives the result: it is told what reads, or gives what was read, and calls it in a thread.

        Raises
        ------
        WorkerTimeoutError
            When it is not read in time.
        QueueFullError
            When too many large texts wait.
        StowplanError
            What the task raises.
        """
        found: Any = _NOTHING
        is_small = num_bytes <= self._small_bytes
        if self._workers is not None and (not is_small or self.is_kept(wants)):
            with suppress(QueueFullError, WorkerError, TimeoutError):
                async with asyncio.timeout(min(NEAR_S, self._limit_s) if is_small else None):
                    found = await run_task(self._workers, task, argument, self._limit_s, at_once=True, wants=wants)
        if found is _NOTHING and is_small:
            read_here = partial(_read_here, task, argument)
            return await (run_in_threadpool(read_here) if then is None else then(read_here))
        if found is _NOTHING:
            await run_in_threadpool(self._start)
            found = await run_task(self._pool, task, argument, self._limit_s)
        return found if then is None else await then(lambda: found)

    def is_kept(self, wants: str | None) -> bool:
        """Whether an idle worker keeps what this names."""
        return self._workers is not None and wants is not None and self._workers.is_kept(wants)


def _read_here(task: str, argument: object) -> Any:
    return resolve_name(task)(argument, SolveMonitor())
