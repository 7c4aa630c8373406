"""Deployments: start one, look at it, read its logs, move it to another plan, stop it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from api.deployments.present import DEPLOYMENTS_PATH
from api.http.body import json_body
from api.http.routers.common import Services, documented_body, json_response
from api.schemas.deployment import DeploymentBody, ReconfigureBody
from api.schemas.deployment_answer import DeploymentDoc, DeploymentList

router = APIRouter(prefix=DEPLOYMENTS_PATH, tags=["deployments"])

DeploymentId = Annotated[str, Path(examples=["deployment-0190f3a2"])]
_FOLLOW_S = 0.5
_CHUNK_BYTES = 65_536
_ON_TWO_CPUS = {
    "job_id": "tiny",
    "job": {
        "num_layers": 4,
        "hidden_size": 128,
        "num_heads": 4,
        "vocabulary_size": 512,
        "sequence_length": 64,
        "global_batch": 8,
        "precision": "fp32",
    },
    "plan": {
        "stages": [
            {"num_layers": 2, "replicas": [{"node": "a", "gpu_type": "cpu", "gpus": [k], "local_batch": 4}]}
            for k in range(2)
        ],
        "num_micro_batches": 2,
    },
    "training": {"device": "cpu", "num_steps": 20, "checkpoint_interval": 10},
}
_CREATED: dict[int | str, dict[str, Any]] = {
    201: {"headers": {"Location": {"schema": {"type": "string"}, "description": "Path of the deployment."}}}
}


@router.post(
    "",
    summary="Deploy a plan",
    status_code=201,
    response_model=DeploymentDoc,
    responses=_CREATED,
    openapi_extra=documented_body(DeploymentBody.__name__, {"Two pipeline stages on CPUs": _ON_TWO_CPUS}),
)
async def create_deployment(
    services: Services, body: Annotated[DeploymentBody, Depends(json_body(DeploymentBody))]
) -> Response:
    """Start a DeepSpeed training with exactly the groups of a plan on exactly its ranks.

    Refused are plans that do not fit the model, the cluster, or the memory of its GPUs as predicted, where these are
    known, and plans on GPUs of another deployment.

    The service looks after it: a run that breaks is started again from its last good checkpoint. It goes on when the
    service stops. A job has one deployment at a time.
    """
    document = await run_in_threadpool(services.deployments.create, body)
    return json_response(document, 201, {"Location": document.links.self})


@router.get("", summary="List deployments")
async def list_deployments(services: Services) -> DeploymentList:
    """All deployments from the newest to the oldest."""
    return await run_in_threadpool(services.deployments.deployments)


@router.get("/{deployment_id:id}", summary="Look at a deployment", response_model=DeploymentDoc)
async def get_deployment(services: Services, deployment_id: DeploymentId) -> Response:
    """Phase, runs, steps and loss; the ranks that broke a run last, with their last lines."""
    return json_response(await run_in_threadpool(services.deployments.deployment, deployment_id))


@router.post(
    "/{deployment_id:id}:reconfigure",
    summary="Move a deployment to another plan",
    status_code=202,
    response_model=DeploymentDoc,
    openapi_extra=documented_body(ReconfigureBody.__name__, {"From a plan": {"plan_id": "plan-0190f3a2"}}),
)
async def reconfigure_deployment(
    services: Services,
    deployment_id: DeploymentId,
    body: Annotated[ReconfigureBody, Depends(json_body(ReconfigureBody))],
) -> Response:
    """Write a checkpoint, and go on from it with other degrees or on other GPUs; batch and data stay.

    The new ranks start while the old ones still train. When they do not, the old run goes on; when they break before
    their first step or keep breaking before their first checkpoint, the deployment returns to the plan before. One that
    was stopped or has failed goes on from its last good checkpoint, also with the same plan.
    """
    return json_response(await run_in_threadpool(services.deployments.reconfigure, deployment_id, body), 202)


@router.post("/{deployment_id:id}:stop", summary="Stop a deployment", status_code=202, response_model=DeploymentDoc)
async def stop_deployment(services: Services, deployment_id: DeploymentId) -> Response:
    """Write a checkpoint and end; a deployment that is over stays as it is."""
    return json_response(await run_in_threadpool(services.deployments.stop, deployment_id), 202)


@router.get(
    "/{deployment_id:id}/logs",
    summary="Read the output of a rank",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The output."}},
)
async def get_deployment_logs(
    services: Services,
    deployment_id: DeploymentId,
    rank: Annotated[int, Query(ge=0)] = 0,
    run: Annotated[int | None, Query(ge=1, description="Number of a run; without it the one that trains.")] = None,
    *,
    follow: Annotated[bool, Query(description="Stay until the deployment is over.")] = False,
) -> StreamingResponse:
    """Output of one rank of the newest run that trains or has trained, or of any run; with `follow` as a stream."""
    path = await run_in_threadpool(services.deployments.log, deployment_id, rank, run)
    return StreamingResponse(_stream(services, deployment_id, path, follow=follow), media_type="text/plain")


async def _stream(services: Services, deployment_id: str, path: FilePath, *, follow: bool) -> AsyncIterator[bytes]:
    """What stands in the file and, when followed, what comes until the deployment is over or a later run trains."""
    position = 0
    while True:
        over = not follow or await run_in_threadpool(services.deployments.is_log_complete, deployment_id, path)
        chunk = await run_in_threadpool(_read, path, position)
        while chunk:
            yield chunk
            position += len(chunk)
            chunk = await run_in_threadpool(_read, path, position)
        if over:
            return
        await asyncio.sleep(_FOLLOW_S)


def _read(path: FilePath, position: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as log:
        log.seek(position)
        return log.read(_CHUNK_BYTES)
