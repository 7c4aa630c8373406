"""Replays: those of one request run at a time, beside the plans and in processes of their own; a few may wait."""

import json
import logging
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial

from api.common.errors import NoOutcomeError, NotFoundError
from api.common.events import STATE, EventLog, PlanEvent
from api.common.pages import page_of
from api.common.settings import Settings
from api.common.times import time_of
from api.common.turns import Turns
from api.replays.active import INTERRUPTED, ActiveReplays, common_status, ended_document, has_picture, with_rows
from api.replays.reading import ReadReplays
from api.replays.run import RunningReplays
from api.schemas.plan import FailureDoc
from api.schemas.replay_answer import (
    ReplayDoc,
    ReplayLinksDoc,
    ReplayList,
    ReplayPageQuery,
    ReplayProgressDoc,
    ReplayRunDoc,
    ReplayStatus,
    ReplaySummary,
    ReplayTimesDoc,
)
from api.store.admission import within_share
from api.store.database import Store
from api.store.keys import RequestKey
from api.store.leases import Leases
from api.store.replays import LeftReplays, ReplayStore
from solver.engine import WorkerEngine
from stowplan import __version__

REPLAYS_PATH = "/v1/replays"
# Whoever has seen events that were lost with an earlier process learns how it ended.
_AFTER_LOST_EVENTS = 1_000_000_000
_BUG = FailureDoc(code="internal_error", detail="the service failed on these replays; its log says why")
_logger = logging.getLogger("stowplan.api.replays.service")


class Replays:
    """All replays of one service: those that run in memory, those that are final in the store.

    What an earlier process left unfinished is marked as interrupted at once, and keeps the replays that had ended; the
    same request under the same key begins anew then.
    """

    def __init__(self, settings: Settings, store: Store, engine: WorkerEngine) -> None:
        self._settings = settings
        self._store = ReplayStore(store)
        self._engine = engine
        self._turns = Turns("replays", settings.replay_queue_size, self._run, self._drop)
        self._leases = Leases(store)
        self._admit = within_share(settings, "replays", settings.replay_queue_size)
        # Events of those that another service has; they come together, at the end.
        self._followed: dict[str, EventLog] = {}
        self._interrupt_left()

    def submit(self, asked: ReadReplays, idempotency_key: str | None = None) -> str:
        """Store and queue replays; returns their id.

        Raises
        ------
        IdempotencyConflictError
            When the key was used with another request.
        QueueFullError
            When too many wait.
        ShuttingDownError
            When the service stops.
        """
        id_, settings = f"replays-{uuid.uuid4().hex}", self._settings
        path = f"{REPLAYS_PATH}/{id_}"
        running = RunningReplays(
            asked.packed,
            asked.time_limit_s,
            settings.deadline_slack_s,
            num_processes=settings.replay_processes,
            engine=self._engine,
        )
        document = ReplayDoc(
            id=id_,
            status=ReplayStatus.QUEUED,
            trace=asked.trace,
            policies=asked.policies,
            seeds=asked.seeds,
            times=ReplayTimesDoc(queued=time_of(time.time())),
            links=ReplayLinksDoc(self=path, events=f"{path}/events", report=f"{path}/report"),
            num_gpus=asked.num_gpus,
            num_jobs=asked.num_jobs,
            num_left_out=asked.num_left_out,
            time_limit_s=asked.time_limit_s,
            longest_s=running.longest_s,
            input_hash=asked.input_hash,
            version=__version__,
            progress=ReplayProgressDoc(num_jobs=0, num_ended=0, num_replays=0, num_done=0),
            replays=asked.rows,
        )
        key = None
        if idempotency_key is not None:
            key = RequestKey(collection=REPLAYS_PATH, key=idempotency_key, input_hash=asked.input_hash)
        return self._turns.admit(
            id_,
            ActiveReplays(document, running, partial(self._keep_result, id_)),
            lambda: self._store.resource_of(key),
            lambda: self._store.add(id_, document.model_dump_json(), asked.cluster, key, self._admit),
        )

    def replays(self, replays_id: str) -> ReplayDoc:
        """Look at replays as far as they are; NotFoundError when there are none."""
        active = self._turns.get(replays_id)
        if active is not None:
            return active.document
        text = self._store.document(replays_id)
        if text is None:
            raise _no_replays(replays_id)
        return ReplayDoc.model_validate_json(text)

    def page(self, query: ReplayPageQuery) -> ReplayList:
        """List replays from the newest to the oldest."""
        rows, more = page_of(ReplaySummary, self._store.page, lambda row: self._turns.get(row.id), REPLAYS_PATH, query)
        return ReplayList(replays=rows, next=more)

    def report(self, replays_id: str) -> Iterator[str]:
        """JSON text of all replays that have figures, in parts; NotFoundError when there are none of this id."""
        self.replays(replays_id)
        return self._report(replays_id)

    def drawable(self, replays_id: str) -> tuple[str, list[str]]:
        """JSON text of the cluster, and of the first replay of every policy that has figures.

        Raises
        ------
        NoOutcomeError
            When there is none yet.
        """
        document = self.replays(replays_id)
        first: dict[tuple[str, str], int] = {}
        for k, row in enumerate(document.replays):
            if has_picture(row):
                first.setdefault((row.policy, str(row.parameters)), k)
        if not first:
            raise NoOutcomeError(f"{replays_id} is {document.status.value}: no replay has jobs to draw")
        texts = [self._store.result(replays_id, number) for number in first.values()]
        return self._store.cluster(replays_id) or "", [text for text in texts if text is not None]

    def events(self, replays_id: str) -> EventLog:
        """Events of replays, running or final; NotFoundError when there are none."""
        active = self._turns.get(replays_id)
        if active is not None:
            return active.events
        if not self.replays(replays_id).status.final:
            return self._followed.setdefault(replays_id, EventLog())
        return EventLog.of_past(self._past_events(replays_id))

    async def wait(self, replays_id: str, timeout_s: float) -> None:
        """Return when the replays are final, or the time is over."""
        with suppress(NotFoundError):
            await self._turns.wait(replays_id, timeout_s, lambda: self.replays(replays_id))

    def remove(self, replays_id: str) -> ReplayDoc | None:
        """Delete final replays; ask those that are not to stop, and give them as they stand."""
        canceled = self._turns.cancel(replays_id, ReplayStatus.CANCELED)
        if canceled is not None:
            return canceled.document
        if self._leases.ask_end(replays_id):
            return self.replays(replays_id)
        if not self._turns.delete(replays_id, lambda: self._store.delete(replays_id)):
            raise _no_replays(replays_id)
        return None

    def look(self, wanted: Collection[str]) -> None:
        """Stop what another service was asked to, end what services had that live no more, and look whether those have
        ended that are followed."""
        for id_ in wanted:
            self._turns.cancel(id_, ReplayStatus.CANCELED)
        self._interrupt_left()
        for id_, log in list(self._followed.items()):
            with suppress(NotFoundError):
                if not self.replays(id_).status.final:
                    continue
            log.extend(self._past_events(id_))
            log.close()
            del self._followed[id_]

    def begin_shutdown(self) -> None:
        """Take no new replays and ask those that run to come back with what they have."""
        self._turns.begin_shutdown(ReplayStatus.INTERRUPTED)

    def close(self, end_s: float) -> None:
        """Stop; workers are killed that have not come back at `end_s` (monotonic clock)."""
        self.begin_shutdown()
        self._turns.close(end_s)

    def _report(self, replays_id: str) -> Iterator[str]:
        yield '{"replays": ['
        found = (self._store.result(replays_id, number) for number in self._store.numbers(replays_id))
        # They may be deleted meanwhile.
        for k, text in enumerate(text for text in found if text is not None):
            yield f", {text}" if k else text
        yield "]}\n"

    def _keep_result(self, replays_id: str, number: int, row: str, result: str) -> None:
        self._turns.write(replays_id, lambda: self._store.add_result(replays_id, number, row, result))

    def _drop(self, active: ActiveReplays) -> None:
        self._finish(active, active.stopped or ReplayStatus.CANCELED, None)

    def _run(self, active: ActiveReplays) -> None:
        try:
            active.begin()
            active.running.run(active)
        except Exception:
            _logger.exception("replays %s failed", active.document.id)
            self._finish(active, ReplayStatus.FAILED, _BUG)
            return
        rows = active.document.replays
        # They may all have ended before they were stopped.
        is_stopped = any(not row.status.final or row.status is active.stopped for row in rows)
        self._finish(active, active.stopped if active.stopped and is_stopped else common_status(rows), None)

    def _finish(self, active: ActiveReplays, status: ReplayStatus, failure: FailureDoc | None) -> None:
        document = active.end(status, INTERRUPTED if status is ReplayStatus.INTERRUPTED else failure)
        state = {"status": status.value, "replay": None}
        events = json.dumps([event.document for event in active.events.preview(STATE, state)])
        is_interrupted = status is ReplayStatus.INTERRUPTED
        text = document.model_dump_json()
        self._turns.end(
            document.id, lambda: self._store.finish(document.id, text, events, is_interrupted=is_interrupted)
        )
        active.events.publish(STATE, state)
        active.events.close()

    def _past_events(self, replays_id: str) -> list[PlanEvent]:
        return [PlanEvent(**event) for event in json.loads(self._store.events(replays_id) or "[]")]

    def _interrupt_left(self) -> None:
        for left in self._store.take_up():
            self._interrupt(left)

    def _interrupt(self, left: LeftReplays) -> None:
        """End what an earlier process left unfinished."""
        document = ReplayDoc.model_validate_json(left.document)
        rows = list(document.replays)
        for number, text in left.rows.items():
            rows[number] = ReplayRunDoc.model_validate_json(text)
        ended = ended_document(with_rows(document, rows), ReplayStatus.INTERRUPTED, INTERRUPTED)
        state = PlanEvent(id=_AFTER_LOST_EVENTS, name=STATE, data={"status": ended.status.value, "replay": None})
        self._store.finish(ended.id, ended.model_dump_json(), json.dumps([state.document]), is_interrupted=True)


def _no_replays(replays_id: str) -> NotFoundError:
    return NotFoundError(f"there are no replays {replays_id!r}")
