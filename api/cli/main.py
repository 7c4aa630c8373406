"""The command line: the same planning as the service, without a server."""

import importlib
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

import stowplan
from api.cli.commands import LazyCommand, LazyGroup
from api.cli.exit_codes import EPILOG, ExitCode
from stowplan.errors import InputError, StowplanError

# The first line of each command's own help; a test compares them.
COMMANDS: Mapping[str, LazyCommand] = {
    "plan": LazyCommand(
        "api.cli.plan:plan_command",
        "Plan a request, or a bare snapshot with --policy; Ctrl-C stops the solve and keeps the best plan so far.",
    ),
    "compare-solvers": LazyCommand(
        "api.cli.compare:compare_command",
        "Run one request through several solvers, one after another, each in a fresh process under the same limits.",
    ),
    "what-if": LazyCommand(
        "api.cli.what_if:what_if_command",
        "Plan a request and variants of it, and print what differs: nodes drained, jobs changed, another policy.",
    ),
    "parallel": LazyCommand(
        "api.cli.parallel:parallel_command",
        "Find pipeline stages, data and tensor degrees and micro-batches for a job on GPUs of the catalogue.",
    ),
    "export": LazyCommand(
        "api.cli.export:export_command",
        "Write a planned job as other launchers and frameworks read it, or a whole plan as a scheduler takes it over.",
    ),
    "calibrate": LazyCommand(
        "api.cli.calibrate:calibrate_command",
        "Turn measurements of a site (logs of trainings, iteration times, bandwidth tests) into a calibration.",
    ),
    "verify": LazyCommand(
        "api.cli.verify:verify_command",
        "Check somebody's placement on a snapshot and print every rule that it breaks.",
    ),
    "calendar": LazyCommand(
        "api.cli.calendar:calendar_command",
        "List the entries of the calendar of a snapshot, and what excludes one another.",
    ),
    "serve": LazyCommand(
        "api.cli.serve:serve_command",
        "Serve the HTTP interface. Every setting can be given as a variable STOWPLAN_..., options win.",
    ),
    "token": LazyCommand(
        "api.cli.token:token_group",
        "Make, list and revoke tokens of clients, of a service that runs (--url) or one that is stopped (--database).",
    ),
    "purge": LazyCommand(
        "api.cli.purge:purge_command",
        "Delete what is older than it is kept, and give its space back to the disk (of SQLite).",
    ),
    "restore": LazyCommand(
        "api.cli.backup:restore_command",
        "Check a copy and put it in the place of a database, which is kept under another name.",
    ),
    "backup": LazyCommand(
        "api.cli.backup:backup_command",
        "Copy the database of a service, also while it runs, and check the copy for damage.",
    ),
    "import": LazyCommand(
        "api.cli.import_cluster:import_command",
        "Turn a foreign description of a cluster, or what its scheduler says, into our JSON.",
    ),
    "trace": LazyCommand(
        "api.cli.trace:trace_command",
        "Summarise a trace of jobs: how many, how large, how long, what load, what is missing.",
    ),
    "applications": LazyCommand(
        "api.cli.applications:applications_command",
        "Turn a folder of measured applications into the JSON that POST /v1/replays takes as `applications`.",
    ),
    "replay": LazyCommand(
        "api.cli.replay:replay_command",
        "Replay a trace of jobs on a cluster under policies, and compare when jobs end.",
    ),
    "forecast": LazyCommand(
        "api.cli.forecast:forecast_group",
        "Learn from a history how long jobs last, and say it of others; needs the extra `forecast`.",
    ),
    "connect": LazyCommand(
        "api.cli.connect:connect_group",
        "Decide for the queue of a scheduler that runs, and tell it; without --send only write down what.",
    ),
    "examples": LazyCommand(
        "api.cli.examples:examples_command",
        "List the packaged examples, or print one, ready for `stowplan plan -`.",
    ),
    "demo": LazyCommand(
        "api.cli.demo:demo_command",
        "Start a service, post every example and what if, print and draw the answers, write them, stop the service.",
    ),
    "deploy": LazyCommand(
        "api.cli.deploy:deploy_command",
        "Start the training that FILE asks for, the body of POST /v1/deployments, and look after it until it is over.",
    ),
    "tokenize": LazyCommand(
        "api.cli.tokenize:tokenize_command",
        "Write the .bin and .idx that trainings read from the texts of a dataset; needs the extra `data`.",
    ),
    "redeploy": LazyCommand(
        "api.cli.deploy:redeploy_command",
        "Move the deployment in FOLDER to the plan in FILE, or go on with the plan that it has, and look after it.",
    ),
}
# By code: the classes stand beside what loads NumPy and pydantic.
_BAD_INPUT = ("malformed_json", "not_found", "kubernetes_api")
_NO_SOLUTION = ("canceled", "worker_timeout")


class _Commands(LazyGroup):
    """Turns errors into messages and exit codes, for every command."""

    lazy_commands = COMMANDS

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except StowplanError as error:
            # Only now: what prints loads rich.
            importlib.import_module("api.cli.console").print_error(error)
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
    rich_markup_mode=None,
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


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"stowplan {stowplan.__version__}\n")
        raise typer.Exit


def _exit_code(error: StowplanError) -> ExitCode:
    if error.code in _NO_SOLUTION:
        return ExitCode.NO_SOLUTION
    return ExitCode.BAD_INPUT if isinstance(error, InputError) or error.code in _BAD_INPUT else ExitCode.OUR_FAULT


if __name__ == "__main__":
    main()
