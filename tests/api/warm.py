"""A worker that is there already, for code that starts one of its own: to start one is the slow part."""

from types import TracebackType
from typing import Any, Self

from solver.pool import WorkerPool
from solver.ticket import Ticket


class WarmPool:
    """Stands in for a `WorkerPool`: tasks go to `pool`, which stays open. None may die, or need a fresh process."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def start(self) -> Self:
        return self

    def close(self) -> None:
        pass

    def submit(self, *arguments: Any, **named: Any) -> Ticket:
        return self._pool.submit(*arguments, **named)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
