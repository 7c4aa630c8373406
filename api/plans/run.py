"""The life of one plan from the queue to its final state."""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from api.common.asking import request_id_now
from api.common.events import STATE, EventLog, Value
from api.plans.outcome import PLAN_TASK
from api.plans.termination import Termination, termination_of_error, termination_of_outcome
from api.reading.packed import key_of
from api.schemas.plan import PlanStatus
from api.store.records import PlanRecord
from models.plan import PlanRequest, PlanTask
from models.planning_task import resumed
from solver.monitor import Progress
from solver.pool import WorkerPool
from solver.ticket import DeadlineError, Ticket
from stowplan.errors import Issue, StowplanError, WorkerError

_NEWS = 1e-9
_logger = logging.getLogger("stowplan.api.plans.run")


class RunningPlan:
    """One plan that is not final yet. The pool calls in from its threads.

    `slack_s` is how long the worker may take beyond the time limit of the solve. `on_end` is called once, from a
    thread of the pool, and must return soon; so must `on_begin`, whenever a worker begins. `notes` are the warnings
    of validation, `events` those of a plan that was known before it could run. `epoch`: of its lease.
    """

    def __init__(
        self,
        record: PlanRecord,
        request: PlanRequest,
        pool: WorkerPool,
        slack_s: float,
        on_end: Callable[["RunningPlan", Termination], None],
        notes: tuple[Issue, ...] = (),
        events: EventLog | None = None,
        on_begin: Callable[[], None] = lambda: None,
        epoch: int = 1,
    ) -> None:
        self.epoch = epoch
        # Its place in a trace; None where nobody knows it.
        self.asked: object = None
        self.events = events or EventLog()
        self.record = record
        self.request = request
        self.notes = notes
        self.queued_s: float | None = None
        self._lock = threading.Lock()
        self._pool = pool
        self._slack_s = slack_s
        self._on_end = on_end
        self._on_begin = on_begin
        self._ticket: Ticket | None = None
        self._stopped: PlanStatus | None = None
        self._is_decided = False
        self._objective: float | None = None
        self._bound: float | None = None

    def start(self, *, promised: bool = False) -> None:
        """Queue the plan; one that is `promised` waits even where the pool takes nothing new.

        Raises
        ------
        QueueFullError, WorkerError
            When the pool does not take it.
        """
        self._tell_queued()
        self._submit(promised=promised)

    def go_on(self, ticket: Ticket) -> None:
        """Have the plan be what a task that has begun makes of it, in place of `start`."""
        self._tell_begun()
        self._on_begin()
        with self._lock:
            # What comes from here on, and what has come.
            ticket.on_progress = self._advance
            self._learn(ticket.last_progress)
        self._follow(ticket, self._end_or_start)

    def ended_by(self, ticket: Ticket) -> Termination:
        """Have the plan be what a task made of it that is done and has a result; gives its end, not to `on_end`."""
        self._tell_begun()
        self._learn(ticket.last_progress)
        return termination_of_outcome(ticket.result(), None)

    def stop(self, status: PlanStatus) -> None:
        """Ask the plan to stop and to end as `status`, keeping its best solution."""
        with self._lock:
            self._stopped = self._stopped or status
            ticket = self._ticket
        if ticket is not None:
            ticket.cancel()

    def decide(self) -> bool:
        """Whether the caller decides how this plan ends here: of all that ask, the first does."""
        with self._lock:
            first, self._is_decided = not self._is_decided, True
        return first

    def drop(self) -> EventLog:
        """Stop without an end, which is another service's by now; gives the events for whoever follows it there."""
        events, self.events = self.events, EventLog()
        self.stop(PlanStatus.INTERRUPTED)
        return events

    def _tell_queued(self) -> None:
        id_ = request_id_now()
        asked = {} if id_ is None else {"request_id": id_}
        self.events.publish(STATE, {"status": PlanStatus.QUEUED.value, **asked})

    def _submit(self, *, promised: bool) -> None:
        ticket = self._pool.submit(
            PLAN_TASK,
            PlanTask(request=self.request, validated=True),
            self.request.options.time_limit_s + self._slack_s,
            on_progress=self._advance,
            on_start=self._begin,
            promised=promised,
            wants=key_of(self.request),
        )
        self._follow(ticket, self._end)

    def _tell_begun(self) -> None:
        """The task that has read it has gone on at once."""
        self._tell_queued()
        self.queued_s = 0.0
        self._enter(PlanStatus.BUILDING, self.record.queued_at_s)

    def _follow(self, ticket: Ticket, on_end: Callable[[Ticket], None]) -> None:
        with self._lock:
            self._ticket = ticket
            stopped = self._stopped is not None
        if stopped:
            ticket.cancel()
        ticket.done_callback(on_end)

    def _begin(self) -> None:
        self._enter(PlanStatus.BUILDING)
        self._on_begin()

    def _advance(self, progress: Progress) -> None:
        with self._lock:
            self._learn(progress)

    def _learn(self, progress: Progress | None) -> None:
        if progress is None:
            return
        if self.record.status is PlanStatus.BUILDING:
            self._enter(PlanStatus.SOLVING)
        objective, bound = _finite(progress.objective), _finite(progress.bound)
        improved, moved = _differs(objective, self._objective), _differs(bound, self._bound)
        self._objective = self._objective if objective is None else objective
        self._bound = self._bound if bound is None else bound
        if improved or moved:
            self.events.publish("incumbent" if improved else "bound", self._quality(progress.elapsed_s))

    def _enter(self, status: PlanStatus, at_s: float | None = None) -> None:
        now: dict[str, Any] = {f"{status.value}_at_s": time.time() if at_s is None else at_s}
        self.record = replace(self.record, status=status, **now)
        self.events.publish(STATE, {"status": status.value})

    def _quality(self, elapsed_s: float) -> dict[str, Value]:
        gap = None
        if self._objective is not None and self._bound is not None:
            gap = abs(self._objective - self._bound) / max(abs(self._objective), 1e-10)
        return {"objective": self._objective, "bound": self._bound, "relative_gap": gap, "elapsed_s": elapsed_s}

    def _end_or_start(self, ticket: Ticket) -> None:
        """Have a plan whose worker died, which alone had what the request changes, begin as any other."""
        error = ticket.future.exception()
        is_lost = isinstance(error, WorkerError) and not isinstance(error, DeadlineError)
        if is_lost and ticket.last_incumbent is None and self._stopped is None:
            self.queued_s = None
            try:
                self._submit(promised=True)
            except StowplanError:
                _logger.exception("plan %s cannot begin again", self.record.id)
            else:
                return
        self._end(ticket)

    def _end(self, ticket: Ticket) -> None:
        if self.queued_s is None:
            self.queued_s = ticket.queued_s
        second = None if self._stopped is PlanStatus.INTERRUPTED else self._resumed(ticket)
        if second is None:
            self._conclude(ticket)
        else:
            second.done_callback(self._conclude)

    def _conclude(self, ticket: Ticket) -> None:
        error = ticket.future.exception()
        if error is None:
            self._on_end(self, termination_of_outcome(ticket.result(), self._stopped))
        else:
            self._on_end(self, termination_of_error(error, self._stopped))

    def _resumed(self, ticket: Ticket) -> Ticket | None:
        try:
            return resumed(self._pool, ticket, self.request, self._slack_s, task=PLAN_TASK, validated=True)
        except StowplanError:
            _logger.exception("plan %s cannot be resumed", self.record.id)
            return None


def _differs(new: float | None, old: float | None) -> bool:
    """Whether there is news: solvers report rounding errors of a bound many times a second."""
    return new is not None and (old is None or not math.isclose(new, old, rel_tol=_NEWS, abs_tol=_NEWS))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
