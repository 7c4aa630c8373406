"""Snapshots that are posted once and planned often."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.common.examples import example
from api.http.body import json_text
from api.http.routers.common import Services, documented_body, json_response
from api.reading.documents import READ_SNAPSHOT
from api.schemas.service import SnapshotReceiptDoc
from api.schemas.snapshot import SnapshotDoc

router = APIRouter(prefix="/v1/snapshots", tags=["snapshots"])
_EXAMPLE = example("sia-paper-table1")


@router.post(
    "",
    summary="Store a snapshot",
    status_code=201,
    response_model=SnapshotReceiptDoc,
    responses={200: {"model": SnapshotReceiptDoc, "description": "It was stored before."}},
    openapi_extra=documented_body("SnapshotDoc", {_EXAMPLE.title: _EXAMPLE.request["snapshot"]}),
)
async def create_snapshot(services: Services, text: Annotated[bytes, Depends(json_text)]) -> Response:
    """Keep a snapshot. Its id is derived from its content, so that posting it again changes nothing."""
    snapshot = await services.readers.read(READ_SNAPSHOT, text, len(text))
    receipt, created = await run_in_threadpool(services.snapshots.add, snapshot)
    return json_response(receipt, 201 if created else 200, {"Location": receipt.links.self})


@router.get("/{snapshot_id}", summary="Get a snapshot", response_model=SnapshotDoc)
async def get_snapshot(services: Services, snapshot_id: str) -> Response:
    """The snapshot as it was posted, defaults filled in."""
    text = await run_in_threadpool(services.snapshots.text, snapshot_id)
    return Response(text, media_type="application/json")
