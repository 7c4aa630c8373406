"""Workers that are processes of this machine: start, talk, kill."""

import os
import pickle
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Pipe
from typing import Any, Protocol

from solver.engine import Slot, Worker
from stowplan.child_environment import child_environment
from stowplan.errors import WorkerError

_EXIT_LIMIT_S = 1.0
# The system waits for 24 days at most.
_LONGEST_POLL_S = 3600.0
# Solvers get their threads by option; libraries underneath must not add their own.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Process(Protocol):
    """What is asked of a process that was started, as `subprocess.Popen` has it."""

    @property
    def returncode(self) -> int | None:
        """Exit code, or the signal that ended it below 0; None while it is not known."""

    def poll(self) -> int | None:
        """Look whether it has ended; gives its exit code."""

    def wait(self, timeout: float) -> int:
        """Wait for its end; TimeoutExpired when it does not come."""

    def kill(self) -> None:
        """End it now."""


def start_interpreter(module: str, arguments: tuple[object, ...], descriptor: int) -> "subprocess.Popen[bytes]":
    """Run `main` of a module with these arguments, in an interpreter of its own that also has `descriptor`.

    It finds modules where this one does.
    """
    called = ", ".join(map(repr, arguments))
    program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main({called})"
    return subprocess.Popen(  # noqa: S603  # our own interpreter and code
        [sys.executable, "-c", program],
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        # Solvers print; standard output belongs to the answers of the parent.
        stdout=2,
        env=_ONE_THREAD | child_environment(),
        process_group=0,
    )


class WorkerProcess(Worker):
    """One process and the pipe to it. It dies with the thread that launched it."""

    def __init__(self, preload: tuple[str, ...], idle_load: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._preload = preload
        self._idle_load = idle_load
        self._sending = threading.Lock()
        self._process: Process | None = None
        self._connection, self._remote = Pipe()
        self._arriving = select.poll()
        self._arriving.register(self._connection, select.POLLIN)

    def _start(self) -> None:
        try:
            self._process = self._begin(self._remote.fileno())
        except OSError as error:
            raise WorkerError(f"a worker cannot be started: {error}") from error
        # From here on the end of the process is the end of the connection.
        self._remote.close()

    def _begin(self, descriptor: int) -> Process:
        """Start the process on its end of the connection; OSError or WorkerError when that cannot be."""
        return start_interpreter(
            f"{__package__}.worker", (descriptor, os.getpid(), self._preload, self._idle_load), descriptor
        )

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
        self.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def send_bytes(self, message: bytes) -> None:
        """Send what is pickled already."""
        with self._sending:
            self._connection.send_bytes(message)

    def poll(self, timeout_s: float) -> bool:
        """Wait for a message, or the end of the process."""
        end_s = time.monotonic() + timeout_s
        # One object for all times: `Connection.poll` makes one each time.
        while not self._arriving.poll(1e3 * max(0.0, min(end_s - time.monotonic(), _LONGEST_POLL_S))):
            if time.monotonic() >= end_s:
                return False
        return True

    def receive(self) -> Any:
        """Take the next message; EOFError or OSError when the process is gone."""
        return self._connection.recv()

    def receive_all_bytes(self) -> list[bytes]:
        """Wait for a message, and take all that are there, pickled as they are; raises what `receive` does."""
        messages = [self._connection.recv_bytes()]
        # The end of the connection is there, too, and is met by the next call.
        with suppress(EOFError, OSError):
            while self._arriving.poll(0):
                messages.append(self._connection.recv_bytes())
        return messages

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


class LocalEngine:
    """Workers are processes of this machine, which are its own slots."""

    # The first is ready, and so the pool of use, as soon as can be on few cores.
    starts_together = False

    def slot(self) -> Slot:
        """Give a place for a worker: there is nothing to hold."""
        return self

    def worker(self, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> Worker:
        """Give a process that has not been started."""
        return WorkerProcess(preload, idle_load)

    def leave(self) -> None:
        """Nothing is held."""
