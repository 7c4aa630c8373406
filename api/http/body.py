"""How request bodies are read: with a limit, as JSON, into a document."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.common.errors import BodyTooLargeError, MediaTypeError
from api.http.problems import problem_response
from api.http.running import services_of
from api.reading.documents import READ_DOCUMENT, DocumentT, DocumentText


class BodyLimitMiddleware:
    """Refuses bodies above `max_bytes`, announced or streamed without a length."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        detail = f"the body is larger than the {self._max_bytes} bytes that this service reads"
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._max_bytes:
            # What is not read would be taken for the next request: the connection ends here.
            response = problem_response(scope["path"], BodyTooLargeError.code, detail, headers={"Connection": "close"})
            await response(scope, receive, send)
            return
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise BodyTooLargeError(detail)
            return message

        await self._app(scope, receive_counted, send)


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
