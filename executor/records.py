"""Frozen dataclasses as JSON files (`stowplan.records`), and text files that survive a crash whole."""

import json
import os
from pathlib import Path
from typing import Any, TypeVar

from stowplan.errors import InputError
from stowplan.records import from_document, to_json

Record = TypeVar("Record")


def read_record(kind: type[Record], path: Path, what: str) -> Record:
    """Read a dataclass from a JSON file; raise InputError, which names the file, when that is impossible."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a {what}: {error}") from error
    try:
        return from_document(kind, document, what)
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error


def write_record(record: Any, path: Path) -> None:
    """Write a dataclass as a JSON file, at once or not at all, and durably."""
    write_text(path, to_json(record, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file so that after a crash there is the old one or the new one, never a part of it."""
    draft = path.with_name(f".{path.name}.part")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
