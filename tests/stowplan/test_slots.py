"""Copies with other values in some fields."""

import weakref
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from stowplan.living import Living
from stowplan.slots import copier


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    name: str
    size: int = 1
    place: str | None = None
    weight: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferredThing(Living):
    name: str
    size: int = 1
    colour: str = "red"


def test_a_copy_can_be_referred_to_weakly_where_what_it_is_of_can() -> None:
    thing = copier(ReferredThing, "size")(ReferredThing(name="a", colour="blue"), 7)
    assert weakref.ref(thing)() is thing
    assert thing == ReferredThing(name="a", colour="blue", size=7)


def test_a_copy_has_what_is_given_and_keeps_the_rest() -> None:
    thing = Thing(name="a", size=3, place="x", weight=2.0)
    copy = copier(Thing, "place", "size")
    made = copy(thing, "y", 5)
    assert made == replace(thing, place="y", size=5)
    assert type(made) is Thing
    assert hash(made) == hash(replace(thing, place="y", size=5))
    assert thing == Thing(name="a", size=3, place="x", weight=2.0)
    with pytest.raises(FrozenInstanceError):
        made.size = 6  # type: ignore[misc]
