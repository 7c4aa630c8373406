"""The process that workers are forked from: it loads what they need, once, and never runs a task.

A process that has solved must not be forked: its child hangs in HiGHS. This one has one thread and looks after its
socket, so that a child finds every lock free. What it has loaded is in memory once for all workers, and a worker is
there in hundredths of a second. Messages are pickled tuples, one a packet:

engine -> template   ("load",), ("fork", number, search path, preload, idle_load) with the worker's end of its pipe
template -> engine   ("forked", number, whether all was loaded) with a file descriptor of the process (pidfd),
                     ("refused", number, why), ("unusable", number, why), ("ended", number, exit code), ("loaded",)
"""

import gc
import importlib
import logging
import os
import pickle
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from solver import worker

_logger = logging.getLogger("stowplan.solver.template")
# Far above what a search path and names of modules take.
MAX_MESSAGE_BYTES = 2**18


def main(descriptor: int, parent: int, preload: Sequence[str], idle_load: Sequence[str]) -> None:
    """Serve the engine on the socket `descriptor` until it is closed, or `parent` (process id) is gone.

    `preload` is imported before the first fork, `idle_load` once the engine has said load, one module after the other
    while no fork is asked for.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker.die_with(parent)
    # Nothing that is loaded goes away, and looking at it would take pages out of what is shared.
    gc.disable()
    for module in preload:
        importlib.import_module(module)
    _Template(socket.socket(fileno=descriptor), idle_load).serve()


class _Template:
    def __init__(self, engine: socket.socket, idle_load: Sequence[str]) -> None:
        self._engine = engine
        self._modules = list(idle_load)
        self._may_load = False
        # Number and process id of each child by its file descriptor.
        self._children: dict[int, tuple[int, int]] = {}
        self._waiting = select.poll()
        self._waiting.register(engine, select.POLLIN)

    def serve(self) -> None:
        """Return when the engine is gone."""
        gc.freeze()
        while True:
            has_to_load = self._may_load and bool(self._modules)
            for descriptor, _ in self._waiting.poll(0 if has_to_load else None):
                if descriptor in self._children:
                    self._reap(descriptor)
                elif not self._take():
                    return
            if has_to_load:
                self._load(self._modules.pop(0))

    def _take(self) -> bool:
        """Do what the engine asks; whether it is still there."""
        data, descriptors, _, _ = socket.recv_fds(self._engine, MAX_MESSAGE_BYTES, 1)
        if not data:
            return False
        kind, *content = pickle.loads(data)  # noqa: S301 - from our own parent
        if kind == "load":
            self._may_load = True
        elif descriptors:
            self._fork(descriptors[0], *content)
        else:
            self._say("refused", content[0], "it has too many open files to take a connection")
        return True

    def _load(self, module: str) -> None:
        try:
            importlib.import_module(module)
        except Exception:
            # The tasks that need it will say so; the others go on.
            _logger.exception("%s cannot be loaded", module)
        if not self._modules:
            gc.collect()
            gc.freeze()
            self._say("loaded")

    def _fork(
        self, connection: int, number: int, path: list[str], preload: Sequence[str], idle_load: Sequence[str]
    ) -> None:
        template = os.getpid()
        try:
            num_threads = len(os.listdir("/proc/self/task"))
            if num_threads > 1:
                self._say("unusable", number, f"it has {num_threads} threads")
                os.close(connection)
                return
            child = os.fork()
        except OSError as error:
            self._say("refused", number, str(error))
            os.close(connection)
            return
        if child == 0:
            self._become_worker(connection, template, path, preload, idle_load)
        os.close(connection)
        try:
            descriptor = os.pidfd_open(child)
        except OSError as error:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self._say("refused", number, str(error))
            return
        self._children[descriptor] = (number, child)
        self._waiting.register(descriptor, select.POLLIN)
        socket.send_fds(self._engine, [pickle.dumps(("forked", number, not self._modules))], [descriptor])

    def _become_worker(
        self, connection: int, template: int, path: list[str], preload: Sequence[str], idle_load: Sequence[str]
    ) -> NoReturn:
        code = 1
        try:
            os.setpgid(0, 0)
            self._engine.close()
            for descriptor in self._children:
                os.close(descriptor)
            sys.path[:] = path
            if (random := sys.modules.get("numpy.random")) is not None:
                # Python's own generator does it by itself.
                random.seed()
            gc.enable()
            worker.main(connection, template, preload, idle_load)
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it is, what is above on the stack is the template's
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _reap(self, descriptor: int) -> None:
        number, child = self._children.pop(descriptor)
        self._waiting.unregister(descriptor)
        os.close(descriptor)
        self._say("ended", number, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def _say(self, *message: object) -> None:
        self._engine.send(pickle.dumps(message))


def can_fork() -> bool:
    """Whether this system has what templates need: descriptors of processes, and /proc to count threads in."""
    if not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal") and Path("/proc/self/task").is_dir()):
        return False
    try:
        descriptor = os.pidfd_open(os.getpid())
        try:
            signal.pidfd_send_signal(descriptor, 0)
        finally:
            os.close(descriptor)
    except OSError:
        # An old kernel, or a container that may not ask it.
        return False
    return True
