"""Calendars of clusters: look at them, write them, take them elsewhere."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.clusters.service import CLUSTERS_PATH
from api.http.body import json_body
from api.http.routers.common import ETAG, ClusterName, IfMatch, Services, documented_body, json_response, version_of
from api.http.routers.pictures import PICTURES, Picture, drawn
from api.schemas.reservation import CALENDAR_EXAMPLE, CalendarBody, CalendarDoc

router = APIRouter(prefix=CLUSTERS_PATH, tags=["calendars"])


@router.get(
    "/{name}/calendar",
    summary="Look at a calendar",
    response_model=CalendarDoc,
    responses={200: {"headers": ETAG}},
)
async def get_calendar(services: Services, name: ClusterName) -> Response:
    """The entries of a calendar, the reservations that are confirmed or active, and what is odd about them now."""
    return _answer(await run_in_threadpool(services.calendars.calendar, name))


@router.put(
    "/{name}/calendar",
    summary="Write a calendar",
    response_model=CalendarDoc,
    responses={
        200: {"headers": ETAG},
        201: {"model": CalendarDoc, "headers": ETAG, "description": "There was none before."},
    },
    openapi_extra=documented_body(CalendarBody.__name__, {"Maintenance of a minipod": CALENDAR_EXAMPLE}),
)
async def put_calendar(
    services: Services,
    name: ClusterName,
    body: Annotated[CalendarBody, Depends(json_body(CalendarBody))],
    if_match: IfMatch = None,
) -> Response:
    """Write all entries of a calendar; reservations are not among them and stay.

    Two who change it at the same time do not overwrite each other: `If-Match` says which version is changed (428
    without it, 412 when it is another one by now). What excludes a confirmed reservation is refused (409).
    """
    version = version_of(if_match)
    document, created = await run_in_threadpool(services.calendars.put, name, body, version)
    return _answer(document, 201 if created else 200)


@router.get(
    "/{name}/calendar.ics",
    summary="Get a calendar as iCalendar",
    response_class=Response,
    responses={200: {"content": {"text/calendar": {}}, "description": "RFC 5545, an event an entry."}},
)
async def get_icalendar(services: Services, name: ClusterName) -> Response:
    """Get the calendar as programs in which people keep theirs subscribe to it."""
    text = await run_in_threadpool(services.calendars.icalendar, name)
    return Response(text, media_type="text/calendar")


@router.get(
    "/{name}/calendar/figure.{picture}",
    summary="Draw a calendar",
    response_class=Response,
    responses=PICTURES,
)
async def get_calendar_figure(services: Services, name: ClusterName, picture: Picture) -> Response:
    """Draw which nodes of which minipod are whose, from now on."""
    return drawn(await services.calendar_drawings.figure(name, picture), picture)


def _answer(document: CalendarDoc, status: int = 200) -> Response:
    made = {"Location": document.links.self} if status == 201 else {}
    return json_response(document, status, {"ETag": f'"{document.version}"', **made})
