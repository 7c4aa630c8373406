"""The far side of `solver.ray_engine`: an actor that starts workers on its node and relays what they say.

It is a plain class, without Ray in it. The workers are the processes that a pool would start at home
(`solver.process`): a solver that crashes, or is killed, does not take the actor with it, and the kernel kills them with
the actor, so that nothing goes on when its node or the pool is gone.
"""

import platform
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from solver.process import WorkerProcess
from stowplan import __version__
from stowplan.errors import WorkerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What must be the same on both sides, since both read what the other has pickled."""

    stowplan: str
    python: str

    @classmethod
    def here(cls) -> Self:
        """That of this process."""
        return cls(stowplan=__version__, python=platform.python_version())


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """First word of a relay: the process was started there."""

    host: str
    installation: Installation


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Last word of a relay: how the process ended."""

    how: str


# Messages between are lists of what the worker has sent, as it has pickled them.
Relayed = Begun | Ended | list[bytes]


class WorkerHost:
    """Workers by number. `relay` has a thread for each of them, `send` one for all, `kill` one of its own.

    `search_path` is where the pool finds modules: on a folder that nodes share, its workers find them there, too.
    """

    def __init__(self, search_path: Sequence[str]) -> None:
        sys.path += [folder for folder in search_path if folder not in sys.path]
        self._lock = threading.Lock()
        self._workers: dict[int, WorkerProcess] = {}
        # Those whose end overtook their beginning.
        self._never: set[int] = set()

    def relay(self, number: int, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> Iterator[Relayed]:
        """Start a worker and give what it says, until it ends."""
        # The worker dies with this thread.
        worker = WorkerProcess(preload, idle_load)
        with self._lock:
            if number not in self._never:
                self._workers[number] = worker
        try:
            if number not in self._workers:
                return
            worker.launch()
            yield Begun(host=socket.gethostname(), installation=Installation.here())
            while True:
                yield worker.receive_all_bytes()
        except WorkerError as error:
            yield Ended(how=str(error))
        except (EOFError, OSError):
            yield Ended(how=worker.end)
        finally:
            worker.dispose()
            with self._lock:
                self._workers.pop(number, None)

    def send(self, number: int, message: bytes) -> None:
        """Hand a message on; what comes too late goes nowhere."""
        with self._lock:
            worker = self._workers.get(number)
        if worker is not None:
            with suppress(OSError):
                worker.send_bytes(message)

    def kill(self, number: int) -> None:
        """End a worker now, whatever it does."""
        with self._lock:
            worker = self._workers.get(number)
            if worker is None:
                self._never.add(number)
        if worker is not None:
            worker.kill()
