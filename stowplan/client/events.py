"""Server-sent events, followed over lost connections."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import httpx

from stowplan.client.errors import ClientError, ProblemError, UnreachableError
from stowplan.client.retries import Retries, passes
from stowplan.client.steps import Item, Items, Listen, NextLine, Pause, request


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened; `after=event.id` goes on behind it."""

    id: int
    name: str
    data: dict[str, Any]


@dataclass(slots=True)
class _Position:
    """Where a stream is. silent: connections in a row without a line. moved: whether the last one had an event."""

    after: int
    silent: int = 0
    moved: bool = False


def followed(template: str, name: str, after: int, retries: Retries) -> Items[Event]:
    """Every event of a stream behind `after`, until the service says that nothing more will come.

    Where the connection is lost, or ends, the stream is opened again behind the last event, as often in a row without a
    line between as `retries` allows.

    Raises
    ------
    ProblemError
        When the service refuses.
    UnreachableError
        When it cannot be reached any more.
    """
    at = _Position(after)
    while True:
        at.silent += 1
        at.moved = False
        asked = request("GET", template, name, Accept="text/event-stream", Last_Event_ID=str(at.after))
        answer: httpx.Response | None = None
        failure: ClientError
        try:
            answer = cast("httpx.Response", (yield Listen(request=asked)))
            if answer.status_code == HTTPStatus.NO_CONTENT:
                return
            if answer.is_success:
                yield from _heard(at)
                failure = UnreachableError(asked, EOFError("the stream has ended"), at.silent)
            else:
                failure = ProblemError(asked, answer)
        except httpx.TransportError as error:
            failure = UnreachableError(asked, error, at.silent)
        refused = isinstance(failure, ProblemError) and not passes(failure.status)
        if refused or at.silent >= retries.attempts:
            raise failure
        # Behind an event it is asked at once whether the stream has ended for good.
        if not at.moved:
            yield Pause(seconds=retries.pause_s(max(1, at.silent), answer))


def _heard(at: _Position) -> Items[Event]:
    """The events of one connection."""
    lines: list[str] = []
    while (line := (yield NextLine())) is not None:
        at.silent = 0
        if line:
            lines.append(line)
            continue
        event = _event(lines)
        lines.clear()
        if event is not None:
            at.after, at.moved = event.id, True
            yield Item(value=event)


def _event(lines: Iterable[str]) -> Event | None:
    """The event of a block of lines; None where there is none in it, such as in a sign of life."""
    fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":") and ": " in line)
    if "data" not in fields or "id" not in fields:
        return None
    return Event(id=int(fields["id"]), name=fields.get("event", "message"), data=json.loads(fields["data"]))
