"""Who asks: `Authorization: Bearer <token>` (RFC 6750) under /v1, how often, and what the audit log tells of it.

What a client may do is said by `api.http.access`, for each route.
"""

import logging
import math
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.common.asking import ASKING, Asking
from api.common.errors import RateLimitedError, StoreError, UnauthorizedError
from api.common.settings import Settings
from api.common.token_bucket import TokenBucket
from api.http.problems import problem_response
from api.services import Services
from stowplan.errors import StowplanError

_PROTECTED = "/v1"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Strangers cannot fill the disk with what they were refused.
_STRANGERS_PER_S, _STRANGERS_AT_ONCE = 1.0, 60
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_logger = logging.getLogger("stowplan.api.http.authentication")


class CallerMiddleware:
    """Finds out who asks. Liveness, readiness and Prometheus metrics stay open."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._per_s, self._burst = settings.client_requests_per_s, settings.client_burst
        # Where no other service counts as well; as many as there are names of clients, which the list of tokens has.
        self._buckets: dict[str, TokenBucket] = {}
        self._strangers = TokenBucket(_STRANGERS_PER_S, _STRANGERS_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        asking = ASKING.get()
        if scope["type"] != "http" or asking is None or not _is_protected(scope["path"]):
            await self._app(scope, receive, send)
            return
        services: Services = scope["app"].state.services
        told = _Told(services, asking, send)
        given, headers = Headers(scope=scope).get("authorization"), {}
        try:
            tokens = services.tokens
            asking.caller = await run_in_threadpool(tokens.caller, given) if tokens.asked else tokens.caller(given)
            if wait_s := await self._wait_s(services, asking.caller.client):
                headers = {"Retry-After": str(math.ceil(wait_s))}
                raise RateLimitedError(
                    f"{asking.caller.client} may send {self._per_s:g} requests a second, and {self._burst} at once; "
                    f"wait {math.ceil(wait_s)} s"
                )
        except StowplanError as error:
            if isinstance(error, UnauthorizedError) and scope["method"] not in _SAFE_METHODS:
                # Which route it would have been nobody has looked at.
                asking.action = scope["method"] if not self._strangers.wait_s() else None
            answer = problem_response(scope["path"], error.code, error.detail, headers=headers)
            await answer(scope, receive, told.send)
            return
        await self._app(scope, receive, told.send)

    async def _wait_s(self, services: Services, client: str) -> float:
        if not self._per_s:
            return 0.0
        if services.rates is not None:
            return await run_in_threadpool(services.rates.wait_s, client)
        if client not in self._buckets:
            self._buckets[client] = TokenBucket(self._per_s, self._burst)
        return self._buckets[client].wait_s()


class _Told:
    """Tells the audit log of an answer before the client has it, unless a change has told of itself.

    Of what was wrong with a request it says nothing, only of who was refused and what may have been done.
    """

    def __init__(self, services: Services, asking: Asking, send: Send) -> None:
        self._services, self._asking, self._send = services, asking, send

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start" and self._asking.action is not None:
            status = message["status"]
            is_news = status < HTTPStatus.BAD_REQUEST and not self._asking.is_noted
            if is_news or status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _REFUSED:
                await self._note(status, Headers(raw=message["headers"]).get("location"))
        await self._send(message)

    async def _note(self, status: int, location: str | None) -> None:
        # Others name by it what they are about.
        created = location.rpartition("/")[2] if location and status == HTTPStatus.CREATED else None
        try:
            await run_in_threadpool(self._services.audit.note_answer, self._asking, created, status)
        except StoreError:
            # What was done cannot be taken back; the log of the process has it.
            _logger.exception(
                "the audit log does not tell of %s %s: %d", self._asking.action, self._asking.path, status
            )


def _is_protected(path: str) -> bool:
    return path == _PROTECTED or path.startswith(_PROTECTED + "/")
