"""Snapshots that are posted once and planned often."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.common.examples import example
from api.http.body import json_text
from api.http.routers.common import SNAPSHOT_BODY_NAME, Services, documented_body, json_response
from api.reading.cluster_states import READ_STATE
from api.reading.documents import READ_SNAPSHOT
from api.schemas.cluster_state import IMPORT_EXAMPLE, ImportBody, ImportedSnapshotDoc
from api.schemas.service import SnapshotReceiptDoc
from api.schemas.snapshot import SnapshotDoc

router = APIRouter(prefix="/v1", tags=["snapshots"])
_SNAPSHOTS = "/snapshots"
_EXAMPLE = example("sia-paper-table1")
_CHANGES = {"base": "plan-0f87a8", "jobs": {"llm": {"age_s": 360}}, "remove_jobs": ["done"]}


@router.post(
    _SNAPSHOTS,
    summary="Store a snapshot",
    status_code=201,
    response_model=SnapshotReceiptDoc,
    responses={200: {"model": SnapshotReceiptDoc, "description": "It was stored before."}},
    openapi_extra=documented_body(
        SNAPSHOT_BODY_NAME, {_EXAMPLE.title: _EXAMPLE.request["snapshot"], "What has changed since a plan": _CHANGES}
    ),
)
async def create_snapshot(services: Services, text: Annotated[bytes, Depends(json_text)]) -> Response:
    """Keep a snapshot. Its id is derived from its content, so that posting it again changes nothing.

    It comes whole, on a cluster that the service has under a name, or as what has changed since a stored snapshot or
    a plan (`base`); what is kept is whole, and stays when those are changed or deleted.
    """
    snapshot = await services.reader.read(READ_SNAPSHOT, text, fill_in=False)
    receipt, created = await run_in_threadpool(services.snapshots.add, snapshot)
    return json_response(receipt, 201 if created else 200, {"Location": receipt.links.self})


@router.post(
    f"{_SNAPSHOTS}:import",
    summary="Make a snapshot of what a scheduler says",
    response_model=ImportedSnapshotDoc,
    openapi_extra=documented_body(ImportBody.__name__, {"Slurm: a node and a job": IMPORT_EXAMPLE}),
)
async def import_snapshot(services: Services, text: Annotated[bytes, Depends(json_text)]) -> Response:
    """Read what a scheduler writes of its nodes, queue, topology and reservations, and answer with a snapshot.

    It is not stored: post it to `/v1/snapshots` or in a plan. Jobs that cannot start whatever is free are listed beside
    it with the reason, and so is everything that was left out or assumed. What cannot be read is an error that names
    the document, and the JSON pointer or line in it.
    """
    answer = await services.readers.read(READ_STATE, text, len(text))
    return Response(answer, media_type="application/json")


@router.get(f"{_SNAPSHOTS}/{{snapshot_id}}", summary="Get a snapshot", response_model=SnapshotDoc)
async def get_snapshot(services: Services, snapshot_id: str) -> Response:
    """The snapshot as it was posted, defaults filled in."""
    text = await run_in_threadpool(services.snapshots.text, snapshot_id)
    return Response(text, media_type="application/json")
