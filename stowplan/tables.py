"""Strict reading of tables that people write: every key known, every value of its kind, all faults at once.

A kind takes a value and gives what it stands for, or raises InputError with what would be right.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeGuard

from stowplan.errors import InputError, Issue, pointer_of

# Above every size that is stated, and small enough for products of some of them.
MAX_NUMBER = 2**62
_MAX_SHOWN = 60

Kind = Callable[[object], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Keys of a table with the kinds of their values."""

    required: dict[str, Kind] = field(default_factory=dict)
    optional: dict[str, Kind] = field(default_factory=dict)


def read_table(value: object, keys: Keys) -> dict[str, Any]:
    """Values of a table by key, without those that it leaves out.

    Raises
    ------
    InputError
        When keys are unknown or missing, or values wrong; pointers are relative to the table.
    """
    if not isinstance(value, dict):
        raise InputError(f"is {_shown(value)}; must be a table of keys and values")
    kinds = {**keys.required, **keys.optional}
    values: dict[str, Any] = {}
    issues = [_issue(pointer_of(key), "is missing") for key in keys.required if key not in value]
    for key, given in value.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            issues.append(_issue(pointer_of(key), f"is no key here; {hint}known: {', '.join(kinds)}"))
            continue
        try:
            values[key] = kinds[key](given)
        except InputError as error:
            issues += below(pointer_of(key), error)
    if issues:
        raise InputError("the table has faults", issues)
    return values


def below(pointer: str, error: InputError) -> list[Issue]:
    """Issues of an error with `pointer` before theirs; an error without any is one at `pointer`."""
    return [replace(issue, pointer=pointer + issue.pointer) for issue in error.issues] or [
        _issue(pointer, error.detail)
    ]


def text(value: object) -> str:
    """A text that says something."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"is {_shown(value)}; must be a text that is not empty")
    return value


def truth(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InputError(f"is {_shown(value)}; must be true or false")
    return value


def positive(value: object) -> float:
    """A number above 0."""
    return _number(value, "above 0", zero=False)


def not_negative(value: object) -> float:
    """A number from 0 on."""
    return _number(value, "from 0 on", zero=True)


def whole(most: int = MAX_NUMBER, least: int = 1) -> Kind:
    """Whole numbers; 80e9 is one."""
    return partial(_whole, least, most)


def one_of(choices: type[StrEnum]) -> Kind:
    """Values of an enumeration."""
    return partial(_choice, choices)


def list_of(kind: Kind) -> Kind:
    """Lists with at least one item of a kind, as tuples."""
    return partial(_items, kind)


def _number(value: object, words: str, *, zero: bool) -> float:
    if not _is_number(value) or not (0 < value <= MAX_NUMBER or (zero and value == 0)):
        raise InputError(f"is {_shown(value)}; must be a number {words}, at most {MAX_NUMBER:.3g}")
    return float(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(least: int, most: int, value: object) -> int:
    if not _is_number(value) or not least <= value <= most or value % 1:
        raise InputError(f"is {_shown(value)}; must be a whole number from {least} to {most}")
    return int(value)


def _choice(choices: type[StrEnum], value: object) -> StrEnum:
    known = [choice.value for choice in choices]
    if value not in known:
        raise InputError(f"is {_shown(value)}; must be one of {', '.join(known)}")
    return choices(value)


def _items(kind: Kind, value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or not value:
        raise InputError(f"is {_shown(value)}; must be a list with at least one item")
    read, issues = [], []
    for k, item in enumerate(value):
        try:
            read.append(kind(item))
        except InputError as error:
            issues += below(pointer_of(k), error)
    if issues:
        raise InputError("the list has faults", issues)
    return tuple(read)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else shown[: _MAX_SHOWN - 3] + "..."


def _issue(pointer: str, detail: str) -> Issue:
    return Issue(code="invalid_entry", pointer=pointer, detail=detail)
