"""Calibrations of systems: fit them to measurements, look at them, name them in requests."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.calibrations.reading import READ_CALIBRATION
from api.calibrations.service import CALIBRATIONS_PATH
from api.http.body import json_text
from api.http.routers.common import IdempotencyKey, Services, checked_key, documented_body, json_response
from api.schemas.calibration import (
    CALIBRATION_EXAMPLE,
    CalibratedSystemDoc,
    CalibrationBody,
    CalibrationList,
    CalibrationPageQuery,
)

router = APIRouter(prefix=CALIBRATIONS_PATH, tags=["calibrations"])

Name = Annotated[str, Path(examples=["dgx-a100-80gb-megatron-lm"])]
_CREATED: dict[int | str, dict[str, Any]] = {
    201: {"headers": {"Location": {"schema": {"type": "string"}, "description": "Path of the calibration."}}}
}


@router.post(
    "",
    summary="Calibrate the performance model",
    status_code=201,
    response_model=CalibratedSystemDoc,
    responses=_CREATED,
    openapi_extra=documented_body(CalibrationBody.__name__, {"Two plans that were measured": CALIBRATION_EXAMPLE}),
)
async def create_calibration(
    services: Services, text: Annotated[bytes, Depends(json_text)], idempotency_key: IdempotencyKey = None
) -> Response:
    """Fit factors on the times of computation, memory, links and network to what a site has measured: logs of
    trainings, iteration times, bandwidth tests.

    The answer says how certain they are, and which plan to measure next. Requests for 3D plans and jobs of snapshots
    name it in `calibration`.
    """
    key = checked_key(idempotency_key)
    asked = await services.reader.read(READ_CALIBRATION, text, fill_in=False)
    document = await services.calibrations.create(asked, key)
    return json_response(document, 201, {"Location": document.links.self})


@router.get("", summary="List calibrations")
async def list_calibrations(services: Services, page: Annotated[CalibrationPageQuery, Query()]) -> CalibrationList:
    """Calibrations from the newest to the oldest, beside those of common systems."""
    return await run_in_threadpool(services.calibrations.page, page)


@router.get("/{calibration}", summary="Look at a calibration", response_model=CalibratedSystemDoc)
async def get_calibration(services: Services, calibration: Name) -> Response:
    """Its factors, how certain they are, and where they come from."""
    return json_response(await run_in_threadpool(services.calibrations.calibration, calibration))


@router.delete("/{calibration}", summary="Delete a calibration", status_code=204)
async def delete_calibration(services: Services, calibration: Name) -> Response:
    """Plans that were made with it keep it. Those of common systems stay (409)."""
    await run_in_threadpool(services.calibrations.remove, calibration)
    return Response(status_code=204)
