"""Every error leaves as RFC 9457 problem details."""

import logging
from collections.abc import Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from api.common.asking import request_id_now
from api.common.errors import HeaderError, OverloadedError, status_of
from api.convert.faults import fault_detail
from api.convert.issues import issue_documents
from api.convert.reading import MAX_ISSUES
from api.schemas.problem import ProblemDoc
from stowplan.errors import InputError, Issue, StowplanError

PROBLEM_TYPE = "application/problem+json"
REQUEST_ID = "X-Request-Id"
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="stowplan"'}
_RETRY_AFTER_S = {HTTPStatus.TOO_MANY_REQUESTS: 2, HTTPStatus.SERVICE_UNAVAILABLE: 10, HTTPStatus.GATEWAY_TIMEOUT: 10}
_HTTP_CODES = {HTTPStatus.NOT_FOUND: "not_found", HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed"}
_logger = logging.getLogger("stowplan.api.http.problems")


def install_problem_handlers(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Answer every error of the application with problem details; `routes` are those that it has."""

    async def http_error(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            # The exception knows only the methods of the first route with this path.
            headers["Allow"] = ", ".join(_methods_at(request, routes))
        return _http_error(request, error, headers)

    app.exception_handler(StowplanError)(_stowplan_error)
    app.exception_handler(RequestValidationError)(_parameter_error)
    app.exception_handler(HTTPException)(http_error)
    app.exception_handler(ClientDisconnect)(_disconnect)
    app.exception_handler(Exception)(_unexpected_error)


def problem_response(
    path: str, code: str, detail: str, issues: tuple[Issue, ...] = (), headers: dict[str, str] | None = None
) -> Response:
    """Problem details with the status that belongs to `code`."""
    status, request_id = status_of(code), request_id_now()
    more = len(issues) - MAX_ISSUES
    document = ProblemDoc(
        type=f"urn:stowplan:error:{code}",
        title=status.phrase,
        status=status,
        detail=detail if more <= 0 else f"{detail}; the first {MAX_ISSUES} are listed",
        instance=path,
        code=code,
        errors=issue_documents(issues[:MAX_ISSUES]),
        request_id=request_id,
    )
    retry = {"Retry-After": str(_RETRY_AFTER_S[status])} if status in _RETRY_AFTER_S else {}
    challenge = _CHALLENGE if status is HTTPStatus.UNAUTHORIZED else {}
    # Also where something broke so far out that no middleware adds it.
    told = {} if request_id is None else {REQUEST_ID: request_id}
    # A client that is still sending is not listened to any longer.
    end = {"Connection": "close"} if status is HTTPStatus.REQUEST_TIMEOUT else {}
    return Response(
        document.model_dump_json(),
        status_code=status,
        media_type=PROBLEM_TYPE,
        headers={**told, **retry, **challenge, **end, **(headers or {})},
    )


async def _stowplan_error(request: Request, error: StowplanError) -> Response:
    # Who floods the service with requests shall not flood its log, too.
    if status_of(error.code) >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, OverloadedError):
        _logger.error("%s %s: %s", request.method, request.url.path, error, exc_info=error)
    return problem_response(request.url.path, error.code, error.detail, error.issues)


async def _parameter_error(request: Request, error: RequestValidationError) -> Response:
    """Query parameters and headers; bodies are read by `api.convert.reading`."""
    faults = error.errors()
    issues = tuple(Issue(code="invalid_parameter", pointer="", detail=_parameter_detail(fault)) for fault in faults)
    if any(fault["loc"][0] == "header" for fault in faults):
        return problem_response(request.url.path, HeaderError.code, "a header of the request is wrong", issues)
    return problem_response(request.url.path, InputError.code, "a parameter of the request is wrong", issues)


def _parameter_detail(fault: ErrorDetails) -> str:
    kind, name = fault["loc"][:2]
    noun = "header" if kind == "header" else f"{kind} parameter"
    return f"{noun} {name!r} " + ("is not known" if fault["type"] == "extra_forbidden" else fault_detail(fault))


def _http_error(request: Request, error: HTTPException, headers: dict[str, str]) -> Response:
    code = _HTTP_CODES.get(HTTPStatus(error.status_code), "internal_error")
    detail = {
        "not_found": f"there is nothing at {request.url.path}",
        "method_not_allowed": f"{request.method} is not possible at {request.url.path}",
    }.get(code, str(error.detail))
    return problem_response(request.url.path, code, detail, headers=headers)


def _methods_at(request: Request, routes: Sequence[BaseRoute]) -> list[str]:
    found = (route for route in routes if route.matches(dict(request.scope))[0] is not Match.NONE)
    return sorted({method for route in found for method in getattr(route, "methods", ())})


async def _disconnect(_: Request, __: ClientDisconnect) -> Response:
    """The client left while its body was read; nobody sees this answer."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(request.url.path, "internal_error", "the service failed on this request; its log says why")
