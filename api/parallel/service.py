"""3D-parallel plans for one job, and their picture, without HTTP."""

from starlette.concurrency import run_in_threadpool

from api.common.settings import Settings
from api.common.tasks import run_task
from api.convert.parallel_answer import answer_document
from api.convert.parallel_request import in_body, parallel_request, time_limit_s
from api.figures.request import ParallelFigure, PictureFormat
from api.schemas.parallel import ParallelPlanBody
from api.schemas.parallel_answer import ParallelPlanAnswer
from models.parallelism.request import ParallelAnswer
from solver.pool import WorkerPool

_PLAN_TASK = "models.parallelism.planner:answer_task"
_FIGURE_TASK = "api.figures.parallel:figure_task"


class ParallelPlans:
    """Has workers plan single jobs in three dimensions."""

    def __init__(self, settings: Settings, pool: WorkerPool) -> None:
        self._settings = settings
        self._pool = pool

    async def answer(self, body: ParallelPlanBody) -> ParallelPlanAnswer:
        """Plan one job.

        Raises
        ------
        InputError
            When the request is wrong, or no plan is legal on any of the GPUs.
        WorkerTimeoutError
            When the time limit is over.
        """
        request = await run_in_threadpool(parallel_request, body)
        limit_s = time_limit_s(body.options, self._settings)
        with in_body(body):
            answer: ParallelAnswer = await run_task(self._pool, _PLAN_TASK, request, limit_s)
        return await run_in_threadpool(answer_document, request, answer)

    async def figure(self, body: ParallelPlanBody, format_: PictureFormat) -> bytes:
        """Draw the answer to a request; raises what `answer` does."""
        picture = ParallelFigure(answer=await self.answer(body), format=format_)
        drawn: bytes = await run_task(self._pool, _FIGURE_TASK, picture)
        return drawn
