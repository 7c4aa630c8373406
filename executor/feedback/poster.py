"""Sends what ranks measured to the service, however often either of them goes away.

A batch is sent until the service answers it. Answer and what follows:

    200              acknowledged
    413              sent again in smaller batches; a single record that is too large is set aside
    400, 422         the records that the errors point to are set aside, the others sent again; where the errors point
                     to none, all are set aside. A launch that the service does not know is announced first.
    anything else    kept, and sent again after a pause: the service is away, busy, or asks for another token
"""

import json
import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from executor.feedback.run import UnknownClusterError, run_document
from executor.feedback.spool import Batch, Line, Refusal, Spool
from stowplan.errors import StowplanError

MAX_RECORDS = 1000
_MAX_BYTES = 4 * 2**20
_PAUSE_S, _LONGEST_PAUSE_S, _MOST_FAILURES = 1.0, 60.0, 10
_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)
_RECORD = re.compile(r"/(?:records|steps)/([0-9]+)(?:/|$)")
_logger = logging.getLogger("stowplan.executor.feedback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: HTTP status and document; `retry_after_s` where the service asks for a pause."""

    status: int
    document: Any
    retry_after_s: float | None = None


class UnreachableError(StowplanError):
    """The service did not answer."""

    code = "unreachable"


class Transport(Protocol):
    """How batches get to a job of a service; `target` names both."""

    target: str

    def post(self, body: str) -> Answer:
        """Send the JSON text of a batch; UnreachableError when there is no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a flush has done. `kept`: why records wait, None when none does; `retry_after_s` as the service asks."""

    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    kept: str | None = None
    retry_after_s: float | None = None


class _KeptError(Exception):
    """The batch has to wait."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(_detail(answer))
        self.retry_after_s = answer.retry_after_s


class MetricsPoster:
    """Sends everything below a folder (`executor.feedback.spool`) by a transport.

    Parameters
    ----------
    skips_unknown
        Whether records of runs whose nodes are not known are set aside, so that later runs do not wait for them.
        Otherwise they are an error that somebody must mend.

    Raises
    ------
    InputError
        When the folder cannot be read.
    """

    def __init__(self, folder: Path, transport: Transport, *, skips_unknown: bool = False) -> None:
        self._spool = Spool(folder, transport.target)
        self._transport = transport
        self._skips_unknown = skips_unknown
        self._max_records = MAX_RECORDS

    @property
    def refused(self) -> Path:
        """File with the records that the service refused."""
        return self._spool.refused

    def flush(self) -> Delivery:
        """Send what is there now, until all has arrived or the service does not take it.

        Raises
        ------
        InputError
            When the service must be told what a launch runs, and the folder does not say it.
        """
        total = Delivery()
        while (batch := self._spool.next_batch(self._max_records, _MAX_BYTES)) is not None:
            try:
                done = self._deliver(batch)
            except UnreachableError as error:
                return replace(total, kept=error.detail)
            except _KeptError as error:
                return replace(total, kept=str(error), retry_after_s=error.retry_after_s)
            total = _sum(total, done)
        return total

    def run(self, stop: threading.Event, interval_s: float = 2.0) -> Delivery:
        """Send as steps are done, until told to stop, and then once more; returns what has been done in all."""
        total, failures = Delivery(), 0
        while True:
            last = stop.is_set()
            done = self.flush()
            total = _sum(total, done)
            if last:
                return replace(total, kept=done.kept)
            if done.kept is None:
                failures = 0
                stop.wait(interval_s)
                continue
            pause_s = done.retry_after_s or min(_PAUSE_S * 2**failures, _LONGEST_PAUSE_S)
            failures = min(failures + 1, _MOST_FAILURES)
            _logger.warning("kept for %.0f s: %s", pause_s, done.kept)
            stop.wait(pause_s)

    def _deliver(self, batch: Batch) -> Delivery:
        """Send a batch until it is accepted, or refused in parts or as a whole."""
        lines, refusals, run = list(batch.lines), list[Refusal](), None
        accepted = duplicates = 0
        while lines:
            answer = self._transport.post(_body(run, lines, whole_steps=batch.whole_steps))
            if answer.status == HTTPStatus.OK:
                accepted, duplicates = _receipt(answer)
                break
            if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and len(lines) > 1:
                # Nothing has been noted: what is left of the batch comes again in smaller ones.
                self._max_records = len(lines) // 2
                return Delivery()
            if answer.status not in _REFUSED:
                raise _KeptError(answer)
            if run is None and any(error.get("code") == "unknown_launch" for error in _errors(answer)):
                try:
                    run = run_document(batch.run, self._spool.folder, batch.launch)
                except UnknownClusterError as error:
                    if not self._skips_unknown:
                        raise
                    refusals += [Refusal(line=line, status=answer.status, detail=error.detail) for line in lines]
                    break
                continue
            wrong = _wrong_records(answer, len(lines))
            detail = _detail(answer)
            refusals += [
                Refusal(line=lines[k], status=answer.status, detail=detail, errors=tuple(errors))
                for k, errors in wrong.items()
            ]
            lines = [line for k, line in enumerate(lines) if k not in wrong]
        if refusals:
            self._spool.set_aside(refusals)
        self._spool.acknowledge(batch)
        return Delivery(accepted=accepted, duplicates=duplicates, refused=len(refusals))


def _sum(a: Delivery, b: Delivery) -> Delivery:
    return Delivery(
        accepted=a.accepted + b.accepted, duplicates=a.duplicates + b.duplicates, refused=a.refused + b.refused
    )


def _body(run: dict[str, Any] | None, lines: Sequence[Line], *, whole_steps: bool) -> str:
    announced = "" if run is None else f'"run":{json.dumps(run)},'
    return f'{{{announced}"{"steps" if whole_steps else "records"}":[{",".join(line.text for line in lines)}]}}'


def _receipt(answer: Answer) -> tuple[int, int]:
    """Accepted and duplicate records; what is no receipt comes from somebody else, and acknowledges nothing."""
    document = answer.document if isinstance(answer.document, dict) else {}
    counts = document.get("accepted"), document.get("duplicates")
    match counts:
        case int(accepted), int(duplicates):
            return accepted, duplicates
    raise _KeptError(replace(answer, document={"detail": "the answer is no receipt; is this the right service?"}))


def _errors(answer: Answer) -> list[dict[str, Any]]:
    """Errors of a problem document."""
    errors = answer.document.get("errors") if isinstance(answer.document, dict) else None
    return [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []


def _wrong_records(answer: Answer, num_records: int) -> dict[int, list[Any]]:
    """Errors by position of their record; all records where none is pointed at."""
    wrong: dict[int, list[Any]] = {}
    for error in _errors(answer):
        found = _RECORD.match(str(error.get("pointer")))
        if found and int(found[1]) < num_records:
            wrong.setdefault(int(found[1]), []).append(error)
    return wrong or {k: _errors(answer) for k in range(num_records)}


def _detail(answer: Answer) -> str:
    detail = answer.document.get("detail") if isinstance(answer.document, dict) else None
    return f"{answer.status}: {detail or 'without a reason'}"
