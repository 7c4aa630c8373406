"""JSON files, whatever they hold."""

from pathlib import Path
from typing import Any

from pydantic_core import from_json

from api.convert.reading import refuse_repeated_keys
from stowplan.errors import FileFormatError
from stowplan.files import read_text


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises
    ------
    FileFormatError
        When the file cannot be read or is not JSON; names the line.
    InputError
        When an object repeats a key.
    """
    text = read_text(path)
    try:
        document = from_json(text)
    except ValueError as error:
        raise FileFormatError.at(str(path), None, f"is not JSON: {error}") from error
    refuse_repeated_keys(text, f"file {path}")
    return document
