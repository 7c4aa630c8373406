"""The child side of `solver.pool`: a process that runs one task after the other.

The main thread runs tasks, one thread listens to the parent, one sends progress. Messages are tuples:

parent -> worker   ("task", id, "package.module:function", pickled argument), ("cancel", id), ("load",), ("exit",)
worker -> parent   ("ready",), ("started", id), ("told", id, value), ("progress", id, Progress), and at the end ("done",
                   id, value, `LastNews`) or ("failed", id, error, `LastNews`)
"""

import ctypes
import gc
import importlib
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from solver.monitor import Progress, SolveMonitor
from stowplan.errors import StowplanError, WorkerError

_logger = logging.getLogger("stowplan.solver.worker")
_PROGRESS_INTERVAL_S = 0.1
# What a task tells on its way waits so long for its end, which then brings it along: to send it, and to have it heard,
# takes as long as a short task.
_TELL_WITHIN_S = 0.05
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int, preload: Sequence[str], idle_load: Sequence[str] = ()) -> None:
    """Serve the pool on the socket `descriptor` until it says exit or `parent` (process id) is gone.

    `preload` is imported before the word ready, `idle_load` once the parent has said load, one module after the other
    while no task waits.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)
    connection = Connection(descriptor)
    for module in preload:
        importlib.import_module(module)
    # What is loaded stays for good: garbage collection need not look at it while a task makes many objects.
    gc.freeze()
    inbox: _Inbox = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, inbox), name="listen", daemon=True).start()
    outbox = _Outbox(connection)
    threading.Thread(target=outbox.relay, name="relay", daemon=True).start()
    outbox.send("ready")
    modules = iter(idle_load)
    loaded: Iterator[str] = iter(())
    while (task := _next(inbox, loaded)) is not None:
        if isinstance(task, _Load):
            loaded = modules
        else:
            _run(task, outbox)


class LastNews(NamedTuple):
    """What comes with the end of a task. `told`: what it has told, if that has not been sent yet; `keeps`: what the
    worker keeps, where that is other than it has said before."""

    told: tuple[object] | None
    progress: Progress | None
    keeps: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Task:
    id: int
    function: str
    argument: bytes
    canceled: threading.Event = field(default_factory=threading.Event)


class _Load:
    """The word that idle time is for loading."""


_Inbox = queue.SimpleQueue[_Task | _Load | None]


def _next(inbox: _Inbox, modules: Iterator[str]) -> _Task | _Load | None:
    """What the parent wants next; as long as that is nothing, modules are loaded."""
    has_loaded = False
    while True:
        with suppress(queue.Empty):
            return inbox.get_nowait()
        module = next(modules, None)
        if module is None:
            if has_loaded:
                gc.collect()
                gc.freeze()
            return inbox.get()
        has_loaded = True
        try:
            importlib.import_module(module)
        except Exception:
            # The tasks that need it will say so; the others go on.
            _logger.exception("%s cannot be loaded", module)


def die_with(parent: int) -> None:
    """Have the kernel kill us with our parent, even while a solver holds the interpreter lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _listen(connection: Connection, inbox: _Inbox) -> None:
    """Hand tasks to the main thread and cancel the one that is asked for."""
    latest: _Task | None = None
    try:
        while True:
            kind, *content = connection.recv()
            if kind == "task":
                number, function, argument = content
                latest = _Task(id=number, function=function, argument=argument)
                inbox.put(latest)
            elif kind == "cancel" and latest is not None and latest.id == content[0]:
                latest.canceled.set()
            elif kind == "load":
                inbox.put(_Load())
            elif kind == "exit":
                inbox.put(None)
                return
    except (EOFError, OSError):
        # The parent is gone: nobody wants the answer.
        os._exit(1)


def _run(task: _Task, outbox: "_Outbox") -> None:
    outbox.send("started", task.id)
    monitor = SolveMonitor(
        on_progress=lambda progress: outbox.offer(task.id, progress),
        tells=lambda value: outbox.tell(task.id, value),
        keeps=outbox.keep,
        canceled=task.canceled,
    )
    try:
        value = _resolve(task.function)(pickle.loads(task.argument), monitor)  # noqa: S301  # from our own parent
        outbox.end("done", task.id, value)
    except StowplanError as error:
        outbox.end("failed", task.id, error)
    except Exception as error:
        _logger.exception("task %s failed", task.function)
        outbox.end("failed", task.id, StowplanError(f"{task.function} failed: {type(error).__name__}: {error}"))


def _resolve(path: str) -> Callable[[Any, SolveMonitor], Any]:
    module, _, name = path.partition(":")
    try:
        function: Callable[[Any, SolveMonitor], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise WorkerError(f"no task {path!r}: {error}") from error
    return function


class _Outbox:
    """Sends to the parent. Progress is merged and goes out at once, then at most ten times a second; what is told goes
    out with the end of its task where that comes soon."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._pending = threading.Condition()
        # Of which task what follows is.
        self._task = 0
        self._told: tuple[object] | None = None
        self._progress: Progress | None = None
        self._keeps: tuple[str, ...] | None = None

    def send(self, *message: object) -> None:
        # Pickled first: a value that cannot be pickled must not leave half a message in the pipe.
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._sending:
            self._connection.send_bytes(data)

    def offer(self, task: int, progress: Progress) -> None:
        with self._pending:
            self._come_to(task)
            if self._told is None and self._progress is None:
                self._pending.notify()
            self._progress = merged(self._progress, progress)

    def tell(self, task: int, value: object) -> None:
        with self._pending:
            self._come_to(task)
            self._told = (value,)
            self._pending.notify()

    def keep(self, names: Sequence[str]) -> None:
        """Have the end of the task say what is kept, which is soon enough: the pool asks idle workers alone."""
        with self._pending:
            self._keeps = tuple(names)

    def end(self, kind: str, task: int, content: object) -> None:
        """Send the last word of a task, and with it what is pending: whoever listens wakes once for all."""
        # The lock spans taking and sending, so that progress never arrives after the answer.
        with self._pending:
            self._come_to(task)
            self.send(kind, task, content, LastNews(self._told, self._progress, self._keeps))
            self._told = self._progress = self._keeps = None

    def flush(self) -> None:
        with self._pending:
            if self._told is not None:
                self.send("told", self._task, *self._told)
                self._told = None
            if self._progress is not None:
                self.send("progress", self._task, self._progress)
                self._progress = None

    def relay(self) -> None:
        try:
            while True:
                with self._pending:
                    self._pending.wait_for(lambda: self._told is not None or self._progress is not None)
                    if self._told is not None:
                        self._pending.wait_for(lambda: self._told is None, _TELL_WITHIN_S)
                self.flush()
                time.sleep(_PROGRESS_INTERVAL_S)
        except OSError:
            os._exit(1)

    def _come_to(self, task: int) -> None:
        """A thread that the task before left behind may have offered the last."""
        if self._task != task:
            self._task, self._told, self._progress = task, None, None


def merged(old: Progress | None, new: Progress) -> Progress:
    """The newest of everything: what `new` does not know is kept from `old`."""
    return new if old is None else new.after(old)
