"""How long things have been as they are."""

from executor.watch import Watch


def test_what_changes_begins_anew() -> None:
    now = [5.0]
    watch = Watch(lambda: now[0])
    assert watch.unchanged_s("a", None) == 0.0
    now[0] = 7.0
    assert (watch.unchanged_s("a", None), watch.unchanged_s("b", None)) == (2.0, 0.0)
    assert watch.unchanged_s("a", 1) == 0.0
    now[0] = 8.0
    assert (watch.unchanged_s("a", 1), watch.unchanged_s("a", None), watch.unchanged_s("b", None)) == (1.0, 0.0, 1.0)
