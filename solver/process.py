"""The parent side of one worker process: start, talk, kill."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Pipe
from typing import Any

from stowplan.child_environment import child_environment
from stowplan.errors import WorkerError

_EXIT_LIMIT_S = 1.0
# The system waits for 24 days at most.
_LONGEST_POLL_S = 3600.0
# Solvers get their threads by option; libraries underneath must not add their own.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerProcess:
    """One process and the connection to it. `kill` and `cancel` may come from any thread, the rest is for one."""

    def __init__(self, preload: tuple[str, ...], idle_load: tuple[str, ...] = ()) -> None:
        self._preload = preload
        self._idle_load = idle_load
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._launched = 0.0
        self._connection, self._remote = Pipe()
        self.ready = False

    def launch(self) -> None:
        """Start the process, in a thread that lives as long as it shall: it dies with this thread.

        Raises
        ------
        WorkerError
            When there is no memory or process left for it, or `kill` came first.
        """
        descriptor = self._remote.fileno()
        arguments = f"{descriptor}, {os.getpid()}, {self._preload!r}, {self._idle_load!r}"
        program = f"import sys; sys.path[:] = {sys.path!r}; from solver.worker import main; main({arguments})"
        with self._lock:
            if self._killed:
                raise WorkerError("the pool was closed")
            self._launched = time.monotonic()
            try:
                self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and code
                    [sys.executable, "-c", program],
                    pass_fds=(descriptor,),
                    stdin=subprocess.DEVNULL,
                    # Solvers print; standard output belongs to the answers of the parent.
                    stdout=2,
                    env=_ONE_THREAD | child_environment(),
                    process_group=0,
                )
            except OSError as error:
                raise WorkerError(f"a worker cannot be started: {error}") from error
        # From here on the end of the process is the end of the connection.
        self._remote.close()

    def await_ready(self, limit_s: float) -> None:
        """Wait until the process is ready; WorkerError when it is not `limit_s` seconds after its launch."""
        try:
            if not self._is_ready_within(self._launched + limit_s - time.monotonic()):
                raise WorkerError(f"a worker was not ready after {limit_s:g} s")
        except (EOFError, OSError) as error:
            raise WorkerError(f"a worker died at start ({self.end})") from error

    @property
    def age_s(self) -> float:
        """Seconds since its launch."""
        return time.monotonic() - self._launched

    @property
    def is_up(self) -> bool:
        """Whether the process is ready now."""
        with suppress(EOFError, OSError):
            return self._is_ready_within(0.0)
        return False

    def _is_ready_within(self, seconds: float) -> bool:
        self.ready = self.ready or (self.poll(seconds) and self.receive() == ("ready",))
        return self.ready

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def end(self) -> str:
        """How the process ended."""
        if self._process is None:
            return "not started"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_LIMIT_S)
        code = self._process.returncode
        return "still running" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"

    def send(self, *message: object) -> None:
        """Send; OSError when the process is gone."""
        with self._sending:
            self._connection.send(message)

    def cancel(self, number: int) -> None:
        """Ask the task `number` to stop, if it still runs."""
        with suppress(OSError):
            self.send("cancel", number)

    def load(self) -> None:
        """Let it use idle time for loading."""
        with suppress(OSError):
            self.send("load")

    def poll(self, timeout_s: float) -> bool:
        """Wait for a message, or the end of the process."""
        end_s = time.monotonic() + timeout_s
        while not self._connection.poll(max(0.0, min(end_s - time.monotonic(), _LONGEST_POLL_S))):
            if time.monotonic() >= end_s:
                return False
        return True

    def receive(self) -> Any:
        """Take the next message; EOFError or OSError when the process is gone."""
        return self._connection.recv()

    def retire(self) -> None:
        """Let the process end by itself."""
        with suppress(OSError, subprocess.TimeoutExpired):
            self.send("exit")
            if self._process is not None:
                self._process.wait(_EXIT_LIMIT_S)

    def kill(self) -> None:
        """End the process now; whoever polls sees the end of the connection."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def dispose(self) -> None:
        """Kill, reap and close."""
        self.kill()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_LIMIT_S)
        self._connection.close()
        self._remote.close()
