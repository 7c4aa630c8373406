"""Phase times of one planning task, and how long it may solve."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from models.plan import PhaseTimes
from solver.memory import peak_memory_bytes
from solver.options import DEFAULT_TIME_LIMIT_S


class PhaseClock:
    """Adds up seconds per named phase, wall-clock and CPU; a phase may be entered more than once.

    `limit_s`: wall-clock time that all solves of the task may take together.
    """

    def __init__(self, limit_s: float = DEFAULT_TIME_LIMIT_S) -> None:
        self.limit_s = limit_s
        self._wall_s: dict[str, float] = {}
        self._cpu_s: dict[str, float] = {}
        self._cpu_start_s = time.process_time()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the body as part of phase `name`."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self._cpu_s[name] = self._cpu_s.get(name, 0.0) + time.process_time() - cpu_s
            self._wall_s[name] = self._wall_s.get(name, 0.0) + time.perf_counter() - wall_s

    def times(self) -> PhaseTimes:
        """What has been measured so far."""
        return PhaseTimes(
            wall_s=dict(self._wall_s),
            cpu_s=time.process_time() - self._cpu_start_s,
            phase_cpu_s=dict(self._cpu_s),
            peak_memory_bytes=peak_memory_bytes(),
        )
