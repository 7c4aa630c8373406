"""`stowplan export`: a plan as other launchers and frameworks read it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from api.cli import console
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.options import Catalogue, readable, write
from api.cli.planned import load_job
from executor.export import FORMATS, export, refuse_unknown

_NAMES = "; ".join(f"{name}: {known.title}" for name, known in FORMATS.items())
Hosts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Hosts in the order in which they take the places of the nodes of a `stowplan parallel` answer: one a "
        "line, perhaps with slots=8, or hostlists such as node[01-16].",
    ),
]


@command("export", epilog=EPILOG)
def export_command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A plan of any policy, an answer of `parallel`; - for stdin.")
    ],
    to: Annotated[list[str], typer.Option(help=f"May be given several times. {_NAMES}.")],
    job: Annotated[str | None, typer.Option(help="Job of the plan, where it has GPUs for several.")] = None,
    hosts: Hosts = None,
    request: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What was planned; it says what the job trains.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write the files here; else they are printed."),
    ] = None,
    _catalogue: Catalogue = None,
) -> None:
    """Write a planned job as other launchers and frameworks read it, every rank on the GPU that the plan gives it."""
    refuse_unknown(to)
    files = export(load_job(readable(plan), job, hosts, request), to)
    if output is None:
        for name, text in files.items():
            sys.stdout.write(text if len(files) == 1 else f"==> {name} <==\n{text}\n")
        return
    for name, text in files.items():
        write(output / name, text.encode())
    console.output().print(f"{', '.join(files)}: written to {output}", soft_wrap=True)
