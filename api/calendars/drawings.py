"""Pictures of calendars, drawn by workers."""

from starlette.concurrency import run_in_threadpool

from api.calendars.service import Calendars
from api.common.tasks import run_task
from api.figures.picture_format import PictureFormat
from solver.pool import WorkerPool

_FIGURE_TASK = "api.figures.calendar:figure_task"


class CalendarDrawings:
    """Draws calendars."""

    def __init__(self, calendars: Calendars, pool: WorkerPool) -> None:
        self._calendars = calendars
        self._pool = pool

    async def figure(self, name: str, format_: PictureFormat) -> bytes:
        """Draw all that a calendar holds; NotFoundError when there is none."""
        request = await run_in_threadpool(self._calendars.drawable, name, format_)
        drawn: bytes = await run_task(self._pool, _FIGURE_TASK, request)
        return drawn
