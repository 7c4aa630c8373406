"""3D-parallel plans for one job, and their picture, without HTTP."""

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool

from api.common.settings import Settings
from api.common.tasks import run_task
from api.convert.parallel_answer import answer_document
from api.convert.parallel_request import in_body, parallel_request, time_limit_s
from api.figures.picture_format import PictureFormat
from api.figures.request import ParallelFigure
from api.schemas.model import CalibrationDoc
from api.schemas.parallel import ParallelPlanBody
from api.schemas.parallel_answer import ParallelPlanAnswer
from models.parallelism.request import ParallelAnswer, ParallelRequest
from solver.pool import WorkerPool

_PLAN_TASK = "models.parallelism.planner:answer_task"
_FIGURE_TASK = "api.figures.parallel:figure_task"


class ParallelPlans:
    """Has workers plan single jobs in three dimensions; `calibration`: the one of a name, None where there is none."""

    def __init__(
        self, settings: Settings, pool: WorkerPool, calibration: Callable[[str], CalibrationDoc | None]
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._calibration = calibration

    async def answer(self, body: ParallelPlanBody) -> ParallelPlanAnswer:
        """Plan one job.

        Raises
        ------
        InputError
            When the request is wrong, or no plan is legal on any of the GPUs.
        WorkerTimeoutError
            When the time limit is over.
        """
        request = await run_in_threadpool(self._request, body)
        limit_s = time_limit_s(body.options, self._settings)
        with in_body(body):
            answer: ParallelAnswer = await run_task(self._pool, _PLAN_TASK, request, limit_s)
        return await run_in_threadpool(answer_document, request, answer)

    def _request(self, body: ParallelPlanBody) -> ParallelRequest:
        named = body.calibration
        if isinstance(named, str):
            # One that there is not is refused with the rest of the request.
            body = body.model_copy(update={"calibration": self._calibration(named) or named})
        return parallel_request(body)

    async def figure(self, body: ParallelPlanBody, format_: PictureFormat) -> bytes:
        """Draw the answer to a request; raises what `answer` does."""
        picture = ParallelFigure(answer=await self.answer(body), format=format_)
        drawn: bytes = await run_task(self._pool, _FIGURE_TASK, picture)
        return drawn
