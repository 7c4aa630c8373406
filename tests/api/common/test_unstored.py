"""Ends that the database did not take: in which order they are written, and when it is given up."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from api.common import unstored
from api.common.errors import StoreError
from api.common.unstored import UnstoredEnds
from tests.waiting import LIMIT_S, eventually


class Moody:
    """What takes ends only when told so."""

    def __init__(self) -> None:
        self.takes = False
        self.asked = 0
        self.written: list[str] = []

    def write(self, name: str) -> None:
        self.asked += 1
        if not self.takes:
            raise StoreError("not now")
        if name == "odd":
            raise ValueError(name)
        self.written.append(name)


@pytest.fixture
def moody() -> Moody:
    return Moody()


@pytest.fixture
def ends(moody: Moody) -> Iterator[UnstoredEnds]:
    """Three ends that are not stored, one of them in two parts."""
    found = UnstoredEnds("plans", "they are planned again")
    for name in ("a", "b", "a", "c"):
        found.write(name, partial(moody.write, name))
    yield found
    found.close()


def test_they_are_written_in_order_when_the_database_takes_them(
    moody: Moody, ends: UnstoredEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unstored, "_AGAIN_S", 0.01)
    moody.takes = True
    # What comes behind one that waits waits, too; others do not.
    ends.write("c", partial(moody.write, "end of c"))
    ends.write("d", partial(moody.write, "d"))
    eventually(lambda: len(moody.written) == 6)
    assert moody.written == ["d", "a", "b", "a", "c", "end of c"]


def test_what_is_kept_waits_for_nothing_that_is_being_written(
    moody: Moody, ends: UnstoredEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(name: str) -> None:
        writes.set()
        assert kept.wait(LIMIT_S)
        moody.write(name)

    monkeypatch.setattr(unstored, "_AGAIN_S", 0.01)
    writes, kept = threading.Event(), threading.Event()
    ends.keep("busy", partial(busy, "busy"))
    moody.takes = True
    assert writes.wait(LIMIT_S)
    ends.keep("d", partial(moody.write, "d"))
    kept.set()
    ends.close()
    assert moody.written == ["a", "b", "a", "c", "busy", "d"]


def test_one_that_is_never_taken_does_not_keep_the_others(moody: Moody, ends: UnstoredEnds) -> None:
    ends.write("odd", partial(moody.write, "odd"))
    ends.write("last", partial(moody.write, "last"))
    moody.takes = True
    ends.close()
    assert moody.written == ["a", "b", "a", "c", "last"]


def test_what_was_deleted_is_not_written(moody: Moody, ends: UnstoredEnds) -> None:
    ends.drop("a")
    moody.takes = True
    ends.close()
    assert moody.written == ["b", "c"]


@pytest.mark.parametrize("takes", [True, False])
def test_who_closes_tries_a_last_time(
    takes: bool, moody: Moody, ends: UnstoredEnds, caplog: pytest.LogCaptureFixture
) -> None:
    moody.takes = takes
    ends.close()
    assert len(moody.written) == (4 if takes else 0)
    assert ("the ends of 3 plans are not stored: they are planned again" in caplog.text) is not takes
