"""Every request has an id: the client's, or one of ours. It stands in the answer, in problems and in the logs."""

import json
import re
import sys
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.common.asking import ASKING, Asking
from api.common.settings import Settings
from api.common.times import time_of
from api.http.problems import REQUEST_ID

# What can be put into a log, a header and a path as it is.
_WELL_FORMED = re.compile(r"[A-Za-z0-9._:+/=@-]{1,128}")


class RequestIdMiddleware:
    """Takes or makes the id, and writes the access log, if there is one: never tokens, queries or bodies."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._logs = settings.access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        asking = Asking(id=given if _WELL_FORMED.fullmatch(given) else uuid.uuid4().hex, path=scope["path"])
        # It stays: whoever answers for what breaks out there needs it, and every request has a context of its own.
        ASKING.set(asking)
        status, num_bytes, start_s = 500, 0, time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status, num_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = asking.id
            num_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            if self._logs:
                _write(scope, asking, status, num_bytes, time.perf_counter() - start_s)


def _write(scope: Scope, asking: Asking, status: int, num_bytes: int, duration_s: float) -> None:
    caller = asking.caller
    line = {
        "at": time_of(time.time()).isoformat(timespec="milliseconds"),
        "request_id": asking.id,
        "client": None if caller is None else caller.client,
        "role": None if caller is None else caller.role.value,
        "from": (scope.get("client") or (None,))[0],
        "method": scope["method"],
        "path": asking.path,
        "route": getattr(scope.get("route"), "name", None),
        "status": status,
        "bytes": num_bytes,
        "duration_ms": round(duration_s * 1e3, 3),
    }
    # One write a line, so that lines of other threads do not come between.
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
