"""Comparisons of solvers: ask for one, wait for it, look at it, stop or delete it."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.common.examples import example
from api.comparisons.reading import READ_COMPARISON
from api.comparisons.service import COMPARISONS_PATH
from api.http.body import json_text
from api.http.routers.common import IdempotencyKey, Services, WaitS, checked_key, documented_body, json_response
from api.http.routers.pictures import PICTURES, Picture, drawn
from api.schemas.comparison import ComparisonBody, ComparisonDoc, ComparisonList, ComparisonPageQuery

router = APIRouter(prefix=COMPARISONS_PATH, tags=["solver comparisons"])

ComparisonId = Annotated[str, Path(examples=["comparison-0190f3a2"])]
_REQUESTS = {
    known.title: {**known.request, "solvers": solvers}
    for known, solvers in (
        (example("sia-heterogeneous-64"), ["auto", "highs", "scip"]),
        (example("arnold-fig12"), ["auto", "highs", "scip", "portfolio"]),
    )
}
_RETRY_AFTER_S = 1
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "model": ComparisonDoc,
        "description": "Not final yet; follow `Location`.",
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "Path of the comparison."},
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds until a look is worth it."},
        },
    }
}


@router.post(
    "",
    summary="Compare solvers",
    response_model=ComparisonDoc,
    responses=_ACCEPTED,
    openapi_extra=documented_body(ComparisonBody.__name__, _REQUESTS),
)
async def create_comparison(
    services: Services,
    text: Annotated[bytes, Depends(json_text)],
    wait_s: WaitS,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Run one instance through several solvers: one after another, under the same limits, each in a fresh process.

    A solver that dies, runs out of time or does not know the policy has a row that says so. Answers that contradict
    each other are an error of ours: the comparison ends as `failed`. With `Prefer: wait=N` the answer is the finished
    comparison (200) if it is final within N seconds, otherwise 202 with the rows that there are. One comparison runs
    at a time, beside the plans of the service, which share its processors.
    """
    key = checked_key(idempotency_key)
    asked = await services.reader.read(READ_COMPARISON, text, fill_in=False)
    comparison_id = await run_in_threadpool(services.comparisons.submit, asked, key)
    return await _answer(services, comparison_id, wait_s)


@router.get("", summary="List comparisons of solvers")
async def list_comparisons(services: Services, page: Annotated[ComparisonPageQuery, Query()]) -> ComparisonList:
    """Comparisons from the newest to the oldest, without their rows."""
    return await run_in_threadpool(services.comparisons.page, page)


@router.get("/{comparison_id}", summary="Look at a comparison of solvers", response_model=ComparisonDoc)
async def get_comparison(services: Services, comparison_id: ComparisonId, wait_s: WaitS) -> Response:
    """The comparison with the rows that it has so far. `Prefer: wait=N` waits until it is final, at most N seconds."""
    if wait_s is not None:
        await services.comparisons.wait(comparison_id, wait_s)
    document = await run_in_threadpool(services.comparisons.comparison, comparison_id)
    return json_response(document, headers=_applied(wait_s))


@router.get(
    "/{comparison_id}/figure.{picture}",
    summary="Draw a comparison of solvers",
    response_class=Response,
    responses=PICTURES,
)
async def get_comparison_figure(services: Services, comparison_id: ComparisonId, picture: Picture) -> Response:
    """Draw the comparison: time by phase for each solver, and the gap over time."""
    return drawn(await services.comparison_drawings.figure(comparison_id, picture), picture)


@router.delete(
    "/{comparison_id}",
    summary="Stop or delete a comparison of solvers",
    status_code=204,
    responses={202: {**_ACCEPTED[202], "description": "It was not final: it stops and keeps the rows that it has."}},
)
async def delete_comparison(services: Services, comparison_id: ComparisonId) -> Response:
    """Delete a final comparison (204). One that is not final is asked to stop instead (202); it keeps its rows."""
    document = await run_in_threadpool(services.comparisons.remove, comparison_id)
    return Response(status_code=204) if document is None else json_response(document, 202, _pending(comparison_id))


async def _answer(services: Services, comparison_id: str, wait_s: float | None) -> Response:
    if wait_s is not None:
        await services.comparisons.wait(comparison_id, wait_s)
    document = await run_in_threadpool(services.comparisons.comparison, comparison_id)
    if document.status.final:
        return json_response(document, headers={"Location": document.links.self, **_applied(wait_s)})
    return json_response(document, 202, {**_pending(comparison_id), **_applied(wait_s)})


def _pending(comparison_id: str) -> dict[str, str]:
    return {"Location": f"{COMPARISONS_PATH}/{comparison_id}", "Retry-After": str(_RETRY_AFTER_S)}


def _applied(wait_s: float | None) -> dict[str, str]:
    return {} if wait_s is None else {"Preference-Applied": f"wait={wait_s:.0f}"}
