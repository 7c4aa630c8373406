"""Who carries out the steps of operations: blocking, or awaiting."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from typing import Any, TypeVar

import httpx

from stowplan.client.steps import Item, Items, Listen, NextLine, Pause, Request, Steps

Result = TypeVar("Result")
# Of a quiet stream the service gives a sign of life every 15 seconds.
_READ_S = 60.0
_CONNECT_S = 10.0


class SyncDriver:
    """Blocks."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def run(self, steps: Steps[Result]) -> Result:
        """Carry out all steps, and give the result."""
        with closing(self.follow(_only(steps))) as results:
            return next(results)

    def follow(self, items: Items[Result]) -> Generator[Result, None, None]:
        """Carry out steps as items are wanted."""
        made: Any = None
        failed: httpx.TransportError | None = None
        lines: Iterator[str] = iter(())
        with ExitStack() as opened:
            while True:
                try:
                    step = items.send(made) if failed is None else items.throw(failed)
                except StopIteration:
                    return
                made = failed = None
                try:
                    match step:
                        case Item():
                            yield step.value
                        case Pause():
                            time.sleep(step.seconds)
                        case Request():
                            made = self._http.send(_built(self._http, step))
                        case NextLine():
                            made = next(lines, None)
                        case Listen():
                            opened.close()
                            made = self._http.send(_built(self._http, step.request), stream=True)
                            opened.callback(made.close)
                            lines = made.iter_lines()
                            if not made.is_success:
                                made.read()
                except httpx.TransportError as error:
                    failed = error


class AsyncDriver:
    """Awaits."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def run(self, steps: Steps[Result]) -> Result:
        """Carry out all steps, and give the result."""
        async with aclosing(self.follow(_only(steps))) as results:
            return await anext(results)

    async def follow(self, items: Items[Result]) -> AsyncGenerator[Result, None]:
        """Carry out steps as items are wanted, as `SyncDriver` does it."""
        made: Any = None
        failed: httpx.TransportError | None = None
        lines: AsyncIterator[str] | None = None
        async with AsyncExitStack() as opened:
            while True:
                try:
                    step = items.send(made) if failed is None else items.throw(failed)
                except StopIteration:
                    return
                made = failed = None
                try:
                    match step:
                        case Item():
                            yield step.value
                        case Pause():
                            await asyncio.sleep(step.seconds)
                        case Request():
                            made = await self._http.send(_built(self._http, step))
                        case NextLine():
                            made = None if lines is None else await anext(lines, None)
                        case Listen():
                            await opened.aclose()
                            made = await self._http.send(_built(self._http, step.request), stream=True)
                            opened.push_async_callback(made.aclose)
                            lines = made.aiter_lines()
                            if not made.is_success:
                                await made.aread()
                except httpx.TransportError as error:
                    failed = error


def _only(steps: Steps[Result]) -> Items[Result]:
    """The result of an operation as its only item."""
    yield Item(value=(yield from steps))


def _built(http: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    return http.build_request(
        request.method,
        request.path,
        params=dict(request.query) or None,
        headers=dict(request.headers),
        content=request.body,
        timeout=httpx.Timeout(_READ_S + request.wait_s, connect=_CONNECT_S),
    )
