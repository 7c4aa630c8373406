"""How request bodies are read: with a limit, as JSON, into a document."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.common.asking import caller_now
from api.common.errors import BodyTimeoutError, BodyTooLargeError, MediaTypeError, OverloadedError
from api.common.settings import Settings
from api.http.problems import problem_response
from api.http.running import services_of
from api.reading.documents import READ_DOCUMENT, DocumentT, DocumentText


class BodyLimitMiddleware:
    """Refuses bodies that are too large, announced or streamed without a length, too slow, or too many at a time.

    A body counts among those at a time until its request is answered, together and among those of its client.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._num_bytes = 0
        self._bytes_of: Counter[str] = Counter()
        # A client that has no other body may always send one.
        self._share = max(settings.max_body_bytes, settings.client_share * settings.max_bodies_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._settings.max_body_bytes:
            error = _too_large(self._settings)
            # What is not read would be taken for the next request: the connection ends here.
            response = problem_response(scope["path"], error.code, error.detail, headers={"Connection": "close"})
            await response(scope, receive, send)
            return
        body, client = _Body(receive, self._settings), caller_now().client
        try:
            await self._app(scope, partial(self._receive, body, client), send)
        finally:
            self._count(client, -body.num_bytes)

    async def _receive(self, body: "_Body", client: str) -> Message:
        before = body.num_bytes
        try:
            message = await body.receive()
        finally:
            self._count(client, body.num_bytes - before)
        if self._bytes_of[client] > self._share:
            raise OverloadedError(f"{client} sends too many bodies at a time; wait for answers to those before")
        if self._num_bytes > self._settings.max_bodies_bytes:
            raise OverloadedError("the service reads too many bodies at a time; try again later")
        return message

    def _count(self, client: str, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        self._bytes_of[client] += num_bytes


class _Body:
    """The body of one request, as it comes. num_bytes: so far."""

    def __init__(self, receive: Receive, settings: Settings) -> None:
        self._receive = receive
        self._settings = settings
        self._end_s: float | None = asyncio.get_running_loop().time() + settings.body_timeout_s
        self.num_bytes = 0

    async def receive(self) -> Message:
        """Wait for the next part; behind the last one for a client that leaves, without end."""
        try:
            async with asyncio.timeout_at(self._end_s):
                message = await self._receive()
        except TimeoutError as error:
            raise BodyTimeoutError(f"the body did not come within {self._settings.body_timeout_s:g} s") from error
        self.num_bytes += len(message.get("body", b""))
        if self.num_bytes > self._settings.max_body_bytes:
            raise _too_large(self._settings)
        if not message.get("more_body", False):
            self._end_s = None
        return message


def _too_large(settings: Settings) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than the {settings.max_body_bytes} bytes that this service reads")


async def json_text(request: Request) -> bytes:
    """Read the body of a request.

    Raises
    ------
    MediaTypeError
        When it is compressed.
    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise MediaTypeError(f"the body has the Content-Encoding {coding}; send it as it is")
    return await request.body()


def json_body(kind: type[DocumentT]) -> Callable[[Request], Coroutine[Any, Any, DocumentT]]:
    """Dependency that reads the body into a document of a kind.

    The body is parsed in one go from bytes by pydantic: strict, with the position of a syntax error, and several
    times faster than by way of Python objects.
    """

    async def read(request: Request) -> DocumentT:
        text = DocumentText(kind=kind, body=await json_text(request))
        document: DocumentT = await services_of(request).readers.read(READ_DOCUMENT, text, len(text.body))
        return document

    return read
