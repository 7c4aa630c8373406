"""What is made of a plan on demand, by workers: its picture, and its model as a file."""

from starlette.concurrency import run_in_threadpool

from api.common.errors import NoOutcomeError
from api.common.settings import Settings
from api.common.tasks import run_task
from api.convert.outcome import outcome_from_document
from api.figures.request import FigureRequest
from api.plans.present import has_figure, plan_document
from api.plans.service import Plans
from api.plans.stored import stored_request
from api.schemas.plan import OutcomeDoc
from api.store.snapshots import Snapshots
from models.plan import PlanRequest
from solver.pool import WorkerPool

_FIGURE_TASK = "api.figures.render:figure_task"
_MODEL_TASK = "models.planning:export_task"


class PlanDrawings:
    """Draws plans and writes their models."""

    def __init__(self, settings: Settings, pool: WorkerPool, plans: Plans, snapshots: Snapshots) -> None:
        self._settings = settings
        self._pool = pool
        self._plans = plans
        self._snapshots = snapshots

    async def figure(self, plan_id: str) -> bytes:
        """Draw a plan as SVG.

        Raises
        ------
        NotFoundError
            When there is none.
        NoOutcomeError
            When there is nothing to draw.
        """
        request = await run_in_threadpool(self._figure_request, plan_id)
        drawn: bytes = await run_task(self._pool, _FIGURE_TASK, request)
        return drawn

    async def model(self, plan_id: str) -> str:
        """Give the model behind a plan as MPS; NotFoundError when there is no such plan."""
        request = await run_in_threadpool(self._request, plan_id)
        text: str = await run_task(self._pool, _MODEL_TASK, request)
        return text

    def _request(self, plan_id: str) -> PlanRequest:
        """What the planners were asked for."""
        return stored_request(self._plans.input_text(plan_id), self._snapshots, self._settings)

    def _figure_request(self, plan_id: str) -> FigureRequest:
        record = self._plans.record(plan_id)
        if record.outcome is None or not has_figure(record):
            raise NoOutcomeError(f"{plan_id} is {record.status.value}: there is nothing to draw")
        plan = plan_document(record)
        outcome = outcome_from_document(OutcomeDoc.model_validate_json(record.outcome), plan.timings)
        return FigureRequest(snapshot=self._request(plan_id).snapshot, outcome=outcome, format="svg")
