"""Operations on resources of one kind, and what they have in common."""

import math
import time
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

import httpx

from stowplan.client.errors import NotFinalError
from stowplan.client.retries import Retries, sent
from stowplan.client.steps import Item, Items, Pause, Request, Steps, request

# What plans, comparisons, replays and forecasters are until they are final.
UNFINISHED = frozenset({"queued", "building", "solving", "running"})
WAIT_LIMIT_S = 3600.0
# What the service is asked to wait for at most, so that proxies do not lose patience.
_ASKED_WAIT_S = 30.0
_PAUSE_S = 0.5


class Driver(Protocol):
    """Who carries out the steps of operations."""

    def run(self, steps: Steps[Any]) -> Any:
        """Give the result, or what can be awaited for it."""

    def follow(self, items: Items[Any]) -> Any:
        """Give an iterator, asynchronous or not."""


Kind = TypeVar("Kind", bound=Driver)


class Group(Generic[Kind]):
    """Operations on resources of one kind, whose operations are written with these."""

    def __init__(self, driver: Kind, retries: Retries) -> None:
        self.driver = driver
        self.retries = retries

    def answer(self, asked: Request) -> Steps[httpx.Response]:
        """Give an answer as it came."""
        return sent(asked, self.retries)

    def json(self, asked: Request) -> Steps[Any]:
        """Give a document; None where the answer has none."""
        answer = yield from self.answer(asked)
        # Another attempt has deleted what is not there any more.
        return answer.json() if answer.is_success and answer.content else None

    def text(self, asked: Request) -> Steps[str]:
        """Give a text."""
        return (yield from self.answer(asked)).text

    def content(self, asked: Request) -> Steps[bytes]:
        """Give bytes."""
        return (yield from self.answer(asked)).content

    def pages(self, asked: Request, field: str) -> Items[Any]:
        """Give the items of all pages, each asked for when it is wanted."""
        page = yield from self.json(asked)
        yield from items_of(page[field])
        while page.get("next"):
            page = yield from self.json(Request(method="GET", template=asked.template, path=page["next"]))
            yield from items_of(page[field])

    def final(self, template: str, name: str, timeout_s: float) -> Steps[Any]:
        """Give a resource once it is final.

        Raises
        ------
        NotFinalError
            When it is not by then.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            begin_s = time.monotonic()
            wait_s = math.ceil(max(0.0, min(_ASKED_WAIT_S, end_s - begin_s)))
            document = yield from self.json(request("GET", template, name, wait_s=wait_s))
            if document["status"] not in UNFINISHED:
                return document
            now_s = time.monotonic()
            if now_s >= end_s:
                raise NotFinalError(document, timeout_s)
            # A service that is about to stop does not wait.
            yield Pause(seconds=min(end_s, max(now_s, begin_s + _PAUSE_S)) - now_s)


def posted(
    template: str, *names: str, body: Any = None, key: str | None = None, wait_s: float | None = None
) -> Request:
    """A request that makes something once, however often it is sent: under `key`, or one of its own."""
    return request("POST", template, *names, body=body, key=key or str(uuid4()), wait_s=wait_s)


def items_of(values: Iterable[Any]) -> Items[Any]:
    """Give each."""
    for value in values:
        yield Item(value=value)
