"""What can go wrong between a client and the service."""

from typing import Any

import httpx

from stowplan.client.steps import Request
from stowplan.errors import Issue, Severity


class ClientError(Exception):
    """Root of what operations raise beside wrong arguments."""


class ProblemError(ClientError):
    """The service refused, and said why (RFC 9457).

    status: of HTTP. code: stable, such as `invalid_input`. detail: one sentence. issues: what is wrong where in the
    body that was sent, and what would be right. request_id: by which the logs of the service name the request.
    """

    def __init__(self, request: Request, answer: httpx.Response) -> None:
        document = _problem(answer)
        self.status = answer.status_code
        self.code = str(document.get("code", f"http_{answer.status_code}"))
        self.detail = str(document.get("detail") or answer.text[:500] or answer.reason_phrase)
        self.issues = tuple(
            Issue(
                code=issue["code"],
                pointer=issue["pointer"],
                detail=issue["detail"],
                severity=Severity(issue["severity"]),
            )
            for issue in document.get("errors", ())
        )
        self.request_id: str | None = document.get("request_id") or answer.headers.get("X-Request-Id")
        lines = [f"{request.method} {request.path}: {self.status} {self.code}: {self.detail}"]
        super().__init__("\n".join(lines + [f"  {issue.pointer or '/'}: {issue.detail}" for issue in self.issues]))

    @property
    def pointer(self) -> str | None:
        """JSON pointer of the first issue; None where there is none."""
        return self.issues[0].pointer if self.issues else None


class UnreachableError(ClientError):
    """There was no answer, or not all of it. Whether the service has done what was asked is not known.

    idempotency_key: ask again with it, and nothing is done twice; None where the operation takes none.
    """

    def __init__(self, request: Request, error: Exception, attempts: int) -> None:
        self.idempotency_key = request.headers.get("Idempotency-Key")
        tried = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(f"{request.method} {request.path}: tried {tried}: {type(error).__name__}: {error}")


class NotFinalError(ClientError):
    """What was waited for is not final yet; `document` is how far it is."""

    def __init__(self, document: Any, timeout_s: float) -> None:
        self.document = document
        super().__init__(f"{document['id']} is {document['status']} after {timeout_s:g} s")


def _problem(answer: httpx.Response) -> dict[str, Any]:
    """Problem details; nothing of them where somebody else has answered, such as a proxy."""
    if answer.headers.get("Content-Type", "").partition(";")[0] != "application/problem+json":
        return {}
    document = answer.json()
    return document if isinstance(document, dict) else {}
