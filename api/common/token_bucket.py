"""How often somebody may do something: on average, and at once."""

import time
from collections.abc import Callable


class TokenBucket:
    """Fills by `per_s` tokens every second, up to `burst`; everything that is done takes one. For one thread."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._tokens, self._since_s = burst, clock()

    def wait_s(self) -> float:
        """Take a token and give 0; or take none, and give the seconds until there is one."""
        now_s = self._clock()
        self._tokens = min(self._burst, self._tokens + (now_s - self._since_s) * self._per_s)
        self._since_s = now_s
        if self._tokens < 1:
            return (1 - self._tokens) / self._per_s
        self._tokens -= 1
        return 0.0
