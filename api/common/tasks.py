"""Small things that a worker does while a client waits: pictures, models, plans for one job."""

import asyncio
from typing import Any

from api.common.errors import WorkerTimeoutError
from solver.pool import WorkerPool
from solver.ticket import GRACE_S, DeadlineError, TaskCanceledError, Ticket

_LIMIT_S = 60.0


async def run_task(
    pool: WorkerPool,
    task: str,
    argument: object,
    limit_s: float = _LIMIT_S,
    *,
    at_once: bool = False,
    wants: str | None = None,
) -> Any:
    """Have a worker do something, and give what it returns.

    Parameters
    ----------
    task
        Where the function is: `module:function`, so that this process need not load it.
    limit_s
        Seconds for waiting and working together. A task that listens comes back soon after with what it has.
    at_once
        The task does not wait: QueueFullError when no worker is idle.
    wants
        What another task has kept for it, see `WorkerPool.submit`.

    Raises
    ------
    WorkerTimeoutError
        When it is not done in time.
    StowplanError
        What the task raises, or the pool when it takes nothing more.
    """
    ticket = pool.submit(task, argument, limit_s, at_once=at_once, wants=wants)
    try:
        try:
            return await _within(limit_s, ticket)
        except TimeoutError:
            ticket.cancel()
            return await _within(GRACE_S, ticket)
    except (TimeoutError, TaskCanceledError, DeadlineError) as error:
        raise WorkerTimeoutError(
            f"not done within {limit_s:g} s: all workers are busy, or this is too large for the time"
        ) from error
    finally:
        ticket.cancel()


async def _within(limit_s: float, ticket: Ticket) -> Any:
    async with asyncio.timeout(limit_s):
        return await asyncio.wrap_future(ticket.future)
