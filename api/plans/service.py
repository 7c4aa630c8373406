"""Plans from request to final state, without HTTP."""

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from starlette.concurrency import run_in_threadpool

from api.common.errors import (
    NotFoundError,
    PlanNotFinishedError,
    ShuttingDownError,
    StoreError,
)
from api.common.events import STATE, EventLog, PlanEvent
from api.common.metrics import Metrics
from api.common.settings import Settings
from api.plans.ending import Endings
from api.plans.left_behind import EPOCH_EVENTS, LeftBehindPlan, LeftBehindPlans
from api.plans.near import NearPlans
from api.plans.present import plan_document, plan_list
from api.plans.reading import READ_PLAN, ReadPlan
from api.plans.run import RunningPlan
from api.plans.sharing import Sharing
from api.plans.submission import Submissions, Submitted
from api.plans.termination import Termination
from api.plans.traces import NoTraces, PlanTraces
from api.reading.requests import RequestReader
from api.reading.texts import RequestText
from api.schemas.plan import PlanDoc, PlanList, PlanStatus
from api.store.admission import refuse_too_many
from api.store.database import Store
from api.store.leases import Leases, Others
from api.store.records import LeftBehind, PlanRecord
from solver.pool import WorkerPool
from solver.ticket import Ticket
from stowplan.errors import Issue, StowplanError

_POLL_S = 0.02
_ACTIVE = [status for status in PlanStatus if not status.final]
_logger = logging.getLogger("stowplan.api.plans.service")


class Plans:
    """All plans of one service: those that run in memory, those that are final in the store.

    What an earlier process left unfinished is taken up again.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        pool: WorkerPool,
        reader: RequestReader,
        metrics: Metrics,
        traces: PlanTraces | None = None,
        on_look: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        """`on_look` is told again and again what others want to end here, where they use its database as well."""
        self._settings = settings
        self._reader = reader
        self._traces = traces or NoTraces()
        self._store = store
        self._pool = pool
        self._admission = threading.Lock()
        self._running: dict[str, RunningPlan] = {}
        self._stopping = False
        self._closed = False
        self._endings = Endings(store, metrics, self._traces, self._running, self._follow)
        self._submissions = Submissions(
            store, self._endings, self._admission, self._refuse, self._begin, self._new_plan
        )
        self._near = NearPlans(pool, self._submissions, settings.read_s, settings.deadline_slack_s)
        self._leases = Leases(store)
        self._left_behind = LeftBehindPlans(store, self.reread, self._go_on)
        room = settings.queue_size + settings.workers
        self._sharing = Sharing(store, self, room, on_look) if store.is_shared else None
        left_behind = store.take_up_plans()
        if left_behind:
            _logger.warning("%d plans of an earlier process are taken up again", len(left_behind))
        self.take(left_behind)
        if self._sharing is not None:
            self._sharing.start()

    def submit(self, asked: ReadPlan, idempotency_key: str | None, received_s: float) -> str:
        """Store and queue a plan; returns its id. `received_s` is when the request came (monotonic clock).

        Raises
        ------
        IdempotencyConflictError
            When the key was used with another request.
        QueueFullError
            When too many plans wait.
        ShuttingDownError
            When the service stops.
        """
        return self.submit_all([(asked, idempotency_key)], received_s)[0]

    async def submit_read(self, read: Callable[[], ReadPlan], idempotency_key: str | None, received_s: float) -> str:
        """Read, store and queue a plan, as `submit` does; those that come at the same time are written together.

        Raises what `read` does, too.
        """
        return await self._submissions.submit_read(read, idempotency_key, received_s)

    async def submit_near(self, text: RequestText, idempotency_key: str | None, received_s: float) -> Submitted | None:
        """Do what `submit_read` does, and plan, where an idle worker keeps what the request changes; None where that
        cannot be. For who waits for the plan."""
        return await self._near.submit(text, idempotency_key, received_s)

    def submit_all(self, asked: Sequence[tuple[ReadPlan, str | None]], received_s: float) -> list[str]:
        """Store and queue plans, each with its key, all or none; returns their ids. Raises what `submit` does."""
        return self._submissions.submit_all(asked, received_s)

    def plan(self, plan_id: str) -> PlanDoc:
        """Look at a plan; NotFoundError when there is none."""
        return plan_document(self.record(plan_id))

    def page(self, limit: int, before: int | None, statuses: list[PlanStatus], query: str) -> PlanList:
        """List plans from the newest to the oldest; `query` goes into the link to the next page."""
        # One more than asked for tells whether there is a next page.
        active = _ACTIVE if any(not status.final for status in statuses) else []
        records = [self._live(record) for record in self._store.plans(limit + 1, before, [*statuses, *active])]
        return plan_list(records, limit, statuses, query)

    def input_text(self, plan_id: str) -> str:
        """JSON text of the request behind a plan; NotFoundError when there is none."""
        text = self._store.plan_input(plan_id)
        if text is None:
            raise _no_plan(plan_id)
        return text

    def taken_at(self, plan_id: str) -> datetime | None:
        """The moment of the snapshot behind a plan, where it says one; NotFoundError when there is no such plan."""
        said = json.loads(self.input_text(plan_id))["snapshot"].get("taken_at")
        return None if said is None else datetime.fromisoformat(said)

    async def reread(self, plan_id: str) -> ReadPlan:
        """Read the request behind a plan as it is stored: what was measured is in it, and not filled in again.

        Raises
        ------
        NotFoundError
            When there is no such plan.
        InputError
            When this version or these settings do not take the request any more.
        """
        text = await run_in_threadpool(self.input_text, plan_id)
        asked: ReadPlan = await self._reader.read(READ_PLAN, text.encode(), fill_in=False)
        return asked

    def events(self, plan_id: str) -> EventLog:
        """Events of a plan, running or final; NotFoundError when there is none."""
        events = self._open_events(plan_id)
        if events is not None:
            return events
        status = self.record(plan_id).status
        if not status.final and self._sharing is not None:
            return self._sharing.follow(plan_id)
        past = self._store.plan_events(plan_id)
        if past is None:
            # Its events were lost with an earlier process; whoever has seen some of them learns how it ended.
            return EventLog.of_past([PlanEvent(id=EPOCH_EVENTS, name=STATE, data={"status": status.value})])
        return EventLog.of_past(PlanEvent(**event) for event in json.loads(past))

    async def wait(self, plan_id: str, timeout_s: float) -> PlanRecord | None:
        """Return when the plan is final, or the time is over; gives its row where this service has seen its end."""
        running, events = self._running.get(plan_id), self._open_events(plan_id)
        if events is None and self._sharing is not None:
            with suppress(NotFoundError):
                events = await run_in_threadpool(self.events, plan_id)
        if events is not None:
            await events.wait_closed(timeout_s)
        return running.record if running is not None and running.record.status.final else None

    def cancel(self, plan_id: str) -> None:
        """Ask a plan to stop; a final one stays as it is. NotFoundError when there is none."""
        with self._admission:
            left, running = self._left_behind.get(plan_id), self._running.get(plan_id)
            if left is not None:
                left.is_canceled = True
        if running is not None:
            running.stop(PlanStatus.CANCELED)
        elif left is None and not self.record(plan_id).status.final:
            self._leases.ask_end(plan_id)

    def delete(self, plan_id: str) -> None:
        """Delete a final plan.

        Raises
        ------
        PlanNotFinishedError
            When it is not final.
        NotFoundError
            When there is none.
        """
        if not self.record(plan_id).status.final:
            raise PlanNotFinishedError(f"{plan_id} is not final; cancel it first")
        if not self._store.delete_plan(plan_id):
            raise _no_plan(plan_id)

    def record(self, plan_id: str) -> PlanRecord:
        """The row of a plan as it stands now; NotFoundError when there is none."""
        running = self._running.get(plan_id)
        record = self._store.plan(plan_id) if running is None else running.record
        if record is None:
            raise _no_plan(plan_id)
        return record

    @property
    def stopping(self) -> bool:
        """Whether no new plans are taken."""
        return self._stopping

    def begin_shutdown(self) -> None:
        """Take no new plans and ask the running ones to come back with what they have."""
        with self._admission:
            self._stopping = True
            self._left_behind.begin_shutdown()
            running = list(self._running.values())
        for plan in running:
            plan.stop(PlanStatus.INTERRUPTED)

    def drain(self, end_s: float) -> None:
        """Return when no plan runs any more, or at `end_s` (monotonic clock)."""
        while self._running and time.monotonic() < end_s:
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Write what has ended; whatever has not goes on in the next process, or in another one."""
        self._closed = True
        self._submissions.close()
        if self._sharing is not None:
            self._sharing.close()
        self._left_behind.close()
        self._endings.close()
        try:
            self._leases.let_go()
        except StoreError as error:
            _logger.warning("what is left unfinished will look like a crash: %s", error)
        for plan in self._running.values():
            plan.events.close()

    def running(self) -> dict[str, RunningPlan]:
        """Plans that this service has and has read."""
        return dict(self._running)

    def is_known(self, plan_id: str) -> bool:
        """Whether this service has a plan that is not final, or is about to have it."""
        return (
            plan_id in self._running
            or plan_id in self._submissions.coming
            or self._left_behind.get(plan_id) is not None
        )

    def num_wanted(self) -> int:
        """How many plans could begin at once beside those that this service has."""
        if self._stopping or self._left_behind or self._pool.queue_length:
            return 0
        return max(0, self._pool.num_ready - self._pool.num_busy)

    def take(self, left: Sequence[LeftBehind]) -> None:
        """Go on with plans that this service has taken."""
        for each in left:
            # Reading them takes time; who asks for one meanwhile sees it queued, and may wait for it or cancel it.
            followed = None if self._sharing is None else self._sharing.unfollow(each.record.id)
            self._left_behind.add(each, followed)
        for each in left:
            self._left_behind.read(each.record.id)

    def lose(self, plan: RunningPlan) -> None:
        """Another service has taken a plan; its end is not ours to say."""
        self._endings.lose(plan)

    def _open_events(self, plan_id: str) -> EventLog | None:
        """Events of a plan that is not final; None for any other."""
        # In this order: one that is taken up is in the second before it leaves the first.
        plan = self._left_behind.get(plan_id) or self._running.get(plan_id)
        return None if plan is None else plan.events

    def _refuse(self, num_new: int, others: Others) -> None:
        if self._stopping:
            raise ShuttingDownError("the service stops; ask again when it is back")
        refuse_too_many(self._settings, others, num_new)

    def _new_plan(self, record: PlanRecord, asked: ReadPlan) -> RunningPlan:
        plan = self._running_plan(record, asked, (*asked.filled_in, *asked.notes), 1)
        plan.asked = self._traces.here()
        return plan

    def _begin(self, record: PlanRecord, asked: ReadPlan, ticket: Ticket | None) -> None:
        plan = self._new_plan(record, asked)
        self._running[record.id] = plan
        try:
            if ticket is not None:
                plan.go_on(ticket)
            else:
                # There may be room where others wait for less.
                plan.start(promised=self._store.is_shared and self._pool.trouble is None)
        except Exception:
            del self._running[record.id]
            self._store.delete_plan(record.id)
            raise

    def _running_plan(
        self,
        record: PlanRecord,
        asked: ReadPlan,
        notes: tuple[Issue, ...],
        epoch: int,
        events: EventLog | None = None,
        times_begun_again: int = 0,
    ) -> RunningPlan:
        def begun() -> None:
            # Nobody takes a plan from a service that is alone, which counts only what it has taken up.
            if (self._store.is_shared or times_begun_again) and not self._leases.begin(
                record.id, epoch, times_begun_again
            ):
                self.lose(plan)

        slack_s = self._settings.deadline_slack_s
        request = asked.request.for_worker()
        plan = RunningPlan(record, request, self._pool, slack_s, self._ended, notes, events, begun, epoch)
        return plan

    def _go_on(self, known_as: LeftBehindPlan, asked: ReadPlan, notes: tuple[Issue, ...]) -> None:
        left = known_as.left
        record, again = left.record, known_as.times_begun_again
        plan = self._running_plan(record, asked, notes, left.epoch, known_as.events, again)
        with self._admission:
            if self._stopping:
                return
            self._running[record.id] = plan
            if known_as.is_canceled:
                plan.stop(PlanStatus.CANCELED)
        try:
            plan.start(promised=True)
        except StowplanError:
            del self._running[record.id]
            raise

    def _ended(self, plan: RunningPlan, termination: Termination) -> None:
        if not self._closed:
            self._endings.add(plan, termination)
            self._submissions.end_soon()
        if self._sharing is not None:
            # Others may have plans that wait.
            self._sharing.wake()

    def _follow(self, plan_id: str, events: EventLog) -> None:
        """Have events go on with what another service tells, where there may be one."""
        if self._sharing is None:
            events.close()
        else:
            self._sharing.follow(plan_id, events)

    def _live(self, record: PlanRecord) -> PlanRecord:
        """The plan as it stands now; the store knows only how it began and how it ended."""
        running = self._running.get(record.id)
        return record if running is None else replace(running.record, sequence=record.sequence)


def _no_plan(plan_id: str) -> NotFoundError:
    return NotFoundError(f"there is no plan {plan_id!r}")
