"""Errors and findings: RFC 9457 problem details and the issues behind them."""

from pydantic import Field

from api.schemas.base import Document
from stowplan.errors import Severity


class IssueDoc(Document):
    """One finding."""

    code: str = Field(examples=["unknown_gpu_type"])
    """Stable code."""
    pointer: str = Field(examples=["/snapshot/cluster/nodes/3/gpu_type"])
    """RFC 6901 JSON pointer into the request body."""
    detail: str
    """What is wrong and what would be right."""
    severity: Severity


class ProblemDoc(Document):
    """RFC 9457 problem details."""

    type: str = Field(examples=["urn:stowplan:error:invalid_input"])
    title: str
    status: int
    detail: str
    instance: str
    """Path of the request."""
    code: str = Field(examples=["invalid_input"])
    """Stable code; `type` without its prefix."""
    errors: tuple[IssueDoc, ...] = ()
    request_id: str | None = None
    """`X-Request-Id` of the answer, by which the logs of the service name the request."""


class ValidationDoc(Document):
    """What can be said about a plan request without solving it."""

    valid: bool
    """No issue is an error."""
    issues: tuple[IssueDoc, ...]


class VerificationDoc(Document):
    """The independent check of a placement."""

    legal: bool
    violations: tuple[IssueDoc, ...]
