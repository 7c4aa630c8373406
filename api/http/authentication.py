"""Who may ask: with a token set, everything under /v1 needs `Authorization: Bearer <token>` (RFC 6750)."""

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.common.errors import UnauthorizedError
from api.http.problems import problem_response

_PROTECTED = "/v1"


class TokenMiddleware:
    """Refuses requests without the token. Liveness, readiness and Prometheus metrics stay open."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or not _is_protected(scope["path"]):
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("authorization")
        scheme, _, credentials = (given or "").partition(" ")
        # Takes as long for a wrong token as for a nearly right one.
        if scheme.lower() == "bearer" and hmac.compare_digest(credentials.strip().encode(), self._token):
            await self._app(scope, receive, send)
            return
        detail = "the token is wrong" if given else "this service asks for a token: send Authorization: Bearer <token>"
        challenge = {"WWW-Authenticate": 'Bearer realm="stowplan"'}
        await problem_response(scope["path"], UnauthorizedError.code, detail, headers=challenge)(scope, receive, send)


def _is_protected(path: str) -> bool:
    return path == _PROTECTED or path.startswith(_PROTECTED + "/")
