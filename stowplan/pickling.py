"""Frozen dataclasses with slots, pickled quickly: the methods that dataclasses bring look up all fields every time."""

from dataclasses import fields
from operator import attrgetter
from typing import TypeVar

C = TypeVar("C", bound=type)


def quickly_pickled(cls: C) -> C:
    """Decorate a dataclass with slots of which requests hold thousands, or that every request is carried in; it needs
    two fields or more."""
    names = tuple(field.name for field in fields(cls))
    setters = tuple(getattr(cls, name).__set__ for name in names)
    values_of = attrgetter(*names)

    def get_state(self: object) -> object:
        return values_of(self)

    def set_state(self: object, state: tuple[object, ...]) -> None:
        for set_value, value in zip(setters, state, strict=True):
            set_value(self, value)

    for name, method in (("__getstate__", get_state), ("__setstate__", set_state)):
        setattr(cls, name, method)
    return cls
