"""What is carried over from sequence to sequence is what would be found anew."""

import ast
import gc
import random
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stowplan.living import Living
from stowplan.rolls import Roll, Rolls, objects
from tests.paths import ROOT


@dataclass(frozen=True, slots=True)
class Thing(Living):
    value: int


@dataclass(frozen=True, slots=True)
class Owner(Living):
    things: tuple[Thing, ...]


class Finder:
    """Finds what it can say of things, and counts of how many it was asked."""

    def __init__(self) -> None:
        self.num_asked = 0

    def of(self, roll: Roll[Thing], things: Sequence[Thing], beside: NDArray[Any], by: object, times: int) -> list[str]:
        def find(rows: list[int]) -> Iterator[str]:
            self.num_asked += len(rows)
            return (f"{things[k].value}, {beside[k]}, {by}, {times}" for k in rows)

        return list(roll.each("words", np.object_, find, same=(by,), equal=times, beside=(beside,)))


@pytest.mark.parametrize("seed", range(20))
def test_sequences_that_follow_one_another_are_found_as_if_each_were_the_first(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    rolls: Rolls[Owner, Thing] = Rolls()
    things = tuple(Thing(k) for k in range(rng.randrange(rng.choice([40, 200]))))
    others, by, times = [object() for _ in range(3)], object(), 1
    finder = Finder()
    owners: list[Owner] = []
    beside = objects((rng.choice(others) for _ in things), len(things))
    for _ in range(12):
        owners = [*owners[-2:], Owner(things)]
        warm = finder.of(rolls.of(owners[-1], things), things, beside, by, times)
        assert warm == Finder().of(Roll(things), things, beside, by, times)
        by, times = (object() if rng.random() < 0.2 else by), (times + (rng.random() < 0.2))
        kept = [k for k in range(len(things)) if rng.random() < 0.9]
        rng.shuffle(kept)
        things = (*(things[k] for k in kept), *(Thing(-1) for _ in range(rng.randrange(3))))
        whose = [rng.choice(others) if rng.random() < 0.1 else beside[k] for k in kept]
        beside = objects([*whose, *(rng.choice(others) for _ in things[len(kept) :])], len(things))


def test_only_what_is_new_is_looked_at() -> None:
    rolls: Rolls[Owner, Thing] = Rolls()
    things, by, finder = tuple(Thing(k) for k in range(100)), object(), Finder()
    first = Owner(things)
    numbers = np.arange(100.0)
    finder.of(rolls.of(first, things), things, numbers, by, 1)
    finder.of(rolls.of(first, things), things, numbers, by, 1)
    assert finder.num_asked == 100
    # One is gone, one is new, and of a third the number is another one; equal things are not the same.
    numbers = np.append(numbers[1:], 7.0)
    numbers[5] += 0.5
    second = Owner((*things[1:], Thing(0)))
    finder.of(rolls.of(second, second.things), second.things, numbers, by, 1)
    assert finder.num_asked == 102
    finder.of(rolls.of(second, second.things), second.things, numbers, by, 2)
    assert finder.num_asked == 202


def test_rows_of_arrays_are_carried_over_and_nobody_writes_to_them() -> None:
    rolls: Rolls[Owner, Thing] = Rolls()

    def squares(owner: Owner) -> NDArray[Any]:
        def find(rows: list[int]) -> NDArray[Any]:
            return np.array([(owner.things[k].value, owner.things[k].value ** 2) for k in rows]).reshape(-1, 2)

        return rolls.of(owner, owner.things).each("squares", np.int64, find)

    first = Owner(tuple(Thing(k) for k in range(5)))
    second = Owner((first.things[4], Thing(9), first.things[0]))
    assert squares(first).tolist() == [[k, k * k] for k in range(5)]
    assert squares(second).tolist() == [[4, 16], [9, 81], [0, 0]]
    assert squares(Owner(())).shape == (0, 2)
    with pytest.raises(ValueError, match="read-only"):
        squares(second)[0, 0] = 1


def test_rows_of_arrays_may_stand_beside_records() -> None:
    rolls: Rolls[Owner, Thing] = Rolls()
    first = Owner(tuple(Thing(k) for k in range(4)))
    second = Owner((first.things[3], Thing(7), first.things[1], first.things[0]))
    rows = np.arange(8.0).reshape(4, 2)
    later = rows[[3, 2, 1, 0]]
    later[2, 1] += 1.0
    asked: list[int] = []

    def sums(owner: Owner, beside: NDArray[Any]) -> list[float]:
        def find(rows: list[int]) -> Iterator[float]:
            asked.extend(rows)
            return (float(beside[k].sum()) for k in rows)

        return list(rolls.of(owner, owner.things).each("sums", np.float64, find, beside=(beside,)))

    for owner, beside, looked_at in (
        (first, rows, [0, 1, 2, 3]),
        (second, later, [1, 2]),
        # Of the same records beside another array, and beside one of another shape.
        (second, np.where(later == 0.0, 9.0, later), [3]),
        (second, np.ones((4, 3)), [0, 1, 2, 3]),
    ):
        assert sums(owner, beside) == beside.sum(axis=1).tolist()
        assert asked == looked_at
        asked.clear()


def test_what_is_as_it_was_in_the_sequence_before_is_the_very_array() -> None:
    rolls: Rolls[Owner, Thing] = Rolls()
    first = Owner(tuple(Thing(k) for k in range(3)))
    same = Owner((first.things[0], Thing(1), first.things[2]))

    def found(owner: Owner, kind: type, value: object) -> NDArray[Any]:
        return rolls.of(owner, owner.things).each(kind.__name__, kind, lambda rows: (value for _ in rows))

    for kind, value, now, is_same in (
        (np.bool_, True, True, True),
        (np.int64, 3, 3, True),
        (np.int32, 3, 4, False),
        (np.object_, "a", "a", True),
        # Which are equal.
        (np.float64, 0.0, -0.0, False),
    ):
        before, after = found(first, kind, value), found(same, kind, now)
        assert (after is before) == is_same
        assert [str(each) for each in after] == [str(value), str(now), str(value)]
        assert not after.flags.writeable


@pytest.mark.parametrize("num_rows", [3, 100, 5000])
def test_arrays_are_compared_by_row_however_many_there_are(num_rows: int) -> None:
    first = tuple(Thing(k) for k in range(num_rows))
    kinds = {
        "flat": np.arange(float(num_rows)),
        "wide": np.arange(2.0 * num_rows).reshape(-1, 2),
        # Equal, and not the same.
        "objects": objects(([k] for k in range(num_rows)), num_rows),
    }
    for before, is_turned in product(kinds.values(), (False, True)):
        now = before.copy()
        now[1] = [1] if before.dtype == np.object_ else -1.0
        asked: list[list[int]] = []

        def find(rows: list[int], asked: list[list[int]] = asked) -> Iterator[int]:
            asked.append(rows)
            return iter(rows)

        roll = Roll(first)
        for each in (before, before.copy()):
            roll.each("rows", np.int64, find, beside=(each,))
        after = Roll(first[::-1] if is_turned else first, roll)
        after.each("rows", np.int64, find, beside=(now[::-1] if is_turned else now,))
        assert asked[1:] == [[num_rows - 2 if is_turned else 1]]
        if before.dtype != np.object_:
            after.each("rows", np.int64, find, beside=(-1.0 - now,))
            assert asked[2] == list(range(num_rows))


def test_a_roll_goes_with_its_owner_and_no_roll_keeps_those_before_it() -> None:
    rolls: Rolls[Owner, Thing] = Rolls()
    kept = Thing(0)
    owners = [Owner((kept, Thing(k))) for k in range(1, 5)]
    gone = [weakref.ref(owner.things[1]) for owner in owners]
    for owner in owners:
        rolls.of(owner, owner.things).each("nothing", np.bool_, lambda rows: (False for _ in rows))
    del owner, owners[:3]
    gc.collect()
    # The last roll takes over what was found, and not of whom.
    assert [each() is None for each in gone] == [True, True, True, False]
    owners.clear()
    gc.collect()
    assert all(each() is None for each in gone)


def test_what_is_found_again_beside_another_array_leaves_nothing_behind() -> None:
    rolls: Rolls[Owner, Thing] = Rolls()
    first = Owner(tuple(Thing(k) for k in range(3)))
    second, finder = Owner(first.things[1:]), Finder()
    finder.of(rolls.of(first, first.things), first.things, np.zeros(3), None, 1)
    roll = rolls.of(second, second.things)
    beside: list[weakref.ref[NDArray[Any]]] = []
    for k in range(5):
        numbers = np.full(2, float(k))
        beside.append(weakref.ref(numbers))
        finder.of(roll, second.things, numbers, None, 1)
        del numbers
    # The first was compared with that of the roll before, the last is what it was found beside.
    assert [each() is None for each in beside] == [False, True, True, True, False]


def test_what_is_too_large_is_found_anew_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rolls: Rolls[Owner, Thing] = Rolls()
    small = Owner(tuple(Thing(k) for k in range(3)))
    large, finder = Owner((*small.things, Thing(3), Thing(4))), Finder()
    # Numbers and what is found beside them, of four records.
    monkeypatch.setattr("stowplan.rolls._MOST_BYTES", 4 * 16)
    finder.of(rolls.of(small, small.things), small.things, np.arange(3.0), None, 1)
    roll = rolls.of(large, large.things)
    for _ in range(3):
        numbers = np.arange(5.0)
        beside = weakref.ref(numbers)
        words = finder.of(roll, large.things, numbers, None, 1)
        assert words == Finder().of(Roll(large.things), large.things, numbers, None, 1)
        del numbers
        assert beside() is None
    # Of those that the small one has nothing is found anew.
    assert finder.num_asked == 3 + 3 * 2


def test_no_two_places_find_something_by_the_same_name() -> None:
    asked = [
        node.args[0]
        for room in ("api", "models")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "each"
    ]
    names = [name.value for name in asked if isinstance(name, ast.Constant)]
    assert len(names) == len(asked) > 20
    assert len(set(names)) == len(names)
