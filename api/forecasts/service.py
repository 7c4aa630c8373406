"""Forecasters: one is trained at a time, beside the plans and in a process of its own; a few may wait."""

import json
import logging
import threading
import time
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, cast

from starlette.concurrency import run_in_threadpool

from api.common.errors import NoOutcomeError, NotFoundError, ShuttingDownError
from api.common.events import EventLog
from api.common.pages import page_of
from api.common.settings import Settings
from api.common.tasks import run_task
from api.common.times import time_of
from api.common.turns import Turns
from api.convert.issues import issue_documents
from api.figures.picture_format import PictureFormat
from api.forecasts.reading import ReadForecaster
from api.forecasts.task import (
    FIGURE_TASK,
    PREDICT_TASK,
    SNAPSHOT_TASK,
    TRAIN_TASK,
    Asked,
    AskedSnapshot,
    Drawn,
    Trained,
    Training,
)
from api.reading.texts import WantedForecasts
from api.schemas.forecast_answer import (
    ForecasterDoc,
    ForecasterLinksDoc,
    ForecasterList,
    ForecasterPageQuery,
    ForecasterStatus,
    ForecasterSummary,
    ForecasterTimesDoc,
)
from api.schemas.plan import FailureDoc
from api.store.admission import within_share
from api.store.database import Store
from api.store.forecasters import ForecasterStore
from api.store.keys import RequestKey
from api.store.leases import Leases
from models.forecast.extra import require_lightgbm
from models.forecast.known import SnapshotForecasts
from solver.engine import WorkerEngine
from solver.pool import WorkerPool
from solver.ticket import DeadlineError, Pickled
from stowplan import __version__
from stowplan.errors import Issue, StowplanError
from workloads.trace import Trace

FORECASTERS_PATH = "/v1/forecasters"
_INTERRUPTED = FailureDoc(
    code="interrupted", detail="the service stopped or crashed before the forecaster was trained; ask for it again"
)
_LATE = FailureDoc(code="deadline", detail="learning took longer than the limit and was killed; give it more time")
_BUG = FailureDoc(code="internal_error", detail="the service failed on this forecaster; its log says why")
_logger = logging.getLogger("stowplan.api.forecasts.service")


class Forecasters:
    """All forecasters of one service: those that are trained in memory, those that are final in the store.

    What an earlier process left unfinished is marked as interrupted at once.
    """

    def __init__(self, settings: Settings, store: Store, pool: WorkerPool) -> None:
        self._settings = settings
        self._store = ForecasterStore(store)
        self._pool = pool
        self._turns = Turns("forecasters", settings.training_queue_size, self._run, self._drop)
        self._leases = Leases(store)
        self._admit = within_share(settings, "forecasters", settings.training_queue_size)
        self._interrupt_left()

    def submit(self, asked: ReadForecaster, idempotency_key: str | None = None) -> str:
        """Store and queue a forecaster; returns its name.

        Raises
        ------
        ExtraMissingError
            When LightGBM is not installed.
        ForecasterExistsError
            When there is one of this name.
        IdempotencyConflictError
            When the key was used with another request.
        QueueFullError
            When too many wait.
        ShuttingDownError
            When the service stops.
        """
        require_lightgbm()
        document = ForecasterDoc(
            name=asked.name,
            status=ForecasterStatus.QUEUED,
            history=asked.history,
            times=ForecasterTimesDoc(queued=time_of(time.time())),
            links=ForecasterLinksDoc(self=f"{FORECASTERS_PATH}/{asked.name}"),
            num_jobs=asked.num_jobs,
            time_limit_s=asked.time_limit_s,
            input_hash=asked.input_hash,
            version=__version__,
        )
        key = None
        if idempotency_key is not None:
            key = RequestKey(collection=FORECASTERS_PATH, key=idempotency_key, input_hash=asked.input_hash)
        return self._turns.admit(
            asked.name,
            _Active(document, asked.trace),
            lambda: self._store.name_of(key),
            lambda: self._keep(document, key),
        )

    def forecaster(self, name: str) -> ForecasterDoc:
        """Look at a forecaster; NotFoundError when there is none."""
        active = self._turns.get(name)
        if active is not None:
            return active.document
        text = self._store.document(name)
        if text is None:
            raise _no_forecaster(name)
        return ForecasterDoc.model_validate_json(text)

    def page(self, query: ForecasterPageQuery) -> ForecasterList:
        """List forecasters from the newest to the oldest."""
        rows, more = page_of(
            ForecasterSummary, self._store.page, lambda row: self._turns.get(row.name), FORECASTERS_PATH, query
        )
        return ForecasterList(forecasters=rows, next=more)

    def report(self, name: str) -> str:
        """JSON text of how well it did; NoOutcomeError when it has not succeeded."""
        return self._learned(name, self._store.report(name))

    def record(self, name: str) -> str:
        """JSON text of what it learned; NoOutcomeError when it has not succeeded."""
        return self._learned(name, self._store.record(name))

    async def predict(self, name: str, body: bytes) -> str:
        """Answer a request to a forecaster, as JSON text; what the worker raises, and what `record` does."""
        record = await run_in_threadpool(self.record, name)
        require_lightgbm()
        found: str = await run_task(self._pool, PREDICT_TASK, Asked(name=name, record=record, body=body))
        return found

    async def of_snapshot(self, wanted: WantedForecasts) -> SnapshotForecasts | Issue:
        """Say how much longer jobs of a snapshot last, or why that cannot be asked.

        Raises
        ------
        ExtraMissingError
            When LightGBM is not installed.
        WorkerTimeoutError, QueueFullError
            When no worker does it in time.
        """
        name, pointer = wanted.forecaster, "/snapshot/forecaster"
        try:
            record = await run_in_threadpool(self.record, name)
        except NotFoundError:
            detail = f"is {name!r}; there is no forecaster of that name: POST {FORECASTERS_PATH} first"
            return Issue(code="unknown_forecaster", pointer=pointer, detail=detail)
        except NoOutcomeError:
            status = (await run_in_threadpool(self.forecaster, name)).status.value
            detail = f"is {name!r}, which is {status}; it can be asked once it has succeeded"
            return Issue(code="forecaster_not_ready", pointer=pointer, detail=detail)
        at_s = time.time() if wanted.at_s is None else wanted.at_s
        if not wanted.jobs:
            return SnapshotForecasts(history=name, trained_until_s=None, at_s=at_s, jobs={})
        require_lightgbm()
        asked = AskedSnapshot(record=record, jobs=wanted.jobs, at_s=at_s)
        found: SnapshotForecasts = await run_task(self._pool, SNAPSHOT_TASK, asked)
        return found

    async def figure(self, name: str, format_: PictureFormat) -> bytes:
        """Draw how well it did."""
        report = await run_in_threadpool(self.report, name)
        drawn: bytes = await run_task(self._pool, FIGURE_TASK, Drawn(name=name, report=report, format=format_))
        return drawn

    async def wait(self, name: str, timeout_s: float) -> None:
        """Return when the forecaster is final, or the time is over."""
        with suppress(NotFoundError):
            await self._turns.wait(name, timeout_s, lambda: self.forecaster(name))

    def remove(self, name: str) -> ForecasterDoc | None:
        """Delete a final forecaster; end one that is not, and give it as it stands."""
        canceled = self._turns.cancel(name, ForecasterStatus.CANCELED)
        if canceled is not None:
            return canceled.document
        if self._leases.ask_end(self._store.lease_id(name)):
            return self.forecaster(name)
        if not self._turns.delete(name, lambda: self._store.delete(name)):
            raise _no_forecaster(name)
        return None

    def look(self, wanted: Collection[str]) -> None:
        """Stop what another service was asked to, and end what services had that live no more."""
        for name in self._turns.ids():
            if self._store.lease_id(name) in wanted:
                self._turns.cancel(name, ForecasterStatus.CANCELED)
        self._interrupt_left()

    def begin_shutdown(self) -> None:
        """Take no new forecasters and end the training that runs: it has nothing to come back with."""
        self._turns.begin_shutdown(ForecasterStatus.INTERRUPTED)

    def close(self, end_s: float) -> None:
        """Stop, at the latest at `end_s` (monotonic clock)."""
        self.begin_shutdown()
        self._turns.close(end_s)

    def _learned(self, name: str, text: str | None) -> str:
        if text is None:
            raise NoOutcomeError(f"forecaster {name!r} is {self.forecaster(name).status.value}: it has learned nothing")
        return text

    def _keep(self, document: ForecasterDoc, key: RequestKey | None) -> None:
        self._store.add(document.name, document.model_dump_json(), key, self._admit, _leaves_its_name)

    def _interrupt_left(self) -> None:
        for text in self._store.take_up():
            left = _ended(ForecasterDoc.model_validate_json(text), ForecasterStatus.INTERRUPTED, _INTERRUPTED)
            self._store.finish(left.name, left.model_dump_json(), is_interrupted=True)

    def _drop(self, active: "_Active") -> None:
        self._finish(active, active.stopped or ForecasterStatus.CANCELED, None)

    def _run(self, active: "_Active") -> None:
        try:
            active.begin()
            trained = active.train(self._settings.deadline_slack_s, self._pool.engine)
        except DeadlineError:
            self._finish(active, active.stopped or ForecasterStatus.TIMED_OUT, _LATE)
        except StowplanError as error:
            failure = FailureDoc(code=error.code, detail=error.detail, errors=issue_documents(error.issues))
            self._finish(active, active.stopped or ForecasterStatus.FAILED, failure)
        except Exception:
            _logger.exception("forecaster %s failed", active.document.name)
            self._finish(active, active.stopped or ForecasterStatus.FAILED, _BUG)
        else:
            self._finish(active, ForecasterStatus.SUCCEEDED, None, trained)

    def _finish(
        self, active: "_Active", status: ForecasterStatus, failure: FailureDoc | None, trained: Trained | None = None
    ) -> None:
        stopped = {ForecasterStatus.INTERRUPTED: _INTERRUPTED, ForecasterStatus.CANCELED: None}
        document = _ended(active.document, status, stopped.get(status, failure), trained)
        texts = (None, None) if trained is None else (trained.record, trained.report)
        is_interrupted = status is ForecasterStatus.INTERRUPTED

        def store() -> None:
            self._store.finish(document.name, document.model_dump_json(), *texts, is_interrupted=is_interrupted)
            # Not before: it can be asked then.
            active.document = document
            active.events.close()

        self._turns.end(document.name, store)


class _Active:
    """One forecaster that is not final yet; `document` is what clients see of it."""

    def __init__(self, document: ForecasterDoc, trace: bytes) -> None:
        self.document = document
        self.events = EventLog()
        self.future: Future[None] | None = None
        self.stopped: ForecasterStatus | None = None
        self._trace = trace
        self._lock = threading.Lock()
        self._pool: WorkerPool | None = None

    def begin(self) -> None:
        """A worker is about to learn."""
        times = self.document.times.model_copy(update={"running": time_of(time.time())})
        self.document = self.document.model_copy(update={"status": ForecasterStatus.RUNNING, "times": times})

    def train(self, slack_s: float, engine: WorkerEngine) -> Trained:
        """Learn in a process of its own, which ends at the limit."""
        # All that comes back comes at the end: when a worker dies, of memory or by our hand, nobody tries again.
        preload = (TRAIN_TASK.partition(":")[0],)
        with WorkerPool(1, 1, preload=preload, attempts=1, engine=engine) as pool:
            with self._lock:
                self._pool = pool
                if self.stopped is not None:
                    raise ShuttingDownError("it was stopped before it began")
            training = Training(trace=cast("Trace", Pickled(self._trace)))
            limit_s = self.document.time_limit_s + min(slack_s, self.document.time_limit_s)
            trained: Any = pool.submit(TRAIN_TASK, training, limit_s).result()
        return cast("Trained", trained)

    def stop(self, status: ForecasterStatus) -> None:
        """End the worker now."""
        with self._lock:
            self.stopped = self.stopped or status
            pool = self._pool
        if pool is not None:
            pool.close()

    def kill(self) -> None:
        """Nothing is left to end: `stop` has."""


def _ended(
    document: ForecasterDoc, status: ForecasterStatus, failure: FailureDoc | None, trained: Trained | None = None
) -> ForecasterDoc:
    """The final document."""
    times = document.times.model_copy(update={"finished": time_of(time.time())})
    values: dict[str, Any] = {"status": status, "times": times, "failure": failure}
    if trained is not None:
        path = document.links.self
        links = {name: f"{path}/{name}" for name in ("report", "record")}
        figures = {"figure": f"{path}/figure.svg", "figure_png": f"{path}/figure.png"}
        values["links"] = document.links.model_copy(update={**links, **figures})
        values |= {name: getattr(trained, name) for name in ("digest", "origin_s", "trained_until_s")}
    return document.model_copy(update=values)


def _leaves_its_name(document: str) -> bool:
    return bool(json.loads(document)["status"] == ForecasterStatus.INTERRUPTED)


def _no_forecaster(name: str) -> NotFoundError:
    return NotFoundError(f"there is no forecaster {name!r}")
