"""Measurements of running jobs: post them, look at them, see what they say."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.body import json_body
from api.http.routers.common import Services, documented_body, json_response
from api.jobs.paths import JOBS_PATH
from api.schemas.base import Name
from api.schemas.metrics import JobPerformanceDoc, MetricsBody, MetricsReceiptDoc, StepPageDoc, StepPageQuery

router = APIRouter(prefix=JOBS_PATH, tags=["jobs"])
# Ids may hold slashes, as in `team/job`.
JobId = Annotated[Name, Path(examples=["llm-13b"])]
_RANK: dict[str, Any] = {
    "launch": 1763640000000,
    "rank": 0,
    "step": 1,
    "pipe": 0,
    "data": 0,
    "tensor": 0,
    "host": "n0",
    "started_at_s": 1763640012.5,
    "step_s": 0.61,
    "forward_s": 0.19,
    "backward_s": 0.38,
    "send_s": 0.0,
    "receive_s": 0.0,
    "load_s": 0.002,
    "reduction_s": 0.0,
    "optimizer_s": 0.03,
    "num_micro_batches": 4,
    "tokens": 1024,
    "tokens_per_s": 1678.7,
    "peak_memory_bytes": 712000000,
    "loss": 6.93,
    "learning_rate": 0.0003,
    "small_batch": 8,
    "small_gradient_square": 4.2,
    "large_batch": 8,
    "large_gradient_square": 4.2,
}
_GPU: dict[str, Any] = {
    "name": "cpu",
    "memory_bytes": 17179869184,
    "peak_flops_per_s": 1e11,
    "intra_node_bandwidth_bytes_per_s": 4e9,
    "inter_node_bandwidth_bytes_per_s": 1e9,
}
_EXAMPLE: dict[str, Any] = {
    "run": {
        "launch": _RANK["launch"],
        "device": "cpu",
        "transformer": {
            "num_layers": 4,
            "hidden_size": 128,
            "vocabulary_size": 1000,
            "sequence_length": 128,
            "global_batch": 8,
            "precision": "fp32",
        },
        "plan": {
            "stages": [
                {"num_layers": 4, "replicas": [{"node": "n0", "gpu_type": "cpu", "gpus": [0], "local_batch": 2}]}
            ],
            "num_micro_batches": 4,
        },
        "cluster": {"gpu_types": [_GPU], "nodes": [{"id": "n0", "gpu_type": "cpu", "num_gpus": 1}]},
    },
    "records": [_RANK],
}


@router.post(
    "/{job_id:path}/metrics",
    summary="Post measurements of a job",
    openapi_extra=documented_body(MetricsBody.__name__, {"One process": _EXAMPLE}),
)
async def post_metrics(
    services: Services, job_id: JobId, body: Annotated[MetricsBody, Depends(json_body(MetricsBody))]
) -> MetricsReceiptDoc:
    """Keep steps of a job's ranks, all of a batch or none. A step that is posted again is kept once.

    `run` says what a launch runs; it is needed before or with the launch's first records. The next plans for the job
    use what the measurements say (`/v1/jobs/{job_id}/performance`).
    """
    return await run_in_threadpool(services.jobs.post, job_id, body)


@router.get("/{job_id:path}/metrics", summary="List the steps of a job", response_model=StepPageDoc)
async def list_metrics(services: Services, job_id: JobId, page: Annotated[StepPageQuery, Query()]) -> Response:
    """Steps from the newest to the oldest, with means over the ranks."""
    return json_response(await run_in_threadpool(services.jobs.steps, job_id, page))


@router.get("/{job_id:path}/performance", summary="See how a job performs", response_model=JobPerformanceDoc)
async def get_performance(services: Services, job_id: JobId) -> Response:
    """Measured coefficients, predicted against measured step times before and after calibration, and since when.

    `calibration` and `performance` can stand in a job of a snapshot as they are.
    """
    return json_response(await run_in_threadpool(services.jobs.performance, job_id))
