"""Compare solvers on this machine without a service."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from api.cli.local_worker import SLACK_S, Watcher, wait_for
from api.comparisons.race import SolverComparison
from api.figures.request import ComparisonFigure
from models.comparison import SolverRun
from models.plan import PlanRequest
from solver.pool import Ticket, WorkerPool
from solver.registry import SOLVER_NAMES
from stowplan.errors import InputError

_FIGURE_TASK = "api.figures.comparison:figure_task"


def solver_names(text: str) -> tuple[str, ...]:
    """Read names that are separated by commas.

    Raises
    ------
    InputError
        When there is none, one is not known, or one is listed twice.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = next((name for name in names if name not in SOLVER_NAMES), None)
    if unknown is not None or not names:
        named = "names no solver" if unknown is None else f"names {unknown!r}"
        raise InputError(f"--solvers {named}; the solvers are {', '.join(SOLVER_NAMES)}")
    if len(set(names)) < len(names):
        raise InputError(f"--solvers is {text!r}; list each solver once")
    return names


def compare_locally(
    request: PlanRequest,
    solvers: tuple[str, ...],
    watching: Callable[[str], AbstractContextManager[Watcher]],
    on_run: Callable[[SolverRun], None],
) -> list[SolverRun]:
    """Run the solvers. The first KeyboardInterrupt stops the one that runs and those after it, the second passes.

    `watching` gives whoever looks on while a solver runs, `on_run` is called when it is done.
    """
    runs: list[SolverRun] = []
    comparison = SolverComparison(request, SLACK_S, lambda ticket: wait(ticket))

    def wait(ticket: Ticket) -> Any:
        return wait_for(ticket, watcher.on_progress, stop)

    def stop() -> None:
        comparison.stop()
        watcher.on_stop()

    for solver in solvers:
        with watching(solver) as watcher:
            runs.append(comparison.run(solver))
        on_run(runs[-1])
    return runs


def draw_comparison(request: ComparisonFigure) -> bytes:
    """Draw a comparison."""
    with WorkerPool(num_workers=1, max_queue=1) as pool:
        picture: bytes = pool.submit(_FIGURE_TASK, request, SLACK_S).result()
    return picture
