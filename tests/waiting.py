"""Waiting for what will be: no test sleeps for a time that somebody guessed."""

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_S = 60.0
# Looks cost time that what is waited for could use: the longer it takes, the rarer they get.
_LONGER = 1.25
_LONGEST_S = 0.3

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
        poll_s = max(poll_s, min(_LONGER * poll_s, _LONGEST_S))
    return seen
