"""Workers that are forked from one process, in which what they load is in memory once (`solver.template`)."""

import logging
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from itertools import count
from typing import Any

from solver.engine import Worker
from solver.process import LocalEngine, WorkerProcess, start_interpreter
from solver.template import MAX_MESSAGE_BYTES, can_fork
from stowplan.errors import WorkerError

_logger = logging.getLogger("stowplan.solver.forking")
# A template that has not forked for so long hangs, or loads on a very slow machine; pools wait for longer each time.
_ANSWER_LIMIT_S = 60.0


class ForkingEngine(LocalEngine):
    """Workers are processes of this machine, forked from a template that has loaded `preload` before the first one, and
    loads `idle_load` once a pool lets its workers load. They die with the template, and it with this process.

    A template that must not be forked, since something that it has loaded runs a thread, is given up: workers are fresh
    interpreters then, as they are where the system cannot do it.
    """

    starts_together = True

    def __init__(self, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> None:
        self._template = _Template(preload, idle_load)

    def worker(self, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> Worker:
        """Give a worker that has not been started."""
        if self._template.is_usable:
            return ForkedWorker(self._template, preload, idle_load)
        return WorkerProcess(preload, idle_load)

    def close(self) -> None:
        """End the template, and all workers with it."""
        self._template.close()


class ForkedWorker(WorkerProcess):
    """A worker that is forked from a template."""

    def __init__(self, template: "_Template", preload: tuple[str, ...], idle_load: tuple[str, ...]) -> None:
        super().__init__(preload, idle_load)
        self._template = template
        self._forked: _Forked | None = None

    def _begin(self, descriptor: int) -> "_Forked":
        # What the template has not loaded yet, a later one has.
        preload, idle_load = (
            tuple(module for module in modules if module not in self._template.modules)
            for modules in (self._preload, self._idle_load)
        )
        self._forked = self._template.fork(descriptor, preload, idle_load)
        return self._forked

    @property
    def alive(self) -> bool:
        """Whether the process runs, or will; how it ended is known later, when the template has said so."""
        return self._forked is not None and not self._forked.has_ended

    def kill(self) -> None:
        """End the process now, and the connection, which one that is not there yet finds ended."""
        super().kill()
        # It may be closed, and then nobody waits.
        with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)

    def dispose(self) -> None:
        """Kill, reap and close; and kill a template that does not answer, which would keep all others waiting."""
        if self._forked is not None and not self._forked.has_begun and self.age_s > _ANSWER_LIMIT_S:
            self._template.kill()
        super().dispose()

    def load(self) -> None:
        """Have the template load, for all that come after this one, and this one what the template does not."""
        self._template.load()
        super().load()

    @property
    def is_outdated(self) -> bool:
        """Whether the template has loaded since what this one lacks."""
        return self._template.is_loaded and self._forked is not None and not self._forked.has_loaded


class _Forked:
    """A child of the template, asked for and perhaps not there yet: what `subprocess.Popen` has of a child of ours."""

    def __init__(self) -> None:
        self.has_loaded = False
        self._code: Future[int] = Future()
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._is_killed = False

    @property
    def returncode(self) -> int | None:
        """Exit code, or the signal below 0; None while it is not known."""
        return self._code.result() if self._code.done() else None

    @property
    def has_begun(self) -> bool:
        """Whether the template has said anything of it."""
        return self._descriptor is not None or self._code.done()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, as soon as it has."""
        if self._code.done():
            return True
        with self._lock:
            if self._descriptor is None:
                return False
            # Unlike `select.select` for any number of descriptors.
            ended = select.poll()
            ended.register(self._descriptor, select.POLLIN)
            return bool(ended.poll(0))

    def poll(self) -> int | None:
        """The exit code where the template has said it."""
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the end; TimeoutExpired when it does not come."""
        try:
            return self._code.result(timeout)
        except FutureTimeoutError:
            raise subprocess.TimeoutExpired("worker", timeout) from None

    def kill(self) -> None:
        """End it now, or as soon as it is there."""
        with self._lock:
            self._is_killed = True
            self._kill()

    def begin(self, descriptor: int, *, has_loaded: bool) -> None:
        """It is there."""
        with self._lock:
            self._descriptor, self.has_loaded = descriptor, has_loaded
            if self._is_killed:
                self._kill()

    def end(self, code: int) -> None:
        """It is gone."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            if not self._code.done():
                self._code.set_result(code)

    def _kill(self) -> None:
        if self._descriptor is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)


class _Template:
    """The template as the engine has it; started with the first worker, and again when it has died."""

    def __init__(self, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> None:
        self.modules = frozenset(preload + idle_load)
        self.is_loaded = False
        self.is_usable = can_fork()
        self._preload, self._idle_load = preload, idle_load
        self._lock = threading.Lock()
        self._may_load = False
        self._is_closed = False
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count()
        self._children: dict[int, _Forked] = {}

    def fork(self, descriptor: int, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> _Forked:
        """Ask for a worker on the connection `descriptor`; returns before it is there.

        Raises
        ------
        WorkerError
            When the template is closed, or cannot be asked.
        """
        with self._lock:
            if self._is_closed:
                raise WorkerError("the engine was closed")
            number, child = next(self._numbers), _Forked()
            self._children[number] = child
            message = pickle.dumps(("fork", number, sys.path, preload, idle_load))
            try:
                socket.send_fds(self._started(), [message], [descriptor], socket.MSG_DONTWAIT)
            except OSError as error:
                del self._children[number]
                raise WorkerError(f"a worker cannot be forked: {error}") from error
        return child

    def load(self) -> None:
        """Load what can wait, in idle time from now on."""
        with self._lock:
            if not self._may_load:
                self._may_load = True
                if self._socket is not None:
                    self._say_load(self._socket)

    def kill(self) -> None:
        """End it now; another one is started with the next worker."""
        with self._lock:
            if self._process is not None:
                _logger.warning("the process that workers are forked from does not answer, and is killed")
                self._process.kill()

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._is_closed = True
            if self._socket is not None:
                # Whoever waits for what it says sees the end, too; it may have come already.
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _started(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            # It dies with the thread that starts it, which therefore lives as long.
            threading.Thread(target=self._follow, args=(self._socket, theirs), name="template", daemon=True).start()
            if self._may_load:
                self._say_load(self._socket)
        return self._socket

    def _say_load(self, connection: socket.socket) -> None:
        # Who forks next sees that it is gone.
        with suppress(OSError):
            connection.send(pickle.dumps(("load",)), socket.MSG_DONTWAIT)

    def _follow(self, ours: socket.socket, theirs: socket.socket) -> None:
        """Run a template, and tell its children what it says of them."""
        process: subprocess.Popen[bytes] | None = None
        try:
            arguments = (theirs.fileno(), os.getpid(), self._preload, self._idle_load)
            process = start_interpreter("solver.template", arguments, theirs.fileno())
            with self._lock:
                self._process = process
            theirs.close()
            while True:
                data, descriptors, _, _ = socket.recv_fds(ours, MAX_MESSAGE_BYTES, 1)
                if not data:
                    break
                self._hear(descriptors, *pickle.loads(data))  # noqa: S301 - from our own child
        except OSError as error:
            _logger.warning("the process that workers are forked from is lost: %s", error)
        finally:
            theirs.close()
            self._lose(ours, process)

    def _hear(self, descriptors: list[int], kind: str, *content: Any) -> None:
        if kind == "loaded":
            self.is_loaded = True
            return
        number, said = content
        if kind == "forked" and descriptors:
            self._children[number].begin(descriptors[0], has_loaded=said)
            return
        if kind == "forked":
            # This process has no descriptor left for it. Whoever launched it ends its connection, and so the child.
            _logger.warning("a worker was forked, and cannot be looked after: too many open files")
            self._children[number].end(1)
            return
        with self._lock:
            child = self._children.pop(number)
        if kind == "ended":
            child.end(said)
            return
        if kind == "unusable":
            self.is_usable = False
        _logger.warning("a worker cannot be forked: %s", said)
        child.end(1)

    def _lose(self, ours: socket.socket, process: "subprocess.Popen[bytes] | None") -> None:
        """The template is gone, and its children with it."""
        with self._lock:
            children, self._children = self._children, {}
            self._socket, self._process, self.is_loaded = None, None, False
            ours.close()
        code = 1
        if process is not None:
            process.kill()
            code = process.wait()
        for child in children.values():
            child.end(code)
