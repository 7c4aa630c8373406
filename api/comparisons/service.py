"""Comparisons of solvers: one runs at a time, beside the plans and in processes of its own; a few may wait."""

import logging
import time
import uuid
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress

from api.common.errors import NoOutcomeError, NotFoundError
from api.common.events import EventLog
from api.common.pages import page_of
from api.common.settings import Settings
from api.common.times import time_of
from api.common.turns import Turns
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
from api.store.admission import within_share
from api.store.database import Store
from api.store.keys import RequestKey
from api.store.leases import Leases
from models.comparison import SolverRun
from solver.engine import WorkerEngine

COMPARISONS_PATH = "/v1/solver-comparisons"
# Start of a worker, and what the pool allows it beyond its deadline.
_WORKER_OVERHEAD_S = 70.0
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

    def __init__(self, settings: Settings, store: Store, engine: WorkerEngine) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self._turns = Turns("comparisons", settings.comparison_queue_size, self._run, self._drop)
        self._leases = Leases(store)
        self._admit = within_share(settings, "comparisons", settings.comparison_queue_size)
        self._interrupt_left()

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
        return self._turns.admit(
            id_,
            _Active(document, SolverComparison(request, slack_s, engine=self._engine)),
            lambda: self._store.resource_of(key),
            lambda: self._store.add_comparison(id_, document.model_dump_json(), key, self._admit),
        )

    def comparison(self, comparison_id: str) -> ComparisonDoc:
        """Look at a comparison, with the rows that it has so far; NotFoundError when there is none."""
        active = self._turns.get(comparison_id)
        if active is not None:
            return active.document
        text = self._store.comparison(comparison_id)
        if text is None:
            raise _no_comparison(comparison_id)
        return ComparisonDoc.model_validate_json(text)

    def page(self, query: ComparisonPageQuery) -> ComparisonList:
        """List comparisons from the newest to the oldest."""
        rows, more = page_of(
            ComparisonSummary, self._store.comparisons, lambda row: self._turns.get(row.id), COMPARISONS_PATH, query
        )
        return ComparisonList(comparisons=rows, next=more)

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
        with suppress(NotFoundError):
            await self._turns.wait(comparison_id, timeout_s, lambda: self.comparison(comparison_id))

    def remove(self, comparison_id: str) -> ComparisonDoc | None:
        """Delete a final comparison; ask one that is not to stop, and give it as it stands."""
        canceled = self._turns.cancel(comparison_id, ComparisonStatus.CANCELED)
        if canceled is not None:
            return canceled.document
        if self._leases.ask_end(comparison_id):
            return self.comparison(comparison_id)
        if not self._turns.delete(comparison_id, lambda: self._store.delete_comparison(comparison_id)):
            raise _no_comparison(comparison_id)
        return None

    def look(self, wanted: Collection[str]) -> None:
        """Stop what another service was asked to, and end what services had that live no more."""
        for id_ in wanted:
            self._turns.cancel(id_, ComparisonStatus.CANCELED)
        self._interrupt_left()

    def begin_shutdown(self) -> None:
        """Take no new comparisons and ask the one that runs to come back with what it has."""
        self._turns.begin_shutdown(ComparisonStatus.INTERRUPTED)

    def close(self, end_s: float) -> None:
        """Stop; the worker is killed when it has not come back at `end_s` (monotonic clock)."""
        self.begin_shutdown()
        self._turns.close(end_s)

    def _interrupt_left(self) -> None:
        for text in self._store.take_up_comparisons():
            left = _finished(ComparisonDoc.model_validate_json(text), ComparisonStatus.INTERRUPTED, _INTERRUPTED)
            self._store.finish_comparison(left.id, left.model_dump_json(), is_interrupted=True)

    def _drop(self, active: "_Active") -> None:
        self._finish(active, active.stopped or ComparisonStatus.CANCELED, None)

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
        text = active.document.model_dump_json()
        self._turns.end(
            document.id, lambda: self._store.finish_comparison(document.id, text, is_interrupted=is_interrupted)
        )
        active.events.close()


class _Active:
    """One comparison that is not final yet; `document` is what clients see of it."""

    def __init__(self, document: ComparisonDoc, comparison: SolverComparison) -> None:
        self.document = document
        self.comparison = comparison
        self.events = EventLog()
        self.future: Future[None] | None = None
        self.stopped: ComparisonStatus | None = None

    def stop(self, status: ComparisonStatus) -> None:
        self.stopped = self.stopped or status
        self.comparison.stop()

    def kill(self) -> None:
        self.comparison.kill()

    def begin(self) -> None:
        times = self.document.times.model_copy(update={"running": time_of(time.time())})
        self.document = self.document.model_copy(update={"status": ComparisonStatus.RUNNING, "times": times})

    def add(self, run: SolverRun) -> None:
        path = self.document.links.self
        links = ComparisonLinksDoc(self=path, figure=f"{path}/figure.svg", figure_png=f"{path}/figure.png")
        runs = (*self.document.runs, run_document(run))
        self.document = self.document.model_copy(update={"runs": runs, "links": links})


def _finished(document: ComparisonDoc, status: ComparisonStatus, failure: FailureDoc | None) -> ComparisonDoc:
    times = document.times.model_copy(update={"finished": time_of(time.time())})
    return document.model_copy(update={"status": status, "times": times, "failure": failure})


def _no_comparison(comparison_id: str) -> NotFoundError:
    return NotFoundError(f"there is no comparison {comparison_id!r}")
