"""`stowplan applications`: a folder of measured applications as the `applications` of POST /v1/replays."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.paths import write
from api.cli.pretty import pretty_json
from stowplan.records import to_document
from workloads.profiles import measured_in, read_profiles


@command("applications", epilog=EPILOG)
def applications_command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="With APPLICATION/placements-TYPE.csv and validation-BATCH.csv.")
    ],
    only: Annotated[list[str] | None, typer.Option(help="Only this application; may be repeated.")] = None,
    gpu_types: Annotated[str | None, typer.Option(help="Only these GPU types, with commas.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")] = None,
) -> None:
    """Turn a folder of measured applications into the JSON that POST /v1/replays takes as `applications`."""
    applications, types = measured_in(folder)
    with busy(f"reading {folder}"):
        profiles = read_profiles(folder, only or applications, types if gpu_types is None else gpu_types.split(","))
    text = pretty_json(to_document(profiles)) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write(output, text.encode())
