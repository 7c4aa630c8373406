"""Phase times of one planning task."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from models.plan import PhaseTimes


class PhaseClock:
    """Adds up wall-clock seconds per named phase; a phase may be entered more than once."""

    def __init__(self) -> None:
        self._wall_s: dict[str, float] = {}
        self._cpu_start_s = time.process_time()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the body as part of phase `name`."""
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self._wall_s[name] = self._wall_s.get(name, 0.0) + time.perf_counter() - start_s

    def times(self) -> PhaseTimes:
        """What has been measured so far."""
        return PhaseTimes(wall_s=dict(self._wall_s), cpu_s=time.process_time() - self._cpu_start_s)
