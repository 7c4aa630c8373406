"""How long things have been as they are, whatever the clocks on the wall say."""

import time
from collections.abc import Callable, Hashable


class Watch:
    """Remembers when this process first saw things as they are; another process begins anew.

    `clock`: seconds that nobody sets, so that a step of the time of day changes nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[Hashable, tuple[object, float]] = {}

    def unchanged_s(self, thing: Hashable, value: object) -> float:
        """Seconds since `thing` was first seen to be `value`."""
        now_s = self._clock()
        seen = self._seen.get(thing)
        if seen is None or seen[0] != value:
            seen = self._seen[thing] = value, now_s
        return now_s - seen[1]
