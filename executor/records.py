"""Frozen dataclasses as JSON documents: written with every field, read strictly.

A field may be a string, number, truth value, enum, tuple of one type, mapping from strings to one type, another
dataclass, or one of these or None.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors

Record = TypeVar("Record")
_CONTAINERS = {tuple: "array", Mapping: "object"}


def to_json(record: Any, *, indent: int | None = None) -> str:
    """Give the JSON document of a dataclass; NaN and infinity are an error."""
    return json.dumps(asdict(record), indent=indent, allow_nan=False)


def from_document(kind: type[Record], document: object, what: str) -> Record:
    """Build a dataclass from what `json.loads` gave.

    Parameters
    ----------
    what
        Names the document in the error (`"training job"`).

    Raises
    ------
    InputError
        With one issue per unknown, missing or wrongly typed field, or what the dataclass itself refuses.
    """
    issues: list[Issue] = []
    record = _read(kind, document, "", issues)
    raise_for_errors(issues, what)
    built: Record = record
    return built


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


def _read(kind: Any, value: object, pointer: str, issues: list[Issue]) -> Any:
    """Read a value of the annotated type `kind`; None, with an issue added, when it is not one."""
    choices = _choices(kind)
    if value is None and NoneType in choices:
        return None
    expected = next(choice for choice in choices if choice is not NoneType)
    if is_dataclass(expected) and isinstance(expected, type):
        return _read_dataclass(expected, value, pointer, issues)
    if get_origin(expected) is tuple and isinstance(value, list):
        item = get_args(expected)[0]
        return tuple(_read(item, entry, f"{pointer}/{k}", issues) for k, entry in enumerate(value))
    if get_origin(expected) is Mapping and isinstance(value, dict):
        item = get_args(expected)[1]
        return {key: _read(item, entry, pointer + pointer_of(key), issues) for key, entry in value.items()}
    if isinstance(expected, type) and issubclass(expected, Enum):
        values = [member.value for member in expected]
        if value in values:
            return expected(value)
        issues.append(_issue("unknown_value", pointer, f"is {value!r}; must be one of {values}"))
        return None
    if _is_scalar(expected, value):
        return float(value) if expected is float else value  # type: ignore[arg-type]
    name = _CONTAINERS.get(get_origin(expected)) or getattr(expected, "__name__", str(expected))
    issues.append(_issue("wrong_type", pointer, f"is {value!r}; must be of type {name}"))
    return None


def _read_dataclass(kind: type[Any], value: object, pointer: str, issues: list[Issue]) -> Any:
    if not isinstance(value, dict):
        issues.append(_issue("wrong_type", pointer, f"is {value!r}; must be an object"))
        return None
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind) if field.init}
    before = len(issues)
    issues += _unknown(value, known, pointer)
    given: dict[str, Any] = {}
    for name, field in known.items():
        if name in value:
            given[name] = _read(hints[name], value[name], pointer + pointer_of(name), issues)
        elif field.default is MISSING and field.default_factory is MISSING:
            issues.append(_issue("missing", pointer + pointer_of(name), "is missing"))
    return kind(**given) if len(issues) == before else None


def _unknown(value: dict[str, Any], known: dict[str, Any], pointer: str) -> Iterator[Issue]:
    for name in sorted(value.keys() - known.keys()):
        yield _issue("unknown_field", pointer + pointer_of(name), f"is no field; the fields are {sorted(known)}")


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _is_scalar(expected: Any, value: object) -> bool:
    if isinstance(value, bool):
        return expected is bool
    if expected is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return expected in (int, str) and isinstance(value, expected)


def _issue(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail)
