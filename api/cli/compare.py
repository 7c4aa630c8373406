"""`stowplan compare-solvers`: solvers side by side on this machine, without a service."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli import console
from api.cli.busy import busy
from api.cli.commands import command
from api.cli.compare_console import print_comparison, print_run
from api.cli.exit_codes import EPILOG, ExitCode
from api.cli.files import load_request
from api.cli.local_worker import SLACK_S, Watcher, wait_for
from api.cli.options import File, Json, Policy, given, json_object, picture_format, print_document
from api.cli.paths import Catalogue, readable, write
from api.cli.progress import progress_line
from api.comparisons.race import SolverComparison
from api.convert.comparison import result_document, run_document
from api.figures.request import ComparisonFigure
from models.comparison import SolverRun, agreement
from models.plan import PlanRequest
from solver.pool import WorkerPool
from solver.registry import SOLVER_NAMES
from solver.ticket import Ticket
from stowplan.errors import InputError

_FIGURE_TASK = "api.figures.comparison:figure_task"
# A solver that the file may name gives way to those that are compared.
_AUTO = {"solver": "auto"}


@command("compare-solvers", epilog=EPILOG)
def compare_command(
    file: File,
    policy: Policy = None,
    solvers: Annotated[str, typer.Option(help=f"Any of {', '.join(SOLVER_NAMES)}.")] = "auto,highs,scip",
    time_limit: Annotated[float | None, typer.Option(help="Seconds for each solve.")] = None,
    gap: Annotated[float | None, typer.Option(help="Relative gap at which a plan counts as optimal.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each solver.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of each solver.")] = None,
    parameters: Annotated[str | None, typer.Option(help="Any parameters of the policy, as a JSON object.")] = None,
    json_: Json = False,
    figure: Annotated[Path | None, typer.Option(help="Draw the comparison into this .svg or .png file.")] = None,
    _catalogue: Catalogue = None,
) -> None:
    """Run one request through several solvers, one after another, each in a fresh process under the same limits.

    Ctrl-C stops the solver that runs and leaves out the rest. Answers that contradict each other are our fault.
    """
    picture, names = picture_format(figure), solver_names(solvers)
    options = {"time_limit_s": time_limit, "relative_gap": gap, "threads": threads, "seed": seed}
    asked = load_request(readable(file), policy, json_object(parameters), {**given(options), **_AUTO})
    request = asked.request
    console.print_warnings(asked.warnings)
    runs = compare_locally(
        request, names, lambda name: progress_line(f"{name}: "), lambda run: print_run(run_document(run))
    )
    result = result_document(request, names, runs)
    try:
        if figure is not None and picture is not None:
            with busy(f"drawing {figure}"):
                write(figure, draw_comparison(ComparisonFigure(result=result, format=picture)))
    finally:
        if json_:
            print_document(result)
        else:
            print_comparison(console.output(), result)
    raise typer.Exit(ExitCode.OUR_FAULT if agreement(runs).errors else ExitCode.PLANNED)


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
