"""What was found of objects is there as long as they are."""

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from stowplan import living
from stowplan.living import Living, OfLiving, OfUnchanged, found_once


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


def _put_by_two_threads(maps: tuple[OfLiving[Thing, int], OfLiving[Thing, int]]) -> None:
    """Each puts what it has found of one thing, which is gone then."""
    thing = Thing(1.0)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda known: known.put(thing, 7), maps))
    assert [known.get(thing) for known in maps] == [7, 7]


def test_nothing_is_left_of_what_two_threads_put_at_once_in_two_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    met = Barrier(2, timeout=30.0)

    def ref(thing: Thing, gone: Callable[[Any], None]) -> "weakref.ref[Thing]":
        # Both have seen that there is no reference yet.
        met.wait()
        return weakref.ref(thing, gone)

    monkeypatch.setattr(living, "weakref", SimpleNamespace(ref=ref))
    maps: tuple[OfLiving[Thing, int], OfLiving[Thing, int]] = (OfLiving(), OfLiving())
    before = len(living._alive)
    _put_by_two_threads(maps)
    gc.collect()
    assert [len(known.by_id) for known in maps] == [0, 0]
    assert len(living._alive) == before


def test_nothing_is_left_of_what_two_threads_put_at_once_in_one_map() -> None:
    met = Barrier(2, timeout=30.0)

    class Found(dict[int, Any]):
        def __contains__(self, key: object) -> bool:
            is_there = super().__contains__(key)
            # Both have seen that nothing is there.
            met.wait()
            return is_there

    known: OfLiving[Thing, int] = OfLiving()
    known.by_id = Found()
    before = len(living._alive)
    # An error when it goes would fail the test, too.
    _put_by_two_threads((known, known))
    gc.collect()
    assert len(known.by_id) == 0
    assert len(living._alive) == before


def test_an_entry_that_was_left_behind_is_nobody_elses() -> None:
    known: OfLiving[Thing, str] = OfLiving()
    gone, new = Thing(1.0), Thing(2.0)
    known.put(gone, "gone")
    known.by_id[id(new)] = known.by_id[id(gone)]
    del gone
    assert known.get(new) is None
    known.put(new, "new")
    assert known.get(new) == "new"


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


def test_a_function_is_asked_once_for_each_object() -> None:
    asked: list[float] = []

    @found_once
    def half(thing: Thing) -> float | None:
        asked.append(thing.value)
        return thing.value / 2 if thing.value else None

    things = [Thing(0.0), Thing(1.0), Thing(1.0)]
    for _ in range(2):
        assert [half(thing) for thing in things] == [None, 0.5, 0.5]
    assert asked == [0.0, 1.0, 1.0]
