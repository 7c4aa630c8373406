"""Forecasters: train them on histories, look at how well they did, ask them how long jobs last."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.forecasts.reading import READ_FORECASTER
from api.forecasts.service import FORECASTERS_PATH
from api.http.body import json_text
from api.http.routers.common import (
    IdempotencyKey,
    Services,
    WaitS,
    checked_key,
    documented_body,
    json_response,
)
from api.http.routers.pictures import PICTURES, Picture, drawn
from api.schemas.forecast import (
    FORECAST_EXAMPLE,
    FORECASTER_EXAMPLE,
    ForecastBody,
    ForecasterBody,
    ForecastsDoc,
)
from api.schemas.forecast_answer import ForecasterDoc, ForecasterList, ForecasterPageQuery, ForecasterReportDoc

router = APIRouter(prefix=FORECASTERS_PATH, tags=["forecasters"])

Name = Annotated[str, Path(examples=["site"])]
_RETRY_AFTER_S = 1
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "model": ForecasterDoc,
        "description": "Not final yet; follow `Location`.",
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "Path of the forecaster."},
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds until a look is worth it."},
        },
    }
}


@router.post(
    "",
    summary="Train a forecaster",
    response_model=ForecasterDoc,
    responses=_ACCEPTED,
    openapi_extra=documented_body(ForecasterBody.__name__, {"Three jobs, which are too few": FORECASTER_EXAMPLE}),
)
async def create_forecaster(
    services: Services,
    text: Annotated[bytes, Depends(json_text)],
    wait_s: WaitS,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Learn from a history of jobs how long jobs last.

    The last tenth of the jobs test what was learned from the others, each when it was submitted. What is not better
    than the quantiles of the history is refused: the forecaster has failed then, with the figures. With
    `Prefer: wait=N` the answer is final (200) if it is within N seconds, otherwise 202. One forecaster is trained at a
    time, beside the plans of the service, which share its processors. Needs the extra `forecast` (501 without).
    """
    key = checked_key(idempotency_key)
    asked = await services.reader.read(READ_FORECASTER, text, fill_in=False)
    name = await run_in_threadpool(services.forecasters.submit, asked, key)
    return await _answer(services, name, wait_s)


@router.get("", summary="List forecasters")
async def list_forecasters(services: Services, page: Annotated[ForecasterPageQuery, Query()]) -> ForecasterList:
    """Forecasters from the newest to the oldest."""
    return await run_in_threadpool(services.forecasters.page, page)


@router.get("/{forecaster:id}", summary="Look at a forecaster", response_model=ForecasterDoc)
async def get_forecaster(services: Services, forecaster: Name, wait_s: WaitS) -> Response:
    """What it was trained on, and whether it can be asked. `Prefer: wait=N` waits until it is final, at most N
    seconds."""
    if wait_s is not None:
        await services.forecasters.wait(forecaster, wait_s)
    document = await run_in_threadpool(services.forecasters.forecaster, forecaster)
    return json_response(document, headers=_applied(wait_s))


@router.get("/{forecaster:id}/report", summary="Get the report of a forecaster", response_model=ForecasterReportDoc)
async def get_forecaster_report(services: Services, forecaster: Name) -> Response:
    """How it did on the last tenth of its history, beside predictors that need no learning."""
    text = await run_in_threadpool(services.forecasters.report, forecaster)
    return Response(text, media_type="application/json")


@router.get(
    "/{forecaster:id}/record",
    summary="Get all that a forecaster learned",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}, "description": "The record."}},
)
async def get_forecaster_record(services: Services, forecaster: Name) -> Response:
    """What `stowplan forecast train` writes, and `stowplan forecast predict` reads."""
    text = await run_in_threadpool(services.forecasters.record, forecaster)
    return Response(text, media_type="application/json")


@router.get(
    "/{forecaster:id}/figure.{picture}",
    summary="Draw the report of a forecaster",
    response_class=Response,
    responses=PICTURES,
)
async def get_forecaster_figure(services: Services, forecaster: Name, picture: Picture) -> Response:
    """Draw how often jobs were over within their quantiles, and how far off these were, beside other predictors."""
    return drawn(await services.forecasters.figure(forecaster, picture), picture)


@router.post(
    "/{forecaster:id}:predict",
    summary="Ask how long jobs last",
    response_model=ForecastsDoc,
    openapi_extra=documented_body(ForecastBody.__name__, {"A new job, and one that runs": FORECAST_EXAMPLE}),
)
async def predict(services: Services, forecaster: Name, text: Annotated[bytes, Depends(json_text)]) -> Response:
    """Say how much longer jobs last, as quantiles: those that begin, and those that have run for `age_s` already.

    What is told in `since` of jobs that came after the history makes the forecaster follow the site; it is not kept.
    """
    return Response(await services.forecasters.predict(forecaster, text), media_type="application/json")


@router.delete(
    "/{forecaster:id}",
    summary="Stop or delete a forecaster",
    status_code=204,
    responses={202: {**_ACCEPTED[202], "description": "It was not final: it is canceled."}},
)
async def delete_forecaster(services: Services, forecaster: Name) -> Response:
    """Delete a final forecaster (204). One that is not final is canceled instead (202)."""
    document = await run_in_threadpool(services.forecasters.remove, forecaster)
    return Response(status_code=204) if document is None else json_response(document, 202, _pending(forecaster))


async def _answer(services: Services, name: str, wait_s: float | None) -> Response:
    if wait_s is not None:
        await services.forecasters.wait(name, wait_s)
    document = await run_in_threadpool(services.forecasters.forecaster, name)
    if document.status.final:
        return json_response(document, headers={"Location": document.links.self, **_applied(wait_s)})
    return json_response(document, 202, {**_pending(name), **_applied(wait_s)})


def _pending(name: str) -> dict[str, str]:
    return {"Location": f"{FORECASTERS_PATH}/{name}", "Retry-After": str(_RETRY_AFTER_S)}


def _applied(wait_s: float | None) -> dict[str, str]:
    return {} if wait_s is None else {"Preference-Applied": f"wait={wait_s:.0f}"}
