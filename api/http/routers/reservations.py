"""Reservations: propose them, confirm them, look at them, take them back."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.calendars.reservations import RESERVATIONS_PATH
from api.http.body import json_body
from api.http.routers.common import IdempotencyKey, Services, checked_key, documented_body, json_response
from api.schemas.reservation import (
    RESERVATION_EXAMPLE,
    ReservationBody,
    ReservationDoc,
    ReservationList,
    ReservationPageQuery,
)

router = APIRouter(prefix=RESERVATIONS_PATH, tags=["calendars"])
ReservationId = Annotated[str, Path(examples=["reservation-0190f3a2"])]


@router.post(
    "",
    summary="Propose a reservation",
    status_code=201,
    response_model=ReservationDoc,
    openapi_extra=documented_body(ReservationBody.__name__, {"Two nodes for a month": RESERVATION_EXAMPLE}),
)
async def create_reservation(
    services: Services,
    body: Annotated[ReservationBody, Depends(json_body(ReservationBody))],
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Propose that nodes are kept for somebody: by name, by shape, or those of a plan. Nothing is kept until it is
    confirmed; what the calendar excludes is refused at once (409), with the names of both sides."""
    key = checked_key(idempotency_key)
    document = await run_in_threadpool(services.reservations.propose, body, key)
    return json_response(document, 201, {"Location": document.links.self})


@router.get("", summary="List reservations")
async def list_reservations(services: Services, page: Annotated[ReservationPageQuery, Query()]) -> ReservationList:
    """Reservations from the newest to the oldest."""
    return await run_in_threadpool(services.reservations.page, page)


@router.get("/{reservation_id:id}", summary="Look at a reservation", response_model=ReservationDoc)
async def get_reservation(services: Services, reservation_id: ReservationId) -> Response:
    """The reservation; whether it has begun or is over says the clock."""
    return json_response(await run_in_threadpool(services.reservations.reservation, reservation_id))


@router.post("/{reservation_id:id}:confirm", summary="Confirm a reservation", response_model=ReservationDoc)
async def confirm_reservation(services: Services, reservation_id: ReservationId) -> Response:
    """Keep the nodes from now on. Of two that exclude each other and are confirmed at the same time one wins; the other
    is refused (409) and told which. Confirming again changes nothing."""
    return json_response(await run_in_threadpool(services.reservations.confirm, reservation_id))


@router.delete(
    "/{reservation_id:id}",
    summary="Cancel or delete a reservation",
    status_code=204,
    responses={200: {"model": ReservationDoc, "description": "It was not final: it is canceled now."}},
)
async def delete_reservation(services: Services, reservation_id: ReservationId) -> Response:
    """Cancel a reservation that is not over (200): its nodes are free again. One that is done or canceled is deleted
    (204)."""
    document = await run_in_threadpool(services.reservations.remove, reservation_id)
    return Response(status_code=204) if document is None else json_response(document)
