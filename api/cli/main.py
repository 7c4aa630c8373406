"""The command line: the same planning as the service, without a server."""

import importlib
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import from_json
from typer.core import TyperGroup

from api.cli import console
from api.cli.compare import compare_locally, draw_comparison, solver_names
from api.cli.compare_console import print_comparison, print_run
from api.cli.demo import run_demo
from api.cli.deploy import register as register_deploy
from api.cli.files import load_allocations, load_request, load_snapshot
from api.cli.import_cluster import GpuFacts, import_cluster, node_defaults
from api.cli.local_worker import LocalPlanner, local_document
from api.cli.options import (
    EPILOG,
    ExitCode,
    File,
    Json,
    Output,
    Policy,
    given,
    picture_format,
    print_document,
    readable,
    write,
)
from api.cli.parallel import parallel_command
from api.cli.pretty import pretty_json
from api.common.errors import NotFoundError
from api.common.examples import example, examples
from api.common.settings import Settings, read_settings, setting_variables
from api.convert.comparison import result_document, run_document
from api.convert.outcome import issue_documents
from api.convert.placement import placement_issues
from api.convert.reading import MalformedJsonError
from api.figures.request import ComparisonFigure, FigureRequest
from api.schemas.base import MAX_GPUS_PER_NODE
from api.schemas.problem import VerificationDoc
from models.comparison import agreement
from models.plan import PlanOutcome, PlanRequest
from solver.pool import TaskCanceledError
from solver.registry import SOLVER_NAMES
from solver.result import TerminationReason
from stowplan import __version__
from stowplan.errors import InputError, StowplanError
from topology.serialize import cluster_to_json

_BAD_INPUT = (InputError, MalformedJsonError, NotFoundError)
# A solver that the file may name gives way to those that are compared.
_AUTO = {"solver": "auto"}


class _Commands(TyperGroup):
    """Turns errors into messages and exit codes, for every command."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except StowplanError as error:
            console.print_error(error)
            raise typer.Exit(_exit_code(error)) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(ExitCode.QUIT) from error


app = typer.Typer(
    cls=_Commands,
    help="Plan a cluster that trains large language models: solved, bounded, checked.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Console entry point."""
    app(prog_name="stowplan")


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=lambda value: _print_version(value), help="Version.")
    ] = False,
) -> None:
    pass


@app.command("plan", epilog=EPILOG)
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
    alpha: Annotated[float | None, typer.Option(help="Arnold: affinity of DP groups, 0 to 1.")] = None,
    scheduling_unit: Annotated[str | None, typer.Option(help="Arnold: pp or dp.")] = None,
    minipod_tier: Annotated[str | None, typer.Option(help="Arnold: tier whose units are the minipods.")] = None,
    parameters: Annotated[str | None, typer.Option(help="Any parameters of the policy, as a JSON object.")] = None,
    json_: Json = False,
    figure: Annotated[Path | None, typer.Option(help="Draw the plan into this .svg or .png file.")] = None,
    output: Output = None,
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
    request, warnings = load_request(
        readable(file), policy, {**_json_object(parameters), **given(named)}, given(options)
    )
    console.print_warnings(warnings)
    with LocalPlanner() as planner:
        with console.progress_line() as watcher:
            outcome = planner.plan(request, watcher)
        # A solve may have been long: whatever goes wrong with the files, the answer is printed.
        try:
            if figure is not None and picture is not None:
                drawing = FigureRequest(snapshot=request.snapshot, outcome=outcome, format=picture)
                write(figure, planner.draw(drawing))
            if output is not None:
                write(output, (local_document(request, outcome).model_dump_json(indent=2) + "\n").encode())
        finally:
            _print_answer(request, outcome, json_)
    raise typer.Exit(_outcome_code(outcome))


@app.command("compare-solvers", epilog=EPILOG)
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
) -> None:
    """Run one request through several solvers, one after another, each in a fresh process under the same limits.

    Ctrl-C stops the solver that runs and leaves out the rest. Answers that contradict each other are our fault.
    """
    picture, names = picture_format(figure), solver_names(solvers)
    options = {"time_limit_s": time_limit, "relative_gap": gap, "threads": threads, "seed": seed}
    request, warnings = load_request(readable(file), policy, _json_object(parameters), {**given(options), **_AUTO})
    console.print_warnings(warnings)
    runs = compare_locally(
        request, names, lambda name: console.progress_line(f"{name}: "), lambda run: print_run(run_document(run))
    )
    result = result_document(request, names, runs)
    try:
        if figure is not None and picture is not None:
            write(figure, draw_comparison(ComparisonFigure(result=result, format=picture)))
    finally:
        if json_:
            print_document(result)
        else:
            print_comparison(console.output(), result)
    raise typer.Exit(ExitCode.OUR_FAULT if agreement(runs).errors else ExitCode.PLANNED)


app.command("parallel", epilog=EPILOG)(parallel_command)


@app.command("verify", epilog=EPILOG)
def verify_command(
    snapshot: Annotated[Path, typer.Argument(metavar="SNAPSHOT", help="A snapshot or a plan request; - for stdin.")],
    allocations: Annotated[Path, typer.Argument(metavar="ALLOCATIONS", help="Allocations, or a plan.")],
    json_: Json = False,
) -> None:
    """Check somebody's placement on a snapshot and print every rule that it breaks."""
    known = load_snapshot(readable(snapshot))
    placement = load_allocations(readable(allocations))
    violations = placement_issues(placement, known)
    if json_:
        print_document(VerificationDoc(legal=not violations, violations=issue_documents(violations)))
    elif violations:
        console.output().print(console.violations_table(violations))
    else:
        console.output().print(f"legal: {len(placement)} allocations, no violations")
    raise typer.Exit(ExitCode.ILLEGAL if violations else ExitCode.PLANNED)


def _default(setting: str) -> str:
    """What a setting is where neither an option nor a variable gives it."""
    return str(getattr(Settings(), setting))


@app.command("serve", epilog=f"Variables: {', '.join(setting_variables())}.")
def serve_command(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=_default("host"))] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 for any free one.", show_default=_default("port"))
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="SQLite file, or :memory:.", show_default=_default("database"))
    ] = None,
    deployments: Annotated[
        str | None, typer.Option(help="Folder of deployments; without it the service deploys nothing.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Solves at a time.", show_default=_default("workers"))] = None,
    queue_size: Annotated[
        int | None, typer.Option(help="Plans that may wait.", show_default=_default("queue_size"))
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds for a solve that names no limit.", show_default=_default("time_limit_s")),
    ] = None,
    max_time_limit: Annotated[
        float | None,
        typer.Option(help="Most seconds that a request may ask for.", show_default=_default("max_time_limit_s")),
    ] = None,
    max_threads: Annotated[
        int | None, typer.Option(help="Most threads that a request may ask for.", show_default=_default("max_threads"))
    ] = None,
    max_body_bytes: Annotated[
        int | None, typer.Option(help="Largest request body.", show_default=_default("max_body_bytes"))
    ] = None,
) -> None:
    """Serve the HTTP interface. Every setting can be given as a variable STOWPLAN_..., options win."""
    overrides = {
        "host": host,
        "port": port,
        "database": database,
        "deployments": deployments,
        "workers": workers,
        "queue_size": queue_size,
        "time_limit_s": time_limit,
        "max_time_limit_s": max_time_limit,
        "max_threads": max_threads,
        "max_body_bytes": max_body_bytes,
    }
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    # The web stack takes as long to load as all other commands together.
    importlib.import_module("api.server").serve(read_settings(overrides))


@app.command("import")
def import_command(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="slurm, csv or topograph.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of that format; - for standard input.")],
    gpu_type: Annotated[str, typer.Option(help="GPU type of the nodes.")],
    gpus_per_node: Annotated[int, typer.Option(min=1, max=MAX_GPUS_PER_NODE, help="GPUs of a node.")],
    memory: Annotated[str | None, typer.Option(help="Memory of a GPU, such as 80GiB.")] = None,
    peak_flops: Annotated[str | None, typer.Option(help="Peak of a GPU, such as 312T.")] = None,
    intra_node_bandwidth: Annotated[str | None, typer.Option(help="Between GPUs of a node: 300GB/s.")] = None,
    inter_node_bandwidth: Annotated[str | None, typer.Option(help="Between nodes: 400Gbit/s.")] = None,
    gpu_types: Annotated[
        Path | None, typer.Option(help="Take the facts from the GPU types of this cluster, snapshot or list.")
    ] = None,
    minipod_tier: Annotated[str | None, typer.Option(help="Tier whose units are the minipods.")] = None,
    id_column: Annotated[str | None, typer.Option(help="CSV: column of the host names.")] = None,
    tier_column: Annotated[list[str] | None, typer.Option(help="CSV: columns of the tiers, coarsest first.")] = None,
    as_snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Wrap the cluster as a snapshot without jobs.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")] = None,
) -> None:
    """Turn a foreign description of a cluster into our JSON."""
    facts = GpuFacts(
        memory=memory,
        peak_flops=peak_flops,
        intra_node_bandwidth=intra_node_bandwidth,
        inter_node_bandwidth=inter_node_bandwidth,
    )
    defaults = node_defaults(gpu_type, gpus_per_node, facts, gpu_types)
    cluster = import_cluster(format_, readable(file), defaults, minipod_tier, id_column, tier_column)
    document: dict[str, object] = cluster_to_json(cluster)
    text = pretty_json({"cluster": document, "jobs": []} if as_snapshot else document) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write(output, text.encode())


@app.command("examples")
def examples_command(
    example_id: Annotated[str | None, typer.Argument(metavar="ID", help="Print this one.")] = None,
) -> None:
    """List the packaged examples, or print one, ready for `stowplan plan -`."""
    if example_id is None:
        console.output().print(console.examples_table(examples()))
    else:
        sys.stdout.write(pretty_json(example(example_id).request) + "\n")


@app.command("demo")
def demo_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for answers and pictures.")] = Path("out"),
) -> None:
    """Start a service, post every example, print the answers, write them and their pictures, stop the service."""
    if not run_demo(output, console.output()):
        raise typer.Exit(ExitCode.OUR_FAULT)


register_deploy(app)


def _print_answer(request: PlanRequest, outcome: PlanOutcome, as_json: bool) -> None:
    if as_json:
        print_document(local_document(request, outcome))
    else:
        console.print_outcome(console.output(), request.policy, outcome, request.options)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"stowplan {__version__}\n")
        raise typer.Exit


def _exit_code(error: StowplanError) -> ExitCode:
    if isinstance(error, TaskCanceledError):
        return ExitCode.NO_SOLUTION
    return ExitCode.BAD_INPUT if isinstance(error, _BAD_INPUT) else ExitCode.OUR_FAULT


def _outcome_code(outcome: PlanOutcome) -> ExitCode:
    if outcome.termination.has_incumbent:
        return ExitCode.PLANNED
    if outcome.termination is TerminationReason.INFEASIBLE:
        return ExitCode.INFEASIBLE
    no_solution = outcome.termination is TerminationReason.NO_SOLUTION_FOUND
    return ExitCode.NO_SOLUTION if no_solution else ExitCode.OUR_FAULT


def _json_object(text: str | None) -> dict[str, object]:
    try:
        value = {} if text is None else from_json(text)
    except ValueError as error:
        raise InputError(f"--parameters is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError('--parameters must be a JSON object such as {"alpha": 0.3}')
    return value


if __name__ == "__main__":
    main()
