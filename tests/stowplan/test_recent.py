"""Maps of limited weight."""

from stowplan.recent import Recent


def _kept(*, most: int = 10, most_of_one: int = 6, most_entries: int = 9) -> Recent[str]:
    return Recent(most=most, most_of_one=most_of_one, most_entries=most_entries)


def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    kept = _kept()
    kept.put("a", "A", 4)
    kept.put("b", "B", 4)
    assert kept.get("a") == "A"
    kept.put("c", "C", 4)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == ("A", None, "C")
    assert kept.weight == 8


def test_what_is_put_again_counts_once() -> None:
    kept = _kept()
    for weight in (4, 5, 2):
        kept.put("a", "A", weight)
    assert (len(kept), kept.weight) == (1, 2)


def test_what_weighs_too_much_is_not_kept_and_drives_nothing_out() -> None:
    kept = _kept()
    kept.put("a", "A", 5)
    kept.put("b", "B", 7)
    assert (kept.get("a"), kept.get("b"), kept.weight) == ("A", None, 5)


def test_there_are_no_more_than_so_many() -> None:
    kept = _kept(most_entries=2)
    for key in "abc":
        kept.put(key, key, 1)
    assert (kept.get("a"), len(kept), kept.weight) == (None, 2, 2)


def test_what_grows_drives_others_out_until_it_is_too_much_itself() -> None:
    kept = _kept()
    kept.put("a", "A", 1)
    kept.put("b", "B", 5)
    assert kept.grow("a", "A", 3)
    assert kept.grow("a", "A", 2)
    assert (kept.get("a"), kept.get("b"), kept.weight) == ("A", None, 6)
    assert not kept.grow("a", "A", 1)
    assert kept.weight == 6


def test_what_is_kept_no_longer_does_not_grow() -> None:
    kept = _kept()
    found = "A"
    assert not kept.grow("a", found, 1)
    kept.put("a", "another", 1)
    assert not kept.grow("a", found, 1)
    assert kept.weight == 1
    kept.clear()
    assert (len(kept), kept.weight) == (0, 0)
