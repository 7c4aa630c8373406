"""3D-parallel plans for one job."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.http.body import json_body
from api.http.routers.common import Services, documented_body, json_response
from api.http.routers.pictures import PICTURES, Picture, drawn
from api.parallel.exports import export_parallel_plan
from api.schemas.export import ExportBody, ExportDoc
from api.schemas.parallel import ParallelPlanBody
from api.schemas.parallel_answer import ParallelPlanAnswer

router = APIRouter(prefix="/v1/parallel-plans", tags=["parallel plans"])

Body = Annotated[ParallelPlanBody, Depends(json_body(ParallelPlanBody))]
_LLAMA = {"model": "llama2-13b", "global_batch": 256}
_REQUESTS = {
    "LLaMA2-13B on 8 to 64 H100": {"job": _LLAMA, "gpus": [{"gpu_type": "h100", "min_gpus": 8, "max_gpus": 64}]},
    "The same plan on two types": {
        "job": _LLAMA,
        "gpus": [{"gpu_type": "h100"}, {"gpu_type": "a100-80gb"}],
        "degrees": {"pp": 2, "dp": 2, "tp": 4, "num_micro_batches": 32},
    },
}
_EXPORTS = {
    "Two hosts": {
        "to": ["megatron", "slurm"],
        "plan": {
            "stages": [
                {
                    "num_layers": 20,
                    "replicas": [{"node": f"{k}", "gpu_type": "h100", "gpus": list(range(8)), "local_batch": 4}],
                }
                for k in range(2)
            ],
            "num_micro_batches": 64,
        },
        "job": _LLAMA,
        "hosts": ["gpu-[01-02]"],
    }
}
_DOCUMENTED = documented_body(ParallelPlanBody.__name__, _REQUESTS)


@router.post(
    "", summary="Plan one job in three dimensions", response_model=ParallelPlanAnswer, openapi_extra=_DOCUMENTED
)
async def create_parallel_plans(services: Services, body: Body) -> Response:
    """Find pipeline stages, data and tensor degrees and micro-batches for a job, by the performance model.

    The answer holds the best plan on every number of GPUs of every type, its predicted time by part, memory per stage,
    the Pareto frontiers that were searched, why other candidates are no plans, and for the best plan what a launcher
    needs. It is not stored. A model that fits nowhere is an error that says how much memory it lacks.
    """
    return json_response(await services.parallel.answer(body))


@router.post(
    ":export",
    summary="Export a 3D-parallel plan",
    response_model=ExportDoc,
    openapi_extra=documented_body(ExportBody.__name__, _EXPORTS),
)
async def export_parallel(body: Annotated[ExportBody, Depends(json_body(ExportBody))]) -> Response:
    """Get the files with which other launchers and frameworks put a job where a plan has it, on hosts of yours.

    Give `best.plan` and `transformer` of an answer as `plan` and `job`. Rank r of the framework is on the GPU that the
    plan gives it. What a framework cannot have (stages whose degrees differ, ranks of a host in pieces) is an error
    that names it.
    """
    return json_response(await run_in_threadpool(export_parallel_plan, body))


@router.post(
    "/figure.{picture}",
    summary="Draw 3D-parallel plans",
    response_class=Response,
    responses=PICTURES,
    openapi_extra=_DOCUMENTED,
)
async def draw_parallel_plans(services: Services, picture: Picture, body: Body) -> Response:
    """Draw the answer to the same request: the best plan's pipeline as a Gantt chart of stages and micro-batches, and
    throughput by number of GPUs with the plan at each point."""
    return drawn(await services.parallel.figure(body, picture), picture)
