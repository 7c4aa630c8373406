"""Pictures of comparisons, drawn by workers."""

from starlette.concurrency import run_in_threadpool

from api.common.tasks import run_task
from api.comparisons.service import Comparisons
from api.figures.request import ComparisonFigure, PictureFormat
from solver.pool import WorkerPool

_FIGURE_TASK = "api.figures.comparison:figure_task"


class ComparisonDrawings:
    """Draws comparisons of solvers."""

    def __init__(self, comparisons: Comparisons, pool: WorkerPool) -> None:
        self._comparisons = comparisons
        self._pool = pool

    async def figure(self, comparison_id: str, format_: PictureFormat) -> bytes:
        """Draw a comparison.

        Raises
        ------
        NotFoundError
            When there is none.
        NoOutcomeError
            When there is nothing to draw.
        """
        document = await run_in_threadpool(self._comparisons.drawable, comparison_id)
        drawn: bytes = await run_task(self._pool, _FIGURE_TASK, ComparisonFigure(result=document, format=format_))
        return drawn
