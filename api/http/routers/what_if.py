"""What if: variants of a plan, and what differs between plans."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response

from api.http.body import json_text
from api.http.routers.common import (
    Arrival,
    IdempotencyKey,
    PlanId,
    Services,
    WaitS,
    checked_key,
    documented_body,
    json_response,
)
from api.http.routers.pictures import PICTURES, Picture, drawn
from api.schemas.what_if import PlanDifferenceDoc, WhatIfBody, WhatIfDoc

router = APIRouter(prefix="/v1/plans", tags=["what if"])

OtherId = Annotated[str, Path(examples=["plan-0190f3b7"])]
_REQUESTS: dict[str, Any] = {
    "A rack is drained, and a job is more important": {
        "variants": [{"name": "drain r1", "drain": ["r1"]}, {"name": "llm first", "jobs": {"llm": {"priority": 1}}}]
    },
    "Why not there?": {"variants": [{"name": "llm on n1", "place": {"job": "llm", "nodes": {"n1": [0, 1, 2, 3]}}}]},
}
_RETRY_AFTER_S = 1
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "model": WhatIfDoc,
        "description": "Some plans are not final yet; follow their links, or ask again with the same key.",
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds until a look is worth it."}},
    }
}


@router.post(
    "/{plan_id:id}:what-if",
    summary="Ask what would be if",
    response_model=WhatIfDoc,
    responses=_ACCEPTED,
    openapi_extra=documented_body(WhatIfBody.__name__, _REQUESTS),
)
async def ask_what_if(
    services: Services,
    plan_id: PlanId,
    received_s: Arrival,
    text: Annotated[bytes, Depends(json_text)],
    wait_s: WaitS,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Plan variants of the request of a final plan, and say what differs from it.

    Each variant is a plan like others, queued at once: all of them, or none. With `Prefer: wait=N` the answer comes
    when all are final (200), after N seconds at the latest (202, with the differences that are known). The request is
    that of the plan as it is stored: what was measured since is not in it.
    """
    key = checked_key(idempotency_key)
    document = await services.what_ifs.ask(plan_id, text, key, received_s, wait_s)
    final = all(row.plan is None or row.plan.status.final for row in document.variants)
    headers = {} if wait_s is None else {"Preference-Applied": f"wait={wait_s:.0f}"}
    if final:
        return json_response(document, headers=headers)
    return json_response(document, 202, {**headers, "Retry-After": str(_RETRY_AFTER_S)})


@router.get("/{plan_id:id}/differences/{other_id:id}", summary="Compare two plans")
async def get_difference(services: Services, plan_id: PlanId, other_id: OtherId) -> PlanDifferenceDoc:
    """What differs in another plan: objective by term, jobs, GPUs, spread, goodput.

    The plans are compared as they stand: what a variant asked for (`place`) is known to the answer of `:what-if` alone.
    """
    return await services.what_ifs.difference(plan_id, other_id)


@router.get(
    "/{plan_id:id}/differences/{other_id:id}/figure.{picture}",
    summary="Draw what differs between two plans",
    response_class=Response,
    responses=PICTURES,
)
async def get_difference_figure(services: Services, plan_id: PlanId, other_id: OtherId, picture: Picture) -> Response:
    """Draw both plans beside each other, with the GPUs marked that go to another job."""
    return drawn(await services.what_ifs.figure(plan_id, other_id, picture), picture)
