"""Pictures of replays, drawn by workers."""

from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from api.common.tasks import run_task
from api.figures.picture_format import PictureFormat
from api.replays.service import Replays
from solver.pool import WorkerPool

_FIGURE_TASK = "api.replays.figure_task:figure_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTexts:
    """JSON text of a cluster and of replays on it, and as what to draw them."""

    cluster: str
    replays: tuple[str, ...]
    format: PictureFormat


class ReplayDrawings:
    """Draws replays."""

    def __init__(self, replays: Replays, pool: WorkerPool) -> None:
        self._replays = replays
        self._pool = pool

    async def figure(self, replays_id: str, format_: PictureFormat) -> bytes:
        """Draw the first replay of every policy.

        Raises
        ------
        NotFoundError
            When there are none.
        NoOutcomeError
            When there is nothing to draw.
        """
        cluster, texts = await run_in_threadpool(self._replays.drawable, replays_id)
        request = ReplayTexts(cluster=cluster, replays=tuple(texts), format=format_)
        drawn: bytes = await run_task(self._pool, _FIGURE_TASK, request)
        return drawn
