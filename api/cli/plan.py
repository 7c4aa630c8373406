"""`stowplan plan`: one plan, without a server."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from api.cli import console
from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG, ExitCode
from api.cli.files import load_request
from api.cli.local_worker import LocalPlanner, local_document
from api.cli.options import (
    File,
    ForecasterOption,
    Json,
    Output,
    Policy,
    given,
    json_object,
    picture_format,
    print_document,
)
from api.cli.paths import Catalogue, readable, write
from api.cli.plan_console import print_outcome
from api.cli.progress import progress_line
from api.figures.request import FigureRequest
from models.plan import PlanOutcome, PlanRequest
from solver.registry import SOLVER_NAMES
from solver.result import TerminationReason


@command("plan", epilog=EPILOG)
def plan_command(
    file: File,
    policy: Policy = None,
    solver: Annotated[str | None, typer.Option(help=f"One of {', '.join(SOLVER_NAMES)}.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the solve.")] = None,
    gap: Annotated[float | None, typer.Option(help="Relative gap at which a plan counts as optimal.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of the solver.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the solver.")] = None,
    fairness_power: Annotated[float | None, typer.Option(help="Sia: p, not 0; a negative one minimises.")] = None,
    queue_penalty: Annotated[float | None, typer.Option(help="Sia: price of a job without GPUs.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Arnold, horizon: affinity of DP groups, 0 to 1.")] = None,
    scheduling_unit: Annotated[str | None, typer.Option(help="Arnold: pp or dp.")] = None,
    minipod_tier: Annotated[str | None, typer.Option(help="Arnold: tier whose units are the minipods.")] = None,
    parameters: Annotated[str | None, typer.Option(help="Any parameters of the policy, as a JSON object.")] = None,
    forecaster: ForecasterOption = None,
    json_: Json = False,
    figure: Annotated[Path | None, typer.Option(help="Draw the plan into this .svg or .png file.")] = None,
    output: Output = None,
    _catalogue: Catalogue = None,
) -> None:
    """Plan a request, or a bare snapshot with --policy; Ctrl-C stops the solve and keeps the best plan so far."""
    picture = picture_format(figure)
    options = {"solver": solver, "time_limit_s": time_limit, "relative_gap": gap, "threads": threads, "seed": seed}
    named = {
        "fairness_power": fairness_power,
        "queue_penalty": queue_penalty,
        "alpha": alpha,
        "scheduling_unit": scheduling_unit,
        "minipod_tier": minipod_tier,
    }
    fields = {**json_object(parameters), **given(named)}
    with busy(f"reading {file}"):
        asked = load_request(readable(file), policy, fields, given(options), forecaster)
    request = asked.request
    console.print_warnings(asked.warnings)
    with LocalPlanner() as planner:
        with progress_line() as watcher:
            outcome = planner.plan(request, watcher)
        outcome = replace(outcome, warnings=(*asked.filled_in, *asked.in_file(outcome.warnings)))
        # Those of the request were printed before.
        console.print_warnings([warning for warning in outcome.warnings if warning not in asked.warnings])
        # A solve may have been long: whatever goes wrong with the files, the answer is printed, and it is written
        # before a worker draws it.
        try:
            if output is not None:
                write(output, (local_document(request, outcome).model_dump_json(indent=2) + "\n").encode())
            if figure is not None and picture is not None:
                drawing = FigureRequest(snapshot=request.snapshot, outcome=outcome, format=picture)
                with busy(f"drawing {figure}"):
                    write(figure, planner.draw(drawing))
        finally:
            _print_answer(request, outcome, json_)
    raise typer.Exit(outcome_code(outcome))


def _print_answer(request: PlanRequest, outcome: PlanOutcome, as_json: bool) -> None:
    if as_json:
        print_document(local_document(request, outcome))
    else:
        print_outcome(console.output(), request.policy, outcome, request.options)


def outcome_code(outcome: PlanOutcome) -> ExitCode:
    """How a command ends that gave this outcome."""
    if outcome.termination.has_incumbent:
        return ExitCode.PLANNED
    if outcome.termination is TerminationReason.INFEASIBLE:
        return ExitCode.INFEASIBLE
    no_solution = outcome.termination is TerminationReason.NO_SOLUTION_FOUND
    return ExitCode.NO_SOLUTION if no_solution else ExitCode.OUR_FAULT
