"""Tokens of clients, and the audit log."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from api.common.asking import Role
from api.schemas.base import Document

ClientName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]
MAX_DAYS = 3650.0


class TokenBody(Document):
    """A token to make."""

    client: ClientName = Field(examples=["nightly"])
    """Who gets it. Several tokens may have the same client: make the next one, then revoke the one before."""
    role: Annotated[Role, Field(strict=False)]
    expires_in_days: Annotated[float, Field(gt=0, le=MAX_DAYS)] | None = 90.0
    """null: never."""


class TokenDoc(Document):
    """A token without what it is, which nobody knows but the client."""

    id: str = Field(examples=["token-5f0c"])
    client: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewTokenDoc(TokenDoc):
    """A token that was made. What it is, is said here and never again."""

    token: str = Field(examples=["stow_..."])
    """For `Authorization: Bearer ...`."""


class TokenList(Document):
    """A page of tokens, newest first; those that are over, too."""

    tokens: tuple[TokenDoc, ...]
    next: str | None
    """Path of the next page."""


class TokenPageQuery(BaseModel):
    """Query parameters of the list of tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 50
    """Entries per page."""
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """Cursor of the next page; see `next`."""


class AuditPageQuery(TokenPageQuery):
    """Query parameters of the audit log."""

    client: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Only what this client asked for."""


class AuditEntryDoc(Document):
    """Somebody changed something, or was refused."""

    at: datetime
    client: str | None
    """null: nobody that the service knows."""
    role: Role | None
    action: str = Field(examples=["create_plan"])
    """`operationId` of what was asked for; for a stranger the method."""
    resource: str = Field(examples=["/v1/plans"])
    """Path of the request."""
    created: str | None
    """Id of what came of it."""
    request_id: str
    status: int | None
    """Of the answer; null: written together with the change, before there was an answer."""


class AuditList(Document):
    """A page of the audit log, newest first."""

    entries: tuple[AuditEntryDoc, ...]
    next: str | None
    """Path of the next page."""
