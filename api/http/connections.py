"""Connections: how long one may take to ask, and how many there may be."""

import asyncio
from typing import Any, ClassVar

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.common.errors import OverloadedError
from api.common.settings import Settings
from api.http.problems import problem_response

# Answered however many connections there are, on up to this many more.
_ALWAYS = ("/healthz", "/readyz", "/metrics")
NUM_SPARE = 64
_CROWDED = "crowded"


class LimitedProtocol(H11Protocol):
    """Uvicorn's protocol, which waits for a request without end once its first byte has come, with an end to it.

    Connections beyond `max_connections` are marked for `CrowdedMiddleware`; beyond the spare ones they are closed.
    """

    header_timeout_s: ClassVar[float]
    max_connections: ClassVar[int]
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections + NUM_SPARE:
            transport.abort()
        elif len(self.connections) > self.max_connections:
            self.app_state = {**self.app_state, _CROWDED: True}
        self._limit_waiting()

    def data_received(self, data: bytes) -> None:
        """Take what came. Bytes that complete nothing prolong nothing."""
        super().data_received(data)
        self._limit_waiting()

    def _limit_waiting(self) -> None:
        # The rest of a body whose request has been answered is waited for, too.
        waits = self.conn.their_state is h11.IDLE or (
            self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE
        )
        if waits and self._end is None:
            self._end = self.loop.call_later(self.header_timeout_s, self.timeout_keep_alive_handler)
        elif not waits and self._end is not None:
            self._end.cancel()
            self._end = None


def limited_protocol(settings: Settings) -> type[LimitedProtocol]:
    """Give the protocol with the limits of a service: uvicorn makes one for every connection, without arguments."""

    class Protocol(LimitedProtocol):
        header_timeout_s = settings.header_timeout_s
        max_connections = settings.max_connections

    return Protocol


class CrowdedMiddleware:
    """Refuses all but health checks and metrics on connections beyond those that the service holds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        state: dict[str, Any] = scope.get("state", {})
        if _CROWDED not in state or scope["path"] in _ALWAYS:
            await self._app(scope, receive, send)
            return
        detail = "the service has as many connections as it takes; close some, or try again later"
        close = {"Connection": "close"}
        await problem_response(scope["path"], OverloadedError.code, detail, headers=close)(scope, receive, send)
