"""Plans: ask for one, wait for it, look at it, stop it."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from api.common.examples import example
from api.http.access import authorize
from api.http.body import json_body, json_text
from api.http.routers.common import (
    PLAN_BODY_NAME,
    Arrival,
    IdempotencyKey,
    PlanId,
    Services,
    WaitS,
    arrival_s,
    checked_key,
    documented_body,
    documented_events,
    event_response,
    json_response,
    preferred_wait_s,
)
from api.http.routers.pictures import PICTURES, Picture, drawn
from api.http.running import services_of
from api.plans.present import plan_path, plan_text
from api.plans.reading import READ_PLAN, ReadPlan
from api.plans.submission import Submitted
from api.schemas.export import ExportDoc, PlanExportBody, PlanExportDoc
from api.schemas.plan import EVENT_DATA, PageQuery, PlanDoc, PlanList
from api.schemas.request import PlanBody
from api.store.records import PlanRecord
from executor.export import FORMATS, PLAN_FORMATS
from executor.export.options import MAX_OPTIONS, option_words, read_options

router = APIRouter(prefix="/v1/plans", tags=["plans"])
_PLAN_EXPORTS = {
    "Workloads of Kueue": {
        "to": "kubernetes",
        "options": {"workloads": '{"apiVersion": "v1", "kind": "List", "items": []}', "check": "stowplan"},
    }
}

_REQUESTS = {known.title: known.request for known in map(example, ("sia-paper-table1", "arnold-fig12"))}
DOCUMENTED_REQUEST = documented_body(PLAN_BODY_NAME, _REQUESTS)
_RETRY_AFTER_S = 1
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "model": PlanDoc,
        "description": "Accepted and stored; follow `Location`.",
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "Path of the plan."},
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds until a look is worth it."},
        },
    }
}


async def create_plan(
    services: Services,
    received_s: Arrival,
    text: Annotated[bytes, Depends(json_text)],
    wait_s: WaitS,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Plan a snapshot with a policy.

    The plan is stored before the answer leaves. With `Prefer: wait=N` the answer is the finished plan (200) if it is
    final within N seconds; otherwise it is 202 and `Location` says where the plan will be. A client that goes away
    does not stop its plan.
    """
    key = checked_key(idempotency_key)

    def submit(read: Callable[[], ReadPlan]) -> Awaitable[str]:
        return services.plans.submit_read(read, key, received_s)

    near = services.reader.near(text) if wait_s else None
    submitted = None if near is None else await services.plans.submit_near(near, key, received_s)
    if submitted is None:
        # For who waits it has been asked who has but a name of what is changed.
        plan_id = await services.reader.read(READ_PLAN, text, by_name=not wait_s, then=submit)
        submitted = Submitted(id=plan_id)
    return await _answer(services, submitted.id, wait_s, submitted.record)


class _CreatingRoute(APIRoute):
    """The route of `create_plan`: what that asks for is given by hand, in the order of its parameters.

    FastAPI finds it out for every request again, which takes as long as to store a plan.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Give what answers a request."""
        return _create_directly


async def _create_directly(request: Request) -> Response:
    await authorize(request)
    services, received_s = services_of(request), await arrival_s()
    text = await json_text(request)
    wait_s = await preferred_wait_s(services, request.headers.getlist("prefer"))
    return await create_plan(services, received_s, text, wait_s, request.headers.get("idempotency-key"))


router.add_api_route(
    "",
    create_plan,
    methods=["POST"],
    summary="Ask for a plan",
    response_model=PlanDoc,
    responses=_ACCEPTED,
    openapi_extra=DOCUMENTED_REQUEST,
    route_class_override=_CreatingRoute,
)


@router.get("", summary="List plans")
async def list_plans(
    services: Services,
    page: Annotated[PageQuery, Query()],
) -> PlanList:
    """Plans from the newest to the oldest, without their allocations."""
    query = urlencode([("limit", page.limit), *(("status", wanted.value) for wanted in page.status)])
    return await run_in_threadpool(services.plans.page, page.limit, page.before, list(page.status), query)


@router.get("/{plan_id:id}", summary="Look at a plan", response_model=PlanDoc)
async def get_plan(services: Services, plan_id: PlanId, wait_s: WaitS) -> Response:
    """The plan as it stands. `Prefer: wait=N` waits until it is final, at most N seconds."""
    if wait_s is not None:
        await services.plans.wait(plan_id, wait_s)
    record = await run_in_threadpool(services.plans.record, plan_id)
    return _plan_response(record, 200, _applied(wait_s))


@router.get("/{plan_id:id}/input", summary="Get the input of a plan", response_model=PlanBody)
async def get_input(services: Services, plan_id: PlanId) -> Response:
    """Get the request behind a plan, defaults filled in; it can be posted again."""
    text = await run_in_threadpool(services.plans.input_text, plan_id)
    return Response(text, media_type="application/json")


@router.get(
    "/{plan_id:id}/figure.{picture}",
    summary="Draw a plan",
    response_class=Response,
    responses=PICTURES,
)
async def get_figure(services: Services, plan_id: PlanId, picture: Picture) -> Response:
    """Draw the plan: the cluster by tier and node, coloured by job; for Arnold the communication matrix, too."""
    return drawn(await services.plan_drawings.figure(plan_id, picture), picture)


@router.get(
    "/{plan_id:id}/model.mps",
    summary="Get the model of a plan",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The model."}},
)
async def get_model(services: Services, plan_id: PlanId) -> Response:
    """Get the optimisation model behind a plan in MPS format."""
    return Response(await services.plan_drawings.model(plan_id), media_type="text/plain")


@router.get("/{plan_id:id}/jobs/{job_id:path}/export", summary="Export a job of a plan", response_model=ExportDoc)
async def export_job(
    services: Services,
    plan_id: PlanId,
    job_id: Annotated[str, Path(examples=["job-7"])],
    to: Annotated[list[str], Query(description=f"One or more of {', '.join(FORMATS)}.", min_length=1, max_length=16)],
    option: Annotated[list[str], Query(description=option_words(FORMATS), max_length=MAX_OPTIONS)] = [],  # noqa: B006
) -> Response:
    """Get the files with which other launchers and frameworks put a job where the plan has it, of any policy.

    Rank r of the framework is on the GPU that the plan gives it. What a framework cannot have (stages whose degrees
    differ, ranks of a host in pieces) is an error that names it.
    """
    return json_response(await run_in_threadpool(services.export, plan_id, job_id, to, option))


@router.get("/{plan_id:id}/export", summary="Hand a plan over to a scheduler", response_model=PlanExportDoc)
async def export_plan(
    services: Services,
    plan_id: PlanId,
    to: Annotated[str, Query(description=f"One of {', '.join(PLAN_FORMATS)}.", max_length=64)],
    option: Annotated[list[str], Query(description=option_words(PLAN_FORMATS), max_length=MAX_OPTIONS)] = [],  # noqa: B006
) -> Response:
    """Get the files with which a scheduler that has the queue is told what the plan wants: which jobs start where, what
    waits, what is reserved. They name the jobs as the snapshot does. Nothing is done before somebody runs them.

    What the scheduler cannot be told is among the notes, or an error that names it.
    """
    return json_response(await run_in_threadpool(services.export_plan, plan_id, to, read_options(option)))


@router.post(
    "/{plan_id:id}:export",
    summary="Hand a plan over to a scheduler, beside documents",
    response_model=PlanExportDoc,
    openapi_extra=documented_body(PlanExportBody.__name__, _PLAN_EXPORTS),
)
async def export_plan_beside(
    services: Services, plan_id: PlanId, body: Annotated[PlanExportBody, Depends(json_body(PlanExportBody))]
) -> Response:
    """Get what `GET /v1/plans/{id}/export` gives, with options that are documents, such as the workloads that Kueue has
    by now."""
    return json_response(await run_in_threadpool(services.export_plan, plan_id, body.to, body.options))


@router.get(
    "/{plan_id:id}/events",
    summary="Follow a plan",
    response_class=StreamingResponse,
    responses=documented_events(("state", "incumbent", "bound"), EVENT_DATA, "The plan is"),
)
async def get_events(
    services: Services,
    plan_id: PlanId,
    last_event_id: Annotated[
        int, Header(alias="Last-Event-ID", ge=0, description="Only what came after this event.")
    ] = 0,
) -> Response:
    """Follow a plan by server-sent events: `state`, `incumbent` and `bound`.

    What has happened before is sent first; the stream ends with the plan.
    """
    log = await run_in_threadpool(services.plans.events, plan_id)
    return event_response(log, last_event_id, services.settings.heartbeat_s)


@router.post("/{plan_id:id}:cancel", summary="Cancel a plan", response_model=PlanDoc, responses=_ACCEPTED)
async def cancel_plan(services: Services, plan_id: PlanId, wait_s: WaitS) -> Response:
    """Stop a plan; the best solution found so far is kept.

    Answers like the creation of a plan: 200 when the plan is final, else 202. A final plan stays as it is.
    """
    await run_in_threadpool(services.plans.cancel, plan_id)
    return await _answer(services, plan_id, wait_s)


@router.delete("/{plan_id:id}", summary="Delete a plan", status_code=204)
async def delete_plan(services: Services, plan_id: PlanId) -> None:
    """Delete a final plan; one that is not has to be canceled first."""
    await run_in_threadpool(services.plans.delete, plan_id)


async def _answer(services: Services, plan_id: str, wait_s: float | None, record: PlanRecord | None = None) -> Response:
    """The plan, final or accepted; `record`: of one that has ended."""
    if record is None and wait_s is not None:
        record = await services.plans.wait(plan_id, wait_s)
    if record is None:
        record = await run_in_threadpool(services.plans.record, plan_id)
    headers = {"Location": plan_path(plan_id), **_applied(wait_s)}
    if record.status.final:
        return _plan_response(record, 200, headers)
    return _plan_response(record, 202, {**headers, "Retry-After": str(_RETRY_AFTER_S)})


def _plan_response(record: PlanRecord, status: int, headers: dict[str, str]) -> Response:
    return Response(plan_text(record), status_code=status, media_type="application/json", headers=headers)


def _applied(wait_s: float | None) -> dict[str, str]:
    return {} if wait_s is None else {"Preference-Applied": f"wait={wait_s:.0f}"}
