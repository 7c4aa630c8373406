"""The task of workers that read a request and go on to plan it."""

import time

from api.plans.outcome import Planned
from api.plans.planning import planned
from api.plans.reading import ReadInTask, read_plan
from api.reading.texts import Lacking, RequestText
from models.plan import PlanTask
from solver.monitor import SolveMonitor


def read_and_plan(text: RequestText, monitor: SolveMonitor) -> Planned | Lacking:
    """Read a request, tell that as `ReadInTask`, and plan it.

    Raises what `read_plan` does, and then, once it has told, what `planned` does.
    """
    start_s = time.perf_counter()
    asked = read_plan(text, monitor)
    if isinstance(asked, Lacking):
        return asked
    monitor.tells(ReadInTask(asked=asked, wall_s=time.perf_counter() - start_s))
    return planned(PlanTask(request=asked.request.unpacked(), validated=True), monitor)
