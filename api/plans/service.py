"""Plans from request to final state, without HTTP."""

import asyncio
import json
import logging
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial

from starlette.concurrency import run_in_threadpool

from api.common.asking import caller_now
from api.common.errors import (
    IdempotencyConflictError,
    NotFoundError,
    PlanNotFinishedError,
    ShuttingDownError,
    StoreError,
)
from api.common.events import STATE, EventLog, PlanEvent
from api.common.metrics import Metrics
from api.common.settings import Settings
from api.common.unstored import UnstoredEnds
from api.convert.reading import MalformedJsonError
from api.plans.present import plan_document, plan_list
from api.plans.reading import READ_PLAN, ReadPlan
from api.plans.run import RunningPlan
from api.plans.termination import Termination, final_record
from api.plans.traces import NoTraces, PlanTraces
from api.reading.requests import RequestReader
from api.schemas.plan import FailureDoc, PlanDoc, PlanList, PlanStatus, TimingsDoc
from api.store.database import LeftBehind, PlanRecord, Store
from solver.pool import QueueFullError, WorkerPool
from stowplan import __version__
from stowplan.errors import InputError, Issue, StowplanError
from stowplan.records import from_document, to_json

_MS_PER_S = 1e3
_POLL_S = 0.02
_AFTER_LOST_EVENTS = 1_000_000_000
# A plan may be why the process goes down, when it does so often while a worker has begun with it.
_MOST_BEGUN_AGAIN = 3
_logger = logging.getLogger("stowplan.api.plans.service")
_GIVEN_UP = FailureDoc(
    code="interrupted",
    detail=f"the service crashed {_MOST_BEGUN_AGAIN + 1} times before the plan was final; ask for it again, for less",
)


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
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._metrics = metrics
        self._traces = traces or NoTraces()
        self._store = store
        self._pool = pool
        self._admission = threading.Lock()
        self._running: dict[str, RunningPlan] = {}
        self._stopping = False
        self._closed = False
        # Ends are written one after another, and not by the threads that look after workers.
        self._finisher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="finish")
        self._unstored = UnstoredEnds("plans", "they are planned again")
        left_behind = store.take_up_plans()
        if left_behind:
            _logger.warning("%d plans of an earlier process are taken up again", len(left_behind))
        # Reading them takes time; who asks for one meanwhile sees it queued, and may wait for it or cancel it.
        self._left_behind = {left.record.id: _LeftBehindPlan(left) for left in left_behind}
        self._taking_up = threading.Thread(target=self._take_up, args=(left_behind,), name="take-up", daemon=True)
        self._taking_up.start()

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

    def submit_all(self, asked: Sequence[tuple[ReadPlan, str | None]], received_s: float) -> list[str]:
        """Store and queue plans, each with its key, all or none; returns their ids. Raises what `submit` does."""
        with self._admission:
            known = [None if key is None else self._store.plan_by_key(key) for _, key in asked]
            for (plan, _), record in zip(asked, known, strict=True):
                # Not what was filled in: that may have changed since.
                if record is not None and (self._store.posted_hash(record.id) or record.input_hash) != plan.posted_hash:
                    raise IdempotencyConflictError.of(record.id)
            self._refuse_too_many(sum(record is None for record in known))
            ids = []
            for (plan, key), record in zip(asked, known, strict=True):
                if record is None:
                    record = _new_record(plan, key)
                    self._admit(record, plan, received_s)
                ids.append(record.id)
        return ids

    def plan(self, plan_id: str) -> PlanDoc:
        """Look at a plan; NotFoundError when there is none."""
        return plan_document(self.record(plan_id))

    def page(self, limit: int, before: int | None, statuses: list[PlanStatus], query: str) -> PlanList:
        """List plans from the newest to the oldest; `query` goes into the link to the next page."""
        # One more than asked for tells whether there is a next page.
        active = [PlanStatus.QUEUED] if any(not status.final for status in statuses) else []
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
        past = self._store.plan_events(plan_id)
        if past is None:
            # Its events were lost with an earlier process; whoever has seen some of them learns how it ended.
            return EventLog.of_past([PlanEvent(id=_AFTER_LOST_EVENTS, name=STATE, data={"status": status.value})])
        return EventLog.of_past(PlanEvent(**event) for event in json.loads(past))

    async def wait(self, plan_id: str, timeout_s: float) -> None:
        """Return when the plan is final, or the time is over."""
        events = self._open_events(plan_id)
        if events is not None:
            await events.wait_closed(timeout_s)

    def cancel(self, plan_id: str) -> None:
        """Ask a plan to stop; a final one stays as it is. NotFoundError when there is none."""
        with self._admission:
            left, running = self._left_behind.get(plan_id), self._running.get(plan_id)
            if left is not None:
                left.is_canceled = True
        if running is not None:
            running.stop(PlanStatus.CANCELED)
        elif left is None:
            self.record(plan_id)

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
            running = list(self._running.values())
        for plan in running:
            plan.stop(PlanStatus.INTERRUPTED)

    def drain(self, end_s: float) -> None:
        """Return when no plan runs any more, or at `end_s` (monotonic clock)."""
        while self._running and time.monotonic() < end_s:
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Write what has ended; whatever has not goes on in the next process."""
        self._closed = True
        self._taking_up.join()
        self._finisher.shutdown()
        self._unstored.close()
        try:
            self._store.forget_crashes()
        except StoreError as error:
            _logger.warning("what is left unfinished will look like a crash: %s", error)
        logs = [plan.events for plan in self._left_behind.values()] + [plan.events for plan in self._running.values()]
        for log in logs:
            log.close()

    def _open_events(self, plan_id: str) -> EventLog | None:
        """Events of a plan that is not final; None for any other."""
        # In this order: one that is taken up is in the second before it leaves the first.
        plan = self._left_behind.get(plan_id) or self._running.get(plan_id)
        return None if plan is None else plan.events

    def _refuse_too_many(self, num_new: int) -> None:
        if not num_new:
            return
        if self._stopping:
            raise ShuttingDownError("the service stops; ask again when it is back")
        active = [plan.client for plan in list(self._running.values()) if not plan.record.status.final]
        most = self._settings.queue_size + self._settings.workers
        if len(active) + num_new > most:
            more = "" if num_new == 1 else f", and {num_new} more are asked for; it takes {most}"
            raise QueueFullError(f"{len(active)} plans run or wait, which is as many as this service takes{more}")
        client, share = caller_now().client, max(1, int(most * self._settings.client_share))
        if (theirs := active.count(client)) + num_new > share:
            raise QueueFullError(
                f"{theirs} plans of {client} run or wait, and {num_new} more are asked for; of the {most} that this "
                f"service takes, a client may have {share}"
            )

    def _admit(self, record: PlanRecord, asked: ReadPlan, received_s: float) -> None:
        """Store the plan, then queue it: a plan that is answered for is never lost."""
        accept_ms = (time.perf_counter() - received_s) * _MS_PER_S
        timings = TimingsDoc(
            accept_ms=accept_ms, queue_ms=None, phases_ms={}, cpu_ms=None, first_incumbent_ms=None, total_ms=None
        )
        record = replace(record, timings=timings.model_dump_json())
        posted_hash = asked.posted_hash if asked.posted_hash != record.input_hash else None
        notes = (*asked.filled_in, *asked.notes)
        # What is stored has nothing to fill in: who goes on with it could not say these again.
        self._store.add_plan(record, asked.input, posted_hash, to_json(asked.filled_in) if asked.filled_in else None)
        request = asked.request.for_worker()
        slack_s, client = self._settings.deadline_slack_s, caller_now().client
        plan = RunningPlan(record, request, self._pool, slack_s, self._ended, notes, client=client)
        plan.asked = self._traces.here()
        self._running[record.id] = plan
        try:
            plan.start()
        except Exception:
            del self._running[record.id]
            self._store.delete_plan(record.id)
            raise

    def _take_up(self, left_behind: list[LeftBehind]) -> None:
        for left in left_behind:
            if self._stopping:
                return
            plan = self._left_behind[left.record.id]
            try:
                self._go_on(left, plan)
            except Exception:
                # It stays in the store for the next process, and keeps no other plan from its turn.
                _logger.exception("plan %s cannot be taken up", left.record.id)
                plan.events.close()
            finally:
                del self._left_behind[left.record.id]

    def _go_on(self, left: LeftBehind, known_as: "_LeftBehindPlan") -> None:
        record, events = left.record, known_as.events
        asked, failure = None, _GIVEN_UP
        if left.times_begun_again < _MOST_BEGUN_AGAIN:
            try:
                asked = asyncio.run(self.reread(record.id))
            except (InputError, MalformedJsonError) as error:
                failure = FailureDoc(code="interrupted", detail=f"this version cannot go on with the plan: {error}")
        if asked is None:
            self._give_up(record, failure, events)
            return
        told = json.loads(self._store.plan_notes(record.id) or "[]")
        filled_in = (from_document(Issue, note, "note") for note in told)
        plan = RunningPlan(
            record,
            asked.request.for_worker(),
            self._pool,
            self._settings.deadline_slack_s,
            self._ended,
            (*filled_in, *asked.notes),
            events,
            lambda: self._store.note_begun_again(record.id, left.times_begun_again + 1),
        )
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

    def _give_up(self, record: PlanRecord, failure: FailureDoc, events: EventLog) -> None:
        record = replace(
            record, status=PlanStatus.INTERRUPTED, finished_at_s=time.time(), failure=failure.model_dump_json()
        )
        state = {"status": record.status.value}
        self._store.finish_plan(record, json.dumps([asdict(event) for event in events.preview(STATE, state)]))
        events.publish(STATE, state)
        events.close()

    def _ended(self, plan: RunningPlan, termination: Termination) -> None:
        if not self._closed:
            self._finisher.submit(self._finish, plan, termination)

    def _finish(self, plan: RunningPlan, termination: Termination) -> None:
        has_plan = termination.outcome is not None and termination.outcome.termination.has_incumbent
        if termination.status is PlanStatus.INTERRUPTED and not has_plan and self._store.is_lasting:
            # The next process goes on with it.
            del self._running[plan.record.id]
            plan.events.close()
            return
        if termination.outcome is not None:
            warnings = (*plan.notes, *termination.outcome.warnings)
            termination = replace(termination, outcome=replace(termination.outcome, warnings=warnings))
        record = final_record(plan.record, termination, plan.queued_s)
        state = {"status": record.status.value}
        events = json.dumps([asdict(event) for event in plan.events.preview(STATE, state)])
        plan.record = record
        # Until it is stored it stays in memory, where clients find it.
        self._unstored.write(record.id, partial(self._store_end, record, events))
        self._metrics.plans.labels(record.policy, record.status.value).inc()
        if termination.outcome is not None and "solve" in termination.outcome.times.wall_s:
            seconds = termination.outcome.times.wall_s["solve"]
            self._metrics.solve_seconds.labels(record.policy, termination.outcome.solver).observe(seconds)
        plan.events.publish(STATE, state)
        plan.events.close()
        self._traces.ended(plan.asked, record)

    def _store_end(self, record: PlanRecord, events: str) -> None:
        self._store.finish_plan(record, events)
        del self._running[record.id]

    def _live(self, record: PlanRecord) -> PlanRecord:
        """The plan as it stands now; the store knows only how it began and how it ended."""
        running = self._running.get(record.id)
        return record if running is None else replace(running.record, sequence=record.sequence)


class _LeftBehindPlan:
    """A plan of an earlier process before this one has read it: what is asked of it meanwhile. Its events go on above
    those that clients may have seen."""

    def __init__(self, left: LeftBehind) -> None:
        self.events = EventLog(left.times_taken_up * _AFTER_LOST_EVENTS)
        self.is_canceled = False


def _new_record(asked: ReadPlan, idempotency_key: str | None) -> PlanRecord:
    return PlanRecord(
        id=f"plan-{uuid.uuid4().hex}",
        policy=asked.policy,
        status=PlanStatus.QUEUED,
        queued_at_s=time.time(),
        version=__version__,
        input_hash=asked.input_hash,
        options=asked.options.model_dump_json(),
        timings="",
        idempotency_key=idempotency_key,
    )


def _no_plan(plan_id: str) -> NotFoundError:
    return NotFoundError(f"there is no plan {plan_id!r}")
