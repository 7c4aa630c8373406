"""What was found of objects is there as long as they are."""

import gc
from dataclasses import dataclass

from stowplan import living
from stowplan.living import Living, OfLiving, OfUnchanged


@dataclass(frozen=True, slots=True)
class Thing(Living):
    value: float


def test_things_are_told_apart_by_identity() -> None:
    known: OfLiving[Thing, str] = OfLiving()
    other: OfLiving[Thing, str] = OfLiving()
    first, second = Thing(1.0), Thing(1.0)
    known.put(first, "first")
    assert known.get(first) == "first"
    assert known.get(second) is None
    assert other.get(first) is None
    known.put(first, "again")
    known.put(second, "second")
    other.put(first, "other")
    assert (known.get(first), known.get(second), other.get(first)) == ("again", "second", "other")


def test_nothing_is_kept_of_what_is_gone() -> None:
    known: OfLiving[Thing, int] = OfLiving()
    before = len(living._alive)
    things = [Thing(float(k)) for k in range(100)]
    for k, thing in enumerate(things):
        known.put(thing, k)
    del things[50:], thing
    gc.collect()
    assert len(living._alive) == before + 50
    # Whoever has the id of one that is gone is another thing.
    assert all(known.get(Thing(float(k))) is None for k in range(200))
    assert [known.get(thing) for thing in things] == list(range(50))


def test_what_was_found_holds_beside_the_same_and_the_equal() -> None:
    known: OfUnchanged[Thing, str] = OfUnchanged()
    thing, beside, alike = Thing(1.0), Thing(2.0), Thing(2.0)
    known.put(thing, (beside,), (3, "x"), "found")
    assert known.get(thing, (beside,), (3, "x")) == "found"
    assert known.get(thing, (alike,), (3, "x")) is None
    assert known.get(thing, (beside,), (3, "y")) is None
    assert known.get(alike, (beside,), (3, "x")) is None
    known.put(thing, (alike,), None, "new")
    assert known.get(thing, (beside,), (3, "x")) is None
    assert known.get(thing, (alike,)) == "new"
