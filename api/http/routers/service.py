"""The service about itself: policies, examples, health, metrics."""

from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.common.examples import Example, example, examples
from api.http.routers.common import Services, json_response
from api.plans.policies import POLICIES
from api.schemas.service import ExampleDoc, ExampleListDoc, HealthDoc, IndexDoc, PolicyListDoc
from stowplan import __version__

router = APIRouter(tags=["service"])


@router.get("/", summary="Index")
async def index() -> IndexDoc:
    """Say what answers here, and where to go on."""
    return IndexDoc(name="stowplan", version=__version__)


@router.get("/v1/policies", summary="List policies")
async def list_policies() -> PolicyListDoc:
    """Say what each policy is for, what it needs, what it gives, and which parameters it has."""
    return POLICIES


@router.get("/v1/examples", summary="List examples")
async def list_examples() -> ExampleListDoc:
    """List plan requests that can be posted as they are."""
    return ExampleListDoc(examples=tuple(_summary(known) for known in examples()))


@router.get("/v1/examples/{example_id}", summary="Get an example")
async def get_example(example_id: str) -> dict[str, Any]:
    """Get an example: the body of `POST /v1/plans`."""
    return example(example_id).request


@router.get(
    "/healthz",
    summary="Liveness",
    responses={503: {"model": HealthDoc, "description": "Ill: no worker starts any more, or the database is gone."}},
    response_model=HealthDoc,
)
async def healthz(services: Services) -> Response:
    """Say that the process lives, has its database and can plan, or will once its workers are up."""
    return _health(services.unhealthy())


@router.get(
    "/readyz",
    summary="Readiness",
    responses={503: {"model": HealthDoc, "description": "Not ready."}},
    response_model=HealthDoc,
)
async def readyz(services: Services) -> Response:
    """Say whether plans can be made: a worker is ready and the database answers."""
    return _health(await run_in_threadpool(services.not_ready))


@router.get(
    "/metrics",
    summary="Metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text."}},
)
async def metrics(services: Services) -> Response:
    """Metrics for Prometheus."""
    return Response(services.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _health(trouble: str | None) -> Response:
    document = HealthDoc(status=trouble or "ok", version=__version__)
    return json_response(document, 503 if trouble else 200, {"Retry-After": "1"} if trouble else None)


def _summary(known: Example) -> ExampleDoc:
    snapshot = known.request["snapshot"]
    nodes = snapshot["cluster"]["nodes"]
    return ExampleDoc(
        id=known.id,
        title=known.title,
        description=known.description,
        policy=known.request["policy"],
        num_nodes=len(nodes),
        num_gpus=sum(node["num_gpus"] for node in nodes),
        num_jobs=len(snapshot["jobs"]),
        href=f"/v1/examples/{known.id}",
    )
