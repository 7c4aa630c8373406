"""Replays of traces: ask for them, follow them, look at them, stop or delete them."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from api.http.body import json_text
from api.http.routers.common import (
    IdempotencyKey,
    Services,
    WaitS,
    checked_key,
    documented_body,
    documented_events,
    event_response,
    json_response,
)
from api.http.routers.pictures import PICTURES, Picture, drawn
from api.replays.reading import READ_REPLAYS
from api.replays.service import REPLAYS_PATH
from api.schemas.replay import REPLAY_EXAMPLE, ReplayBody
from api.schemas.replay_answer import REPLAY_EVENT_DATA, ReplayDoc, ReplayList, ReplayPageQuery, ReplayReportDoc

router = APIRouter(prefix=REPLAYS_PATH, tags=["replays"])

ReplaysId = Annotated[str, Path(examples=["replays-0190f3a2"])]
_RETRY_AFTER_S = 1
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "model": ReplayDoc,
        "description": "Not final yet; follow `Location`.",
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "Path of the replays."},
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds until a look is worth it."},
        },
    }
}


@router.post(
    "",
    summary="Replay a trace",
    response_model=ReplayDoc,
    responses=_ACCEPTED,
    openapi_extra=documented_body(ReplayBody.__name__, {"Four jobs on one node": REPLAY_EXAMPLE}),
)
async def create_replays(
    services: Services,
    text: Annotated[bytes, Depends(json_text)],
    wait_s: WaitS,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Say what policies would have made of a trace of jobs: every policy with every seed, in parallel processes.

    Every plan is checked, all submitted jobs count, and all policies go by the same truth. A replay that reaches its
    limit of wall-clock time keeps the figures until there. With `Prefer: wait=N` the answer has all figures (200) if
    they are final within N seconds, otherwise it is 202 with those that there are. Replays of one request run at a
    time, beside the plans of the service, which share its processors.
    """
    key = checked_key(idempotency_key)
    asked = await services.reader.read(READ_REPLAYS, text, fill_in=False)
    replays_id = await run_in_threadpool(services.replays.submit, asked, key)
    return await _answer(services, replays_id, wait_s)


@router.get("", summary="List replays")
async def list_replays(services: Services, page: Annotated[ReplayPageQuery, Query()]) -> ReplayList:
    """Replays from the newest to the oldest, without their figures."""
    return await run_in_threadpool(services.replays.page, page)


@router.get("/{replays_id}", summary="Look at replays", response_model=ReplayDoc)
async def get_replays(services: Services, replays_id: ReplaysId, wait_s: WaitS) -> Response:
    """How far the replays are, and the figures of those that have ended.

    `Prefer: wait=N` waits until they are final, at most N seconds.
    """
    if wait_s is not None:
        await services.replays.wait(replays_id, wait_s)
    document = await run_in_threadpool(services.replays.replays, replays_id)
    return json_response(document, headers=_applied(wait_s))


@router.get(
    "/{replays_id}/report",
    summary="Get all that replays gave",
    response_class=StreamingResponse,
    responses={200: {"model": ReplayReportDoc, "description": "As `stowplan replay --json`."}},
)
async def get_replay_report(services: Services, replays_id: ReplaysId) -> Response:
    """Get all figures and all jobs of the replays that have ended so far: what `stowplan replay --json` gives."""
    parts = await run_in_threadpool(services.replays.report, replays_id)
    return StreamingResponse(parts, media_type="application/json")


@router.get(
    "/{replays_id}/figure.{picture}",
    summary="Draw replays",
    response_class=Response,
    responses=PICTURES,
)
async def get_replay_figure(services: Services, replays_id: ReplaysId, picture: Picture) -> Response:
    """Draw how long jobs took, who waited and what was busy over time, and who had which GPU when, under every policy
    with its first seed."""
    return drawn(await services.replay_drawings.figure(replays_id, picture), picture)


@router.get(
    "/{replays_id}/events",
    summary="Follow replays",
    response_class=StreamingResponse,
    responses=documented_events(("state", "progress"), REPLAY_EVENT_DATA, "The replays are"),
)
async def get_replay_events(
    services: Services,
    replays_id: ReplaysId,
    last_event_id: Annotated[
        int, Header(alias="Last-Event-ID", ge=0, description="Only what came after this event.")
    ] = 0,
) -> Response:
    """Follow replays by server-sent events: `state` of one or of all, and `progress` of one.

    What has happened before is sent first; the stream ends with the replays.
    """
    log = await run_in_threadpool(services.replays.events, replays_id)
    return event_response(log, last_event_id, services.settings.heartbeat_s)


@router.delete(
    "/{replays_id}",
    summary="Stop or delete replays",
    status_code=204,
    responses={202: {**_ACCEPTED[202], "description": "They were not final: they stop and keep what they have."}},
)
async def delete_replays(services: Services, replays_id: ReplaysId) -> Response:
    """Delete final replays (204). Those that are not final are asked to stop instead (202); they keep what they have,
    and a replay that does not come back within seconds is killed."""
    document = await run_in_threadpool(services.replays.remove, replays_id)
    return Response(status_code=204) if document is None else json_response(document, 202, _pending(replays_id))


async def _answer(services: Services, replays_id: str, wait_s: float | None) -> Response:
    if wait_s is not None:
        await services.replays.wait(replays_id, wait_s)
    document = await run_in_threadpool(services.replays.replays, replays_id)
    if document.status.final:
        return json_response(document, headers={"Location": document.links.self, **_applied(wait_s)})
    return json_response(document, 202, {**_pending(replays_id), **_applied(wait_s)})


def _pending(replays_id: str) -> dict[str, str]:
    return {"Location": f"{REPLAYS_PATH}/{replays_id}", "Retry-After": str(_RETRY_AFTER_S)}


def _applied(wait_s: float | None) -> dict[str, str]:
    return {} if wait_s is None else {"Preference-Applied": f"wait={wait_s:.0f}"}
