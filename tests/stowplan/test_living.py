"""What was found of objects is there as long as they are."""

import gc
from dataclasses import dataclass

from stowplan.living import OfLiving


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Thing:
    value: float


def test_things_are_told_apart_by_identity() -> None:
    known: OfLiving[Thing, str] = OfLiving()
    first, second = Thing(1.0), Thing(1.0)
    known.put(first, "first")
    assert known.get(first) == "first"
    assert known.get(second) is None
    known.put(first, "again")
    known.put(second, "second")
    assert (known.get(first), known.get(second), len(known)) == ("again", "second", 2)


def test_nothing_is_kept_of_what_is_gone() -> None:
    known: OfLiving[Thing, int] = OfLiving()
    things = [Thing(float(k)) for k in range(100)]
    for k, thing in enumerate(things):
        known.put(thing, k)
    del things[50:], thing
    gc.collect()
    assert len(known) == 50
    # Whoever has the id of one that is gone is another thing.
    assert all(known.get(Thing(float(k))) is None for k in range(200))
    assert [known.get(thing) for thing in things] == list(range(50))
