"""Copies of frozen dataclasses with slots, some fields replaced: many at once, without the checks of `replace`."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeVar

Record = TypeVar("Record")


def copies(cls: type[Record], records: Sequence[Record], columns: Mapping[str, Sequence[Any]]) -> list[Record]:
    """Copy records, with the fields that `columns` name set to a value per record.

    Built column by column, which takes a fifth of the time that as many calls of `replace` take. Nobody checks the
    values: what the class refuses when it is built must not be in them.
    """
    made = list(map(object.__new__, repeat(cls, len(records))))
    for field in fields(cls):  # type: ignore[arg-type]
        column = columns[field.name] if field.name in columns else map(attrgetter(field.name), records)
        # The slot itself: the class forbids setting its fields.
        deque(map(cls.__dict__[field.name].__set__, made, column), maxlen=0)
    return made
