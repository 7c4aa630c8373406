"""Plan on this machine without a service: one worker with a hard deadline, progress, and a stop that keeps the best."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from api.common.errors import WorkerTimeoutError
from api.convert.outcome import MS_PER_S, outcome_to_document
from api.figures.request import DifferenceFigure, FigureRequest, ParallelFigure
from api.schemas.plan import OutcomeDoc, UsedOptionsDoc
from models.parallelism.request import ParallelAnswer, ParallelRequest
from models.plan import PlanOutcome, PlanRequest, PlanTask
from models.planning_task import PLAN_TASK, limit_named, resumed
from solver.monitor import Progress
from solver.pool import WorkerPool
from solver.ticket import DeadlineError, Ticket
from stowplan import __version__
from stowplan.errors import WorkerError

_FIGURE_TASK = "api.figures.render:figure_task"
_PARALLEL_TASK = "models.parallelism.planner:answer_task"
_DIFFERENCE_FIGURE_TASK = "api.figures.difference:figure_task"
_PARALLEL_FIGURE_TASK = "api.figures.parallel:figure_task"
# Beyond the time limit of the solve: build, placement, check.
SLACK_S = 60.0
_TICK_S = 0.1


class LocalPlanDoc(OutcomeDoc):
    """A plan made without a service."""

    policy: str
    options: UsedOptionsDoc
    version: str
    """Version of Stowplan that made the plan."""
    phases_ms: dict[str, float]
    """Wall-clock milliseconds per phase."""
    first_incumbent_ms: float | None
    """From the start of the solve to the first plan found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who looks on: `on_progress` is called ten times a second, `on_stop` when a stop was asked for."""

    on_progress: Callable[[Progress | None, float], None]
    on_stop: Callable[[], None]


class LocalPlanner:
    """One worker process; a context manager."""

    def __init__(self) -> None:
        self._pool = WorkerPool(num_workers=1, max_queue=1)

    def __enter__(self) -> Self:
        self._pool.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    def plan(self, request: PlanRequest, watcher: Watcher) -> PlanOutcome:
        """Plan the request; the first KeyboardInterrupt asks the solve to stop, the second is passed on.

        Raises
        ------
        StowplanError
            What planning raises; TaskCanceledError when it was stopped before it began.
        """
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            ticket.cancel()
            watcher.on_stop()

        ticket = self._pool.submit(PLAN_TASK, PlanTask(request=request), request.options.time_limit_s + SLACK_S)
        try:
            outcome: PlanOutcome = wait_for(ticket, watcher.on_progress, stop)
        except WorkerError:
            second = resumed(self._pool, ticket, request, SLACK_S)
            if second is None:
                raise
            outcome = wait_for(second, watcher.on_progress, second.cancel)
        return replace(outcome, limit=limit_named(outcome.limit, canceled=stopped))

    def draw(self, request: FigureRequest) -> bytes:
        """Draw an outcome."""
        picture: bytes = self._pool.submit(_FIGURE_TASK, request, SLACK_S).result()
        return picture

    def draw_difference(self, request: DifferenceFigure) -> bytes:
        """Draw plans beside each other."""
        picture: bytes = self._pool.submit(_DIFFERENCE_FIGURE_TASK, request, SLACK_S).result()
        return picture

    def parallel(self, request: ParallelRequest, limit_s: float, watcher: Watcher) -> ParallelAnswer:
        """Plan one job in three dimensions; a KeyboardInterrupt ends it.

        Raises
        ------
        StowplanError
            What planning raises; WorkerTimeoutError after `limit_s`.
        """
        ticket = self._pool.submit(_PARALLEL_TASK, request, limit_s)
        try:
            answer: ParallelAnswer = wait_for(ticket, watcher.on_progress, _quit)
        except DeadlineError as error:
            detail = f"not done within {limit_s:g} s: ask for fewer numbers of GPUs, or allow more time"
            raise WorkerTimeoutError(detail) from error
        return answer

    def draw_parallel(self, request: ParallelFigure) -> bytes:
        """Draw the answer."""
        picture: bytes = self._pool.submit(_PARALLEL_FIGURE_TASK, request, SLACK_S).result()
        return picture


def local_document(request: PlanRequest, outcome: PlanOutcome) -> LocalPlanDoc:
    """Give the document of a plan."""
    first_s = outcome.statistics.first_incumbent_s
    return LocalPlanDoc(
        policy=request.policy,
        options=UsedOptionsDoc.model_validate(request.options, from_attributes=True),
        version=__version__,
        **dict(outcome_to_document(outcome, request.snapshot)),
        phases_ms={name: wall_s * MS_PER_S for name, wall_s in outcome.times.wall_s.items()},
        first_incumbent_ms=None if first_s is None else first_s * MS_PER_S,
    )


def _quit() -> None:
    raise KeyboardInterrupt


def wait_for(ticket: Ticket, on_progress: Callable[[Progress | None, float], None], stop: Callable[[], None]) -> Any:
    """Wait for the result of a ticket; a KeyboardInterrupt stops it, a second one passes."""
    interrupted = False
    start_s = time.monotonic()
    while True:
        try:
            with suppress(TimeoutError):
                return ticket.result(timeout=_TICK_S)
            on_progress(ticket.last_progress, time.monotonic() - start_s)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            stop()
