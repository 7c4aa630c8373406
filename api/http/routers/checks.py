"""Checks that solve nothing: is this request sound, is this placement legal?"""

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from api.common.examples import example
from api.http.body import json_body, json_text
from api.http.routers.common import Services, documented_body
from api.http.routers.plans import DOCUMENTED_REQUEST
from api.plans.checks import validate_request, verify_placement
from api.schemas.problem import ValidationDoc, VerificationDoc
from api.schemas.request import VerifyBody

router = APIRouter(prefix="/v1", tags=["checks"])
_VERIFY_BODY = TypeAdapter(VerifyBody)
_PLACEMENT = {
    "snapshot": example("sia-paper-table1").request["snapshot"],
    "allocations": [
        {"job_id": "J1", "gpus": {"node-B": [0, 1, 2, 3]}},
        {"job_id": "J2", "gpus": {"node-A": [0, 1]}},
    ],
}


@router.post("/plans:validate", summary="Validate a plan request", openapi_extra=DOCUMENTED_REQUEST)
async def check_plan_request(services: Services, text: Annotated[bytes, Depends(json_text)]) -> ValidationDoc:
    """Say everything that is wrong with a plan request, without solving it.

    Whatever is JSON is answered with 200: the issues are the answer.
    """
    return await run_in_threadpool(validate_request, text, services.measured, services.settings)


@router.post(
    "/placements:verify",
    summary="Verify a placement",
    openapi_extra=documented_body("VerifyBody", {"The paper's answer": _PLACEMENT}),
)
async def check_placement(
    services: Services, body: Annotated[VerifyBody, Depends(json_body(_VERIFY_BODY))]
) -> VerificationDoc:
    """Check a placement by anybody against a snapshot and give every violation."""
    return await run_in_threadpool(verify_placement, body, services.snapshots)
