"""Waiting for what will be: no test sleeps for a time that somebody guessed."""

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 60.0

T = TypeVar("T")


def eventually(
    look: Callable[[], T], holds: Callable[[T], object] = bool, *, limit_s: float = LIMIT_S, poll_s: float = 0.02
) -> T:
    """Look again and again until what is seen `holds`, and give it back.

    Raises
    ------
    AssertionError
        When the time is over; it says what was seen last.
    """
    end_s = time.monotonic() + limit_s
    while not holds(seen := look()):
        assert time.monotonic() < end_s, f"after {limit_s:g} s it is still {seen}"
        time.sleep(poll_s)
    return seen
