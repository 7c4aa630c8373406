"""Copies column by column."""

from dataclasses import dataclass

from stowplan.slots import copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    name: str
    size: int = 1
    place: str | None = None


def test_copies_have_what_is_given_and_keep_the_rest() -> None:
    things = [Thing(name="a", size=3, place="x"), Thing(name="b")]
    made = copies(Thing, things, {"size": [5, 6], "place": [None, "y"]})
    assert made == [Thing(name="a", size=5), Thing(name="b", size=6, place="y")]
    assert things == [Thing(name="a", size=3, place="x"), Thing(name="b")]
    assert copies(Thing, [], {"size": []}) == []
