"""Copies of frozen dataclasses with slots, a few fields replaced: without the look-ups and checks of `replace`."""

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

Record = TypeVar("Record")


def copier(cls: type[Record], *names: str) -> Callable[..., Record]:
    """A function (record, *values) that copies a record with the fields `names` set to the values.

    The class must have two other fields or more, and no `__post_init__`: nobody checks the values.
    """
    others = [field.name for field in fields(cls) if field.name not in names]  # type: ignore[arg-type]
    values_of = attrgetter(*others)
    setters = tuple(cls.__dict__[name].__set__ for name in (*others, *names))

    def copy(record: Record, *values: Any) -> Record:
        made = object.__new__(cls)
        for set_value, value in zip(setters, (*values_of(record), *values), strict=True):
            set_value(made, value)
        return made

    return copy
