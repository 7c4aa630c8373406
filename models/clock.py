"""Phase times of one planning task, and how long it may solve."""

import time
from contextlib import AbstractContextManager

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

    def phase(self, name: str) -> "AbstractContextManager[None]":
        """Time the body as part of phase `name`."""
        return _Phase(self, name)

    def add(self, name: str, wall_s: float, cpu_s: float) -> None:
        """Add to what phase `name` has taken."""
        self._cpu_s[name] = self._cpu_s.get(name, 0.0) + cpu_s
        self._wall_s[name] = self._wall_s.get(name, 0.0) + wall_s

    def times(self) -> PhaseTimes:
        """What has been measured so far."""
        return PhaseTimes(
            wall_s=dict(self._wall_s),
            cpu_s=time.process_time() - self._cpu_start_s,
            phase_cpu_s=dict(self._cpu_s),
            peak_memory_bytes=peak_memory_bytes(),
        )


class _Phase(AbstractContextManager[None]):
    """The time of a body. No generator, which takes several times as long as what is timed where that is little."""

    __slots__ = ("_clock", "_cpu_s", "_name", "_wall_s")

    def __init__(self, clock: PhaseClock, name: str) -> None:
        self._clock, self._name = clock, name

    def __enter__(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self._clock.add(self._name, time.perf_counter() - self._wall_s, time.process_time() - self._cpu_s)
