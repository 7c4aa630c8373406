"""Replays that are not final yet: what clients see of them, and what happens to them."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from api.common.events import STATE, EventLog
from api.common.times import time_of
from api.convert.issues import issue_documents
from api.replays.run import RunningReplays
from api.replays.task import Replayed, ReplayProgress
from api.schemas.plan import FailureDoc
from api.schemas.replay_answer import ReplayDoc, ReplayFiguresDoc, ReplayProgressDoc, ReplayRunDoc, ReplayStatus
from solver.ticket import DeadlineError
from stowplan.errors import StowplanError

_PROGRESS = "progress"
INTERRUPTED = FailureDoc(
    code="interrupted", detail="the service stopped or crashed before the replays were final; ask for the rest again"
)
_LOST = FailureDoc(
    code="deadline",
    detail="a decision, or getting ready, took far longer than the limit and was killed; what came before is lost",
)


class ActiveReplays:
    """Replays of one request. The threads of the pool tell it how far they are.

    `keep_result` gets the number of a replay that has ended, its row and its report, as JSON text.
    """

    def __init__(
        self, document: ReplayDoc, running: RunningReplays, keep_result: Callable[[int, str, str], None]
    ) -> None:
        self.running = running
        self.events = EventLog()
        self.future: Future[None] | None = None
        self.stopped: ReplayStatus | None = None
        self._document = document
        self._rows = list(document.replays)
        self._keep_result = keep_result
        self.events.publish(STATE, {"status": ReplayStatus.QUEUED.value, "replay": None})

    @property
    def document(self) -> ReplayDoc:
        """All that clients see."""
        return with_rows(self._document, self._rows)

    def stop(self, status: ReplayStatus) -> None:
        """Ask those that run to come back with what they have."""
        self.stopped = self.stopped or status
        self.running.stop()

    def kill(self) -> None:
        """End their workers now."""
        self.running.kill()

    def begin(self) -> None:
        """The first replay is about to begin."""
        times = self._document.times.model_copy(update={"running": time_of(time.time())})
        self._document = self._document.model_copy(update={"status": ReplayStatus.RUNNING, "times": times})
        self.events.publish(STATE, {"status": ReplayStatus.RUNNING.value, "replay": None})

    def begun(self, number: int) -> None:
        """A worker has begun with one; not for the first time when another died over it."""
        self._update(number, status=ReplayStatus.RUNNING, num_ended=0, now_s=0.0, elapsed_s=0.0)
        self.events.publish(STATE, {"status": ReplayStatus.RUNNING.value, "replay": number})

    def advanced(self, number: int, progress: ReplayProgress) -> None:
        """One is so far."""
        so_far = {"num_ended": progress.num_ended, "now_s": progress.now_s, "elapsed_s": progress.elapsed_s}
        self._update(number, **so_far)
        self.events.publish(_PROGRESS, {"replay": number, "num_jobs": self._document.num_jobs, **so_far})

    def ended(self, number: int, outcome: Replayed | BaseException) -> None:
        """One came back, or cannot."""
        if isinstance(outcome, Replayed):
            self._keep(number, outcome)
        elif self.stopped is not None:
            self._update(number, status=self.stopped)
        elif isinstance(outcome, DeadlineError):
            self._update(number, status=ReplayStatus.TIMED_OUT, failure=_LOST)
        else:
            self._update(number, status=ReplayStatus.FAILED, failure=_failure(outcome))
        self.events.publish(STATE, {"status": self._rows[number].status.value, "replay": number})

    def end(self, status: ReplayStatus, failure: FailureDoc | None) -> ReplayDoc:
        """None goes on; gives the final document."""
        document = ended_document(self.document, status, failure)
        self._document, self._rows = document, list(document.replays)
        return document

    def _keep(self, number: int, replayed: Replayed) -> None:
        figures, row = replayed.figures, self._rows[number]
        status = ReplayStatus.SUCCEEDED
        if figures.stopped_s is not None:
            status = self.stopped or ReplayStatus.TIMED_OUT
        document = ReplayFiguresDoc.model_validate(figures, from_attributes=True)
        done = row.model_copy(
            update={
                "status": status,
                "num_ended": figures.num_finished,
                "now_s": replayed.now_s,
                "elapsed_s": replayed.elapsed_s,
                "figures": document,
            }
        )
        self._keep_result(number, done.model_dump_json(), replayed.text)
        self._rows[number] = done

    def _update(self, number: int, **values: Any) -> None:
        self._rows[number] = self._rows[number].model_copy(update=values)


def with_rows(document: ReplayDoc, rows: Sequence[ReplayRunDoc]) -> ReplayDoc:
    """The document with these rows, and what they add up to."""
    left_out = next((row.figures.num_left_out for row in rows if row.figures is not None), document.num_left_out)
    num_jobs = document.num_jobs + document.num_left_out - left_out
    progress = ReplayProgressDoc(
        num_jobs=num_jobs * len(rows),
        num_ended=sum(row.num_ended for row in rows),
        num_replays=len(rows),
        num_done=sum(row.status.final for row in rows),
    )
    links = document.links
    if any(has_picture(row) for row in rows):
        links = links.model_copy(
            update={"figure": f"{links.self}/figure.svg", "figure_png": f"{links.self}/figure.png"}
        )
    counted = {"num_jobs": num_jobs, "num_left_out": left_out}
    return document.model_copy(update={"replays": tuple(rows), "progress": progress, "links": links, **counted})


def has_picture(row: ReplayRunDoc) -> bool:
    """Whether there is something to draw of a replay."""
    return row.figures is not None and row.figures.num_jobs > 0


def ended_document(document: ReplayDoc, status: ReplayStatus, failure: FailureDoc | None) -> ReplayDoc:
    """The final document; replays that are not final end with it."""
    rows = [row if row.status.final else row.model_copy(update={"status": status}) for row in document.replays]
    times = document.times.model_copy(update={"finished": time_of(time.time())})
    ended = document.model_copy(update={"status": status, "times": times, "failure": failure})
    return with_rows(ended, rows)


def common_status(rows: Sequence[ReplayRunDoc]) -> ReplayStatus:
    """How replays that all had their turn have ended together."""
    found = {row.status for row in rows}
    worst = (ReplayStatus.FAILED, ReplayStatus.TIMED_OUT)
    return next((status for status in worst if status in found), ReplayStatus.SUCCEEDED)


def _failure(error: BaseException) -> FailureDoc:
    if not isinstance(error, StowplanError):
        return FailureDoc(code="internal_error", detail=str(error))
    return FailureDoc(code=error.code, detail=error.detail, errors=issue_documents(error.issues))
