"""Files that commands read and write, and the option for a catalogue. Light: for commands that need no documents."""

from pathlib import Path
from typing import Annotated

import typer

from stowplan.catalogue import VARIABLE
from stowplan.errors import InputError

_STDIN = Path("/dev/stdin")


def readable(path: Path) -> Path:
    """The file, or standard input for `-`."""
    return _STDIN if str(path) == "-" else path


def write(path: Path, data: bytes) -> None:
    """Write a file, in a folder that is made where it is missing.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _use(context: typer.Context, file: Path | None) -> None:
    """Find the entries of a user's catalogue until the command is over, in its workers, too."""
    if file is not None:
        # Only now: it knows models, too, which load NumPy.
        from models.catalogue import using_catalogue

        context.with_resource(using_catalogue(file))


Catalogue = Annotated[
    Path | None,
    typer.Option(
        "--catalogue",
        metavar="FILE",
        envvar=VARIABLE,
        callback=_use,
        help="TOML file with GPUs and models of your own.",
    ),
]
