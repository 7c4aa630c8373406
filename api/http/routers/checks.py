"""Checks that solve nothing: is this request sound, is this placement legal?"""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.common.examples import example
from api.http.body import json_text
from api.http.routers.common import Services, documented_body, json_response
from api.http.routers.plans import DOCUMENTED_REQUEST
from api.plans.reading import VALIDATE_PLAN, VERIFY_PLACEMENT
from api.schemas.problem import ValidationDoc, VerificationDoc

router = APIRouter(prefix="/v1", tags=["checks"])
_PLACEMENT = {
    "snapshot": example("sia-paper-table1").request["snapshot"],
    "allocations": [
        {"job_id": "J1", "gpus": {"node-B": [0, 1, 2, 3]}},
        {"job_id": "J2", "gpus": {"node-A": [0, 1]}},
    ],
}


@router.post(
    "/plans:validate",
    summary="Validate a plan request",
    response_model=ValidationDoc,
    openapi_extra=DOCUMENTED_REQUEST,
)
async def check_plan_request(services: Services, text: Annotated[bytes, Depends(json_text)]) -> Response:
    """Say everything that is wrong with a plan request, without solving it.

    Whatever is JSON is answered with 200: the issues are the answer.
    """
    return json_response(await services.reader.read(VALIDATE_PLAN, text))


@router.post(
    "/placements:verify",
    summary="Verify a placement",
    response_model=VerificationDoc,
    openapi_extra=documented_body("VerifyBody", {"The paper's answer": _PLACEMENT}),
)
async def check_placement(services: Services, text: Annotated[bytes, Depends(json_text)]) -> Response:
    """Check a placement by anybody against a snapshot and give every violation."""
    return json_response(await services.reader.read(VERIFY_PLACEMENT, text))
