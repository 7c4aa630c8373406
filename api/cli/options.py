"""Options that commands share, and how they are read."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel
from pydantic_core import from_json

from api.convert.job_model import shipped_calibrations
from api.figures.picture_format import PictureFormat
from models.policies import POLICIES
from stowplan.errors import InputError

_PICTURES: Mapping[str, PictureFormat] = {".svg": "svg", ".png": "png"}

File = Annotated[Path, typer.Argument(metavar="FILE", help="JSON file; - for standard input.")]
Policy = Annotated[str | None, typer.Option(help=f"One of {', '.join(POLICIES)}; needed when FILE is a bare snapshot.")]
ForecasterOption = Annotated[
    Path | None,
    typer.Option(
        "--forecaster",
        metavar="FILE",
        help="What `stowplan forecast train` wrote: how long jobs last that do not say it themselves.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the JSON to this file, too.")]


def given(values: Mapping[str, object]) -> dict[str, object]:
    """The options that were given."""
    return {name: value for name, value in values.items() if value is not None}


def json_object(text: str | None) -> dict[str, object]:
    """Parameters that are given as JSON.

    Raises
    ------
    InputError
        When the text is no JSON object.
    """
    try:
        value = {} if text is None else from_json(text)
    except ValueError as error:
        raise InputError(f"--parameters is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError('--parameters must be a JSON object such as {"alpha": 0.3}')
    return value


def print_document(document: BaseModel) -> None:
    """Print JSON."""
    sys.stdout.write(document.model_dump_json(indent=2) + "\n")


def picture_format(figure: Path | None) -> PictureFormat | None:
    """Format of a picture by the name of its file.

    Raises
    ------
    InputError
        When it is neither .svg nor .png.
    """
    if figure is None:
        return None
    if figure.suffix.lower() not in _PICTURES:
        raise InputError(f"--figure is {str(figure)!r}; must end in .svg or .png")
    return _PICTURES[figure.suffix.lower()]


def named_calibration(name: Path) -> Path | str:
    """The file, or the name of a calibration of a common system that comes along.

    Raises
    ------
    InputError
        When there is neither.
    """
    if name.exists():
        return name
    if str(name) not in shipped_calibrations():
        raise InputError(
            f"--calibration is {str(name)!r}; a file of `stowplan calibrate`, or one of "
            f"{', '.join(shipped_calibrations())}"
        )
    return str(name)
