"""What is made of a plan on demand, by workers: its picture, and its model as a file."""

from starlette.concurrency import run_in_threadpool

from api.common.errors import NoOutcomeError
from api.common.tasks import run_task
from api.convert.outcome import outcome_from_document
from api.figures.request import FigureRequest, PictureFormat
from api.plans.present import has_figure
from api.plans.service import Plans
from api.schemas.plan import OutcomeDoc, TimingsDoc
from solver.pool import WorkerPool

_FIGURE_TASK = "api.figures.render:figure_task"
_MODEL_TASK = "models.planning:export_task"


class PlanDrawings:
    """Draws plans and writes their models."""

    def __init__(self, pool: WorkerPool, plans: Plans) -> None:
        self._pool = pool
        self._plans = plans

    async def figure(self, plan_id: str, format_: PictureFormat) -> bytes:
        """Draw a plan.

        Raises
        ------
        NotFoundError
            When there is none.
        NoOutcomeError
            When there is nothing to draw.
        """
        record = await run_in_threadpool(self._plans.record, plan_id)
        if record.outcome is None or not has_figure(record):
            raise NoOutcomeError(f"{plan_id} is {record.status.value}: there is nothing to draw")
        timings = TimingsDoc.model_validate_json(record.timings)
        outcome = outcome_from_document(OutcomeDoc.model_validate_json(record.outcome), timings)
        asked = (await self._plans.reread(plan_id)).request.for_worker()
        request = FigureRequest(snapshot=asked.snapshot, outcome=outcome, format=format_)
        drawn: bytes = await run_task(self._pool, _FIGURE_TASK, request)
        return drawn

    async def model(self, plan_id: str) -> str:
        """Give the model behind a plan as MPS; NotFoundError when there is no such plan."""
        asked = await self._plans.reread(plan_id)
        text: str = await run_task(self._pool, _MODEL_TASK, asked.request.for_worker())
        return text
