"""`stowplan export`: a plan as schedulers take it over, its jobs as other launchers and frameworks read them."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from api.cli import console
from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.paths import Catalogue, readable, write
from api.cli.planned import load_job, load_whole_plan
from executor.export import FORMATS, PLAN_FORMATS, export, export_plan, refuse_unknown
from executor.export.options import HasOptions, option_words, read_options
from stowplan.errors import InputError
from stowplan.files import read_text

_TITLES = {name: known.title for name, known in FORMATS.items()} | {n: known.title for n, known in PLAN_FORMATS.items()}
_NAMES = "; ".join(f"{name}: {title}" for name, title in _TITLES.items())
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
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help=f"May be given several times. {option_words({**FORMATS, **PLAN_FORMATS})}"
        ),
    ] = None,
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
    """Write a planned job as other launchers and frameworks read it, or a whole plan as a scheduler takes it over.

    Every rank of a job is on the GPU that the plan gives it. A whole plan goes to a scheduler that has the queue.
    """
    given = _with_documents(read_options(option or ()), to)
    files: Mapping[str, str]
    if whole := [name for name in to if name in PLAN_FORMATS]:
        if len(to) > 1 or job is not None or hosts is not None:
            raise InputError(f"{whole[0]} takes over a whole plan: give it alone, without --job and --hosts")
        with busy(f"exporting {plan}"):
            made = export_plan(load_whole_plan(readable(plan), request), whole[0], given)
        files = made.files
        console.print_warnings(made.notes)
    else:
        refuse_unknown(to)
        with busy(f"exporting {plan}"):
            files = export(load_job(readable(plan), job, hosts, request), to, given)
    if output is None:
        for name, text in files.items():
            sys.stdout.write(text if len(files) == 1 else f"==> {name} <==\n{text}\n")
        return
    for name, text in files.items():
        write(output / name, text.encode())
    console.output().print(f"{', '.join(files)}: written to {output}", soft_wrap=True)


def _with_documents(given: Mapping[str, str], to: Sequence[str]) -> dict[str, str]:
    """Options with the text of files in place of their paths."""
    formats: Mapping[str, HasOptions] = {**FORMATS, **PLAN_FORMATS}
    options = [item for wanted in to if wanted in formats for item in formats[wanted].options.items()]
    documents = {name for name, option in options if option.is_document}
    return {name: read_text(readable(Path(text))) if name in documents else text for name, text in given.items()}
