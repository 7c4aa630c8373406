"""Comparisons of solvers: one runs at a time, beside the plans and in processes of its own; a few may wait."""

import logging
import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor

from api.common.errors import NoOutcomeError, NotFoundError, ShuttingDownError, StoreError
from api.common.events import EventLog
from api.common.settings import Settings
from api.common.times import time_of
from api.comparisons.race import SolverComparison
from api.comparisons.reading import ReadComparison
from api.convert.comparison import agreement_document, run_document
from api.schemas.comparison import (
    ComparisonDoc,
    ComparisonLinksDoc,
    ComparisonList,
    ComparisonPageQuery,
    ComparisonStatus,
    ComparisonSummary,
    ComparisonTimesDoc,
)
from api.schemas.plan import FailureDoc
from api.store.database import Store
from api.store.keys import RequestKey
from models.comparison import SolverRun
from solver.pool import QueueFullError

COMPARISONS_PATH = "/v1/solver-comparisons"
# Start of a worker, and what the pool allows it beyond its deadline.
_WORKER_OVERHEAD_S = 70.0
_POLL_S = 0.02
_INTERRUPTED = FailureDoc(
    code="interrupted", detail="the service stopped or crashed before the comparison was final; ask for it again"
)
_BUG = FailureDoc(code="internal_error", detail="the service failed on this comparison; its log says why")
_logger = logging.getLogger("stowplan.api.comparisons.service")


class Comparisons:
    """All comparisons of one service: those that run in memory, those that are final in the store.

    What an earlier process left unfinished is marked as interrupted at once; the same request under the same key begins
    anew then.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._admission = threading.Lock()
        self._active: dict[str, _Active] = {}
        self._stopping = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compare")
        for text in store.unfinished_comparisons():
            left = _finished(ComparisonDoc.model_validate_json(text), ComparisonStatus.INTERRUPTED, _INTERRUPTED)
            store.finish_comparison(left.id, left.model_dump_json(), is_interrupted=True)

    def submit(self, asked: ReadComparison, idempotency_key: str | None = None) -> str:
        """Store and queue a comparison; returns its id.

        Raises
        ------
        IdempotencyConflictError
            When the key was used with another request.
        QueueFullError
            When too many comparisons wait.
        ShuttingDownError
            When the service stops.
        """
        request = asked.request.for_worker()
        id_, slack_s = f"comparison-{uuid.uuid4().hex}", self._settings.deadline_slack_s
        path = f"{COMPARISONS_PATH}/{id_}"
        document = ComparisonDoc(
            **dict(asked.document),
            id=id_,
            status=ComparisonStatus.QUEUED,
            times=ComparisonTimesDoc(queued=time_of(time.time())),
            longest_s=len(asked.document.solvers) * (request.options.time_limit_s + slack_s + _WORKER_OVERHEAD_S),
            input_hash=asked.input_hash,
            links=ComparisonLinksDoc(self=path, figure=None),
        )
        key = None
        if idempotency_key is not None:
            key = RequestKey(collection=COMPARISONS_PATH, key=idempotency_key, input_hash=asked.input_hash)
        return self._admit(_Active(document, SolverComparison(request, slack_s)), key)

    def comparison(self, comparison_id: str) -> ComparisonDoc:
        """Look at a comparison, with the rows that it has so far; NotFoundError when there is none."""
        active = self._active.get(comparison_id)
        if active is not None:
            return active.document
        text = self._store.comparison(comparison_id)
        if text is None:
            raise _no_comparison(comparison_id)
        return ComparisonDoc.model_validate_json(text)

    def page(self, query: ComparisonPageQuery) -> ComparisonList:
        """List comparisons from the newest to the oldest."""
        # One more than asked for tells whether there is a next page.
        records = self._store.comparisons(tuple(ComparisonSummary.model_fields), query.limit + 1, query.before)
        page = records[: query.limit]
        more = f"{COMPARISONS_PATH}?limit={query.limit}&before={page[-1][0]}" if len(records) > query.limit else None
        return ComparisonList(comparisons=tuple(self._summary(text) for _, text in page), next=more)

    def drawable(self, comparison_id: str) -> ComparisonDoc:
        """Look at a comparison that has something to draw.

        Raises
        ------
        NoOutcomeError
            When no solver has had its turn.
        """
        document = self.comparison(comparison_id)
        if document.links.figure is None:
            raise NoOutcomeError(f"{comparison_id} is {document.status.value}: there is nothing to draw yet")
        return document

    async def wait(self, comparison_id: str, timeout_s: float) -> None:
        """Return when the comparison is final, or the time is over."""
        active = self._active.get(comparison_id)
        if active is not None:
            await active.events.wait_closed(timeout_s)

    def remove(self, comparison_id: str) -> ComparisonDoc | None:
        """Delete a final comparison; ask one that is not to stop, and give it as it stands."""
        active = self._active.get(comparison_id)
        if active is not None and not active.document.status.final:
            self._stop(active, ComparisonStatus.CANCELED)
            return active.document
        self._active.pop(comparison_id, None)
        if not self._store.delete_comparison(comparison_id):
            raise _no_comparison(comparison_id)
        return None

    def begin_shutdown(self) -> None:
        """Take no new comparisons and ask the one that runs to come back with what it has."""
        with self._admission:
            self._stopping = True
        for active in list(self._active.values()):
            self._stop(active, ComparisonStatus.INTERRUPTED)

    def close(self, end_s: float) -> None:
        """Stop; the worker is killed when it has not come back at `end_s` (monotonic clock)."""
        self.begin_shutdown()
        while self._active and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        for active in list(self._active.values()):
            active.comparison.kill()
        self._thread.shutdown()

    def _summary(self, text: str) -> ComparisonSummary:
        """A line of the list; the store knows only how a comparison began and how it ended."""
        stored = ComparisonSummary.model_validate_json(text)
        active = self._active.get(stored.id)
        if active is None:
            return stored
        known = active.document
        return ComparisonSummary(**{name: getattr(known, name) for name in ComparisonSummary.model_fields})

    def _admit(self, active: "_Active", key: RequestKey | None) -> str:
        """Store the comparison, then queue it; returns its id, or that of the one which came of the same request."""
        document = active.document
        with self._admission:
            known = self._store.resource_of(key)
            if known is not None:
                return known
            if self._stopping:
                raise ShuttingDownError("the service stops; ask again when it is back")
            num_active = len(self._active)
            if num_active > self._settings.comparison_queue_size:
                raise QueueFullError(f"{num_active} comparisons run or wait, which is as many as this service takes")
            self._store.add_comparison(document.id, document.model_dump_json(), key)
            self._active[document.id] = active
            active.future = self._thread.submit(self._run, active)
        return document.id

    def _stop(self, active: "_Active", status: ComparisonStatus) -> None:
        active.stopped = active.stopped or status
        active.comparison.stop()
        if active.future is not None and active.future.cancel():
            # It waited, and now never begins.
            self._finish(active, active.stopped, None)

    def _run(self, active: "_Active") -> None:
        """Run one solver after the other; every row can be seen at once."""
        try:
            active.begin()
            runs: list[SolverRun] = []
            for solver in active.document.solvers:
                runs.append(active.comparison.run(solver))
                active.add(runs[-1])
            active.document = active.document.model_copy(update={"agreement": agreement_document(runs)})
        except Exception:
            _logger.exception("comparison %s failed", active.document.id)
            self._finish(active, ComparisonStatus.FAILED, _BUG)
        else:
            self._finish(active, active.stopped or ComparisonStatus.SUCCEEDED, None)

    def _finish(self, active: "_Active", status: ComparisonStatus, failure: FailureDoc | None) -> None:
        document, agreement = active.document, active.document.agreement
        if agreement is not None and agreement.errors:
            detail = "; ".join([agreement.statement, *agreement.errors])
            _logger.error("comparison %s: %s", document.id, detail)
            status, failure = ComparisonStatus.FAILED, FailureDoc(code="solvers_disagree", detail=detail)
        if status is ComparisonStatus.INTERRUPTED:
            failure = _INTERRUPTED
        active.document = _finished(document, status, failure)
        is_interrupted = status is ComparisonStatus.INTERRUPTED
        try:
            self._store.finish_comparison(document.id, active.document.model_dump_json(), is_interrupted=is_interrupted)
            self._active.pop(document.id, None)
        except StoreError:
            # It stays in memory, where clients still find it.
            _logger.exception("comparison %s cannot be stored", document.id)
        active.events.close()


class _Active:
    """One comparison that is not final yet; `document` is what clients see of it."""

    def __init__(self, document: ComparisonDoc, comparison: SolverComparison) -> None:
        self.document = document
        self.comparison = comparison
        self.events = EventLog()
        self.future: Future[None] | None = None
        self.stopped: ComparisonStatus | None = None

    def begin(self) -> None:
        times = self.document.times.model_copy(update={"running": time_of(time.time())})
        self.document = self.document.model_copy(update={"status": ComparisonStatus.RUNNING, "times": times})

    def add(self, run: SolverRun) -> None:
        links = ComparisonLinksDoc(self=self.document.links.self, figure=f"{self.document.links.self}/figure.svg")
        runs = (*self.document.runs, run_document(run))
        self.document = self.document.model_copy(update={"runs": runs, "links": links})


def _finished(document: ComparisonDoc, status: ComparisonStatus, failure: FailureDoc | None) -> ComparisonDoc:
    times = document.times.model_copy(update={"finished": time_of(time.time())})
    return document.model_copy(update={"status": status, "times": times, "failure": failure})


def _no_comparison(comparison_id: str) -> NotFoundError:
    return NotFoundError(f"there is no comparison {comparison_id!r}")
