"""Frozen dataclasses as JSON documents: written with every field, read strictly.

A field may be a string, integer, number, truth value, enum of strings, tuple of one type, mapping from strings to one
type, another dataclass, or one of these or None. What has a default may be left out.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from stowplan.errors import Issue, pointer_of, raise_for_errors

Record = TypeVar("Record")
# Reads a value at a pointer; adds an issue where it is none.
FieldReader = Callable[["Reading", object, str], Any]
_LARGEST_INTEGER = 2**63 - 1  # what an int64 array holds


def to_document(record: Any) -> Any:
    """Give the document of a dataclass as dicts and lists."""
    if is_dataclass(record) and not isinstance(record, type):
        return {field.name: to_document(getattr(record, field.name)) for field in fields(record)}
    if isinstance(record, Mapping):
        return {key: to_document(value) for key, value in record.items()}
    if isinstance(record, (tuple, list)):
        return [to_document(value) for value in record]
    return record.value if isinstance(record, Enum) else record


def to_json(record: Any, *, indent: int | None = None) -> str:
    """Give the JSON text of a dataclass; NaN and infinity are an error."""
    return json.dumps(to_document(record), indent=indent, allow_nan=False)


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
    reading = Reading()
    record = reading.record(kind, document, "")
    raise_for_errors(reading.issues, what)
    built: Record = record
    return built


class Reading:
    """Reads typed values and collects faults; what it returns after a fault is a stand-in that never leaves.

    Parameters
    ----------
    special
        Dataclass and name of a field -> how it is read where its type does not say it all.
    empty_text
        Whether strings may be empty.
    """

    def __init__(self, special: Mapping[tuple[type, str], FieldReader] | None = None, *, empty_text: bool = True):
        self.issues: list[Issue] = []
        self._special = special or {}
        self._empty_text = empty_text

    def fault(self, code: str, pointer: str, detail: str) -> None:
        """Add an issue."""
        self.issues.append(Issue(code=code, pointer=pointer, detail=detail))

    def record(self, kind: Any, value: object, pointer: str) -> Any:
        """Read a dataclass; None after a fault in it."""
        if not isinstance(value, dict):
            return self._wrong_type(value, pointer, "an object")
        known = _fields_of(kind)
        before = len(self.issues)
        for name in value:
            if name not in known:
                detail = f"there is no such field; the fields are {list(known)}"
                self.fault("unknown_field", pointer + pointer_of(name), detail)
        given: dict[str, Any] = {}
        for name, (field, annotation) in known.items():
            where = pointer + pointer_of(name)
            if name in value:
                read = self._special.get((kind, name))
                given[name] = read(self, value[name], where) if read else self.value(annotation, value[name], where)
            elif field.default is MISSING and field.default_factory is MISSING:
                self.fault("missing_field", where, "is missing")
        return kind(**given) if len(self.issues) == before else None

    def value(self, annotation: Any, value: object, pointer: str) -> Any:
        """Read a value of an annotated type; None after a fault."""
        choices = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        if value is None and NoneType in choices:
            return None
        kind = next(choice for choice in choices if choice is not NoneType)
        if get_origin(kind) is tuple:
            return self.items(get_args(kind)[0], value, pointer)
        if get_origin(kind) is Mapping:
            return self._mapping(get_args(kind)[1], value, pointer)
        if is_dataclass(kind) and isinstance(kind, type):
            return self.record(kind, value, pointer)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._choice(kind, value, pointer)
        scalars: dict[Any, Callable[[object, str], Any]] = {
            bool: self._truth,
            int: self.integer,
            float: self._number,
            str: self._text,
        }
        return scalars[kind](value, pointer)

    def items(self, kind: Any, value: object, pointer: str) -> Any:
        """Read a list of values of one type."""
        if not isinstance(value, list):
            return self._wrong_type(value, pointer, "a list")
        return tuple(self.value(kind, item, f"{pointer}/{k}") for k, item in enumerate(value))

    def integer(self, value: object, pointer: str, expected: str = "an integer") -> Any:
        """Read a whole number of 64 bits; 1 after a fault."""
        if not isinstance(value, int) or isinstance(value, bool):
            self._wrong_type(value, pointer, expected)
            return 1
        if abs(value) > _LARGEST_INTEGER:
            self.fault("out_of_range", pointer, "does not fit into 64 bits")
            return 1
        return value

    def _mapping(self, kind: Any, value: object, pointer: str) -> Any:
        if not isinstance(value, dict):
            return self._wrong_type(value, pointer, "an object")
        return {key: self.value(kind, item, pointer + pointer_of(key)) for key, item in value.items()}

    def _choice(self, kind: type[Enum], value: object, pointer: str) -> Any:
        if self._text(value, pointer):
            values = [member.value for member in kind]
            if value in values:
                return kind(value)
            self.fault("unknown_value", pointer, f"is {value!r}; must be one of {values}")
        return None

    def _text(self, value: object, pointer: str) -> Any:
        if not isinstance(value, str):
            return self._wrong_type(value, pointer, "a string")
        if not value and not self._empty_text:
            self.fault("wrong_length", pointer, "is empty; must have at least one character")
        return value

    def _truth(self, value: object, pointer: str) -> Any:
        return value if isinstance(value, bool) else self._wrong_type(value, pointer, "a boolean")

    def _number(self, value: object, pointer: str) -> Any:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return self._wrong_type(value, pointer, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.fault("not_finite", pointer, "is NaN or infinite; must be a finite number")
        return number

    def _wrong_type(self, value: object, pointer: str, expected: str) -> None:
        self.fault("wrong_type", pointer, f"is {_kind(value)}; must be {expected}")


@cache
def _fields_of(kind: Any) -> dict[str, tuple["Field[Any]", Any]]:
    """Fields that a document may give, by name, with their annotated types."""
    hints = get_type_hints(kind)
    return {field.name: (field, hints[field.name]) for field in fields(kind) if field.init}


def _kind(value: object) -> str:
    """JSON's word for the type of a value."""
    words = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
    }
    return "null" if value is None else words.get(type(value), type(value).__name__)
