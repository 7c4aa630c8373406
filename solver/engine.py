"""What the pool asks of whatever runs its workers: on this machine (`solver.process`), or on many (`solver.ray`)."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from stowplan.errors import WorkerError


class Worker(ABC):
    """One worker and the connection to it. `kill` and `cancel` may come from any thread, the rest is for one.

    Messages are those of `solver.worker`. An end of the worker, whatever the reason, is the end of the connection.
    """

    def __init__(self) -> None:
        self.ready = False
        # What it has kept of its last tasks, as far as it has said so.
        self.keeps: Sequence[str] = ()
        self._killed = False
        self._launched = 0.0
        self._lock = threading.Lock()

    def launch(self) -> None:
        """Start the worker, in a thread that lives as long as it shall: it may die with this thread.

        Raises
        ------
        WorkerError
            When it cannot be started, or `kill` came first.
        """
        with self._lock:
            if self._killed:
                raise WorkerError("the pool was closed")
            self._launched = time.monotonic()
            self._start()

    def await_ready(self, limit_s: float) -> None:
        """Wait until the worker is ready; WorkerError when it is not `limit_s` seconds after its launch."""
        try:
            if not self._is_ready_within(self._launched + limit_s - time.monotonic()):
                raise WorkerError(f"a worker was not ready after {limit_s:g} s{self._hindrance()}")
        except (EOFError, OSError) as error:
            raise WorkerError(f"a worker died at start ({self.end})") from error

    @property
    def age_s(self) -> float:
        """Seconds since its launch."""
        return time.monotonic() - self._launched

    @property
    def is_up(self) -> bool:
        """Whether the worker is ready now."""
        with suppress(EOFError, OSError):
            return self._is_ready_within(0.0)
        return False

    def _is_ready_within(self, seconds: float) -> bool:
        self.ready = self.ready or (self.poll(seconds) and self.receive() == ("ready",))
        return self.ready

    def cancel(self, number: int) -> None:
        """Ask the task `number` to stop, if it still runs."""
        with suppress(OSError):
            self.send("cancel", number)

    def load(self) -> None:
        """Let it use idle time for loading."""
        with suppress(OSError):
            self.send("load")

    @abstractmethod
    def _start(self) -> None:
        """Start it; WorkerError when that cannot be."""

    def _hindrance(self) -> str:
        """What keeps it from being ready, as far as is known, to go on after a sentence."""
        return ""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it runs, as far as is known here."""

    @property
    @abstractmethod
    def end(self) -> str:
        """How it ended."""

    @abstractmethod
    def send(self, *message: object) -> None:
        """Send; OSError when the worker is known to be gone."""

    @abstractmethod
    def poll(self, timeout_s: float) -> bool:
        """Wait for a message, or the end of the worker."""

    @abstractmethod
    def receive(self) -> Any:
        """Take the next message; EOFError or OSError when the worker is gone."""

    @abstractmethod
    def retire(self) -> None:
        """Let it end by itself."""

    @abstractmethod
    def kill(self) -> None:
        """End it now; whoever polls sees the end of the connection."""

    @abstractmethod
    def dispose(self) -> None:
        """Kill, and give back what it had."""


class Slot(Protocol):
    """Where one worker of a pool runs, and then those that take its place."""

    def worker(self, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> Worker:
        """Give a worker that has not been launched; what is loaded when is said in `solver.worker`."""

    def leave(self) -> None:
        """Give the place back; all workers of it are gone."""


class WorkerEngine(Protocol):
    """Runs the workers of pools."""

    @property
    def starts_together(self) -> bool:
        """Whether workers of a pool may start at the same time; else it starts one after another."""

    def slot(self) -> Slot:
        """Give a place for a worker."""
