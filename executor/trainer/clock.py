"""Times of the parts of a step: host time on CPU, events in the stream on CUDA."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class StepClock(ABC):
    """Adds up seconds per part of a step."""

    @abstractmethod
    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Time the body as part `name`; a part may be entered many times."""

    @abstractmethod
    def lap(self, name: str | None) -> None:
        """Count the time since the last lap as part `name`; None: as no part."""

    @abstractmethod
    def collect(self) -> dict[str, float]:
        """Seconds per part since the last call; waits for the device."""


class HostClock(StepClock):
    """For devices that compute while the caller waits."""

    def __init__(self) -> None:
        self._total_s: dict[str, float] = {}
        self._lap_s = time.perf_counter()

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Time the body."""
        start_s = time.perf_counter()
        yield
        self._total_s[name] = self._total_s.get(name, 0.0) + time.perf_counter() - start_s

    def lap(self, name: str | None) -> None:
        """Read the time."""
        before_s, self._lap_s = self._lap_s, time.perf_counter()
        if name is not None:
            self._total_s[name] = self._total_s.get(name, 0.0) + self._lap_s - before_s

    def collect(self) -> dict[str, float]:
        """Give the sums and start anew."""
        total_s, self._total_s = self._total_s, {}
        return total_s


class CudaClock(StepClock):
    """Pairs of events in the current stream; nothing waits before the step has ended."""

    def __init__(self) -> None:
        self._pairs: list[tuple[str, Any, Any]] = []
        self._lap: Any = None

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Put an event before and one behind the body."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        yield
        end.record()
        self._pairs.append((name, start, end))

    def lap(self, name: str | None) -> None:
        """Put an event into the stream."""
        before, self._lap = self._lap, torch.cuda.Event(enable_timing=True)
        self._lap.record()
        if name is not None:
            self._pairs.append((name, before, self._lap))

    def collect(self) -> dict[str, float]:
        """Wait for the device, give the sums and start anew."""
        torch.cuda.synchronize()
        total_s: dict[str, float] = {}
        for name, start, end in self._pairs:
            total_s[name] = total_s.get(name, 0.0) + start.elapsed_time(end) / 1e3
        self._pairs.clear()
        return total_s
