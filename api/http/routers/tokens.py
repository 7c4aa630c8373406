"""Tokens of clients and the audit log, for admins."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.body import json_body
from api.http.routers.common import Services, documented_body, json_response
from api.schemas.token import AuditList, AuditPageQuery, NewTokenDoc, TokenBody, TokenDoc, TokenList, TokenPageQuery
from api.tokens.audit import AUDIT_PATH, audit_page
from api.tokens.service import TOKENS_PATH

router = APIRouter(tags=["clients"])
_NIGHTLY = {"client": "nightly", "role": "planner", "expires_in_days": 90.0}


@router.post(
    TOKENS_PATH,
    summary="Make a token",
    status_code=201,
    response_model=NewTokenDoc,
    openapi_extra=documented_body(TokenBody.__name__, {"For plans at night": _NIGHTLY}),
)
async def create_token(services: Services, body: Annotated[TokenBody, Depends(json_body(TokenBody))]) -> Response:
    """Make a token for a client, which is shown here and never again; the service keeps its hash.

    A service that asks for no token makes none (409).
    """
    made = await run_in_threadpool(services.tokens.create, body)
    return json_response(made, 201, {"Cache-Control": "no-store"})


@router.get(TOKENS_PATH, summary="List tokens")
async def list_tokens(services: Services, page: Annotated[TokenPageQuery, Query()]) -> TokenList:
    """Tokens from the newest to the oldest, also those that have expired or were revoked."""
    return await run_in_threadpool(services.tokens.page, page)


@router.post(TOKENS_PATH + "/{token_id:id}:revoke", summary="Revoke a token", response_model=TokenDoc)
async def revoke_token(services: Services, token_id: Annotated[str, Path(examples=["token-5f0c"])]) -> Response:
    """End a token from the next request on; one that was revoked stays as it is."""
    return json_response(await run_in_threadpool(services.tokens.revoke, token_id))


@router.get(AUDIT_PATH, summary="Read the audit log")
async def list_audit(services: Services, page: Annotated[AuditPageQuery, Query()]) -> AuditList:
    """Who changed what, and who was refused, from the newest to the oldest."""
    return await run_in_threadpool(audit_page, services.audit, page)
