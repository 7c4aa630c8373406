"""What keeps web pages of other sites out: a browser lends them its place in the network.

A page may point its own name at this service (DNS rebinding), or send what needs no leave of ours (CSRF). A change
without a body, such as a cancel, needs no Content-Type: what a browser sends so for a page has an Origin, and a form
without fields declares itself. So `curl -X POST` works as everybody expects.
"""

import ipaddress
from collections.abc import Container
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.common.errors import ForeignOriginError, MediaTypeError, MisdirectedRequestError
from api.http.problems import problem_response
from stowplan.errors import StowplanError

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class CrossSiteMiddleware:
    """Refuses requests to names other than `host_names`, and changes by pages of other origins or by forms."""

    def __init__(self, app: ASGIApp, host_names: Container[str]) -> None:
        self._app = app
        self._host_names = host_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        try:
            if scope["type"] == "http":
                headers = Headers(scope=scope)
                self._check_host(headers)
                if scope["method"] not in _SAFE_METHODS:
                    _check_origin(headers)
                    _check_media_type(headers)
        except StowplanError as error:
            await problem_response(scope["path"], error.code, error.detail)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        name = _host_name(headers.get("host", ""))
        # Nobody can point an address elsewhere, as one can a name.
        if name not in self._host_names and not _is_address(name):
            raise MisdirectedRequestError(
                f"this service does not go by the name {name!r}; whoever runs it can put it into STOWPLAN_ALLOWED_HOSTS"
            )


def _check_origin(headers: Headers) -> None:
    origin, host = headers.get("origin"), headers.get("host", "")
    # Without the scheme, which is another one behind a proxy that ends TLS.
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise ForeignOriginError(f"a page of {origin} may change nothing here; only one of {host} may")


def _check_media_type(headers: Headers) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    is_json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    if not is_json and (kind or has_body):
        raise MediaTypeError(f"the body is declared as {kind or 'nothing'}; send Content-Type: application/json")


def _host_name(host: str) -> str:
    """Name or address in a Host header, without the port; empty when there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
