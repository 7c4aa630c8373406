"""Workers on the nodes of a Ray cluster. Only who chooses this engine needs Ray.

Every slot of a pool is an actor (`solver.ray_host`), which Ray places where a CPU is free, spread over the nodes, and
which starts the processes that a local pool would start, one after another. Ray carries what is said: calls to the
actor one way, the items of a streaming generator the other. When the actor or its node dies the connection of its
worker ends, as if the process had died here, and the slot takes another actor for the next one.
"""

import itertools
import logging
import os
import pickle
import socket
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Any, Self

import ray
from ray.exceptions import ActorUnavailableError, RayError

from solver.engine import Slot, Worker
from solver.ray_host import Begun, Ended, Installation, WorkerHost
from stowplan.errors import InputError, WorkerError

_logger = logging.getLogger("stowplan.solver.ray")

# A worker, the one that takes its place, and those that are about to end.
_RELAYS = 4
_GROUPS = {"relays": _RELAYS, "sends": 1}
_CPUS = 1
# Addresses with a meaning of their own.
_WORDS = ("auto", "local")
_EXIT_LIMIT_S = 1.0
_CONNECT_LIMIT_S = 5.0


class RayEngine:
    """Runs workers on a Ray cluster, as one of whose drivers this process is connected until `close`.

    `address` is Ray's: `auto` for the cluster that this machine is a node of, `host:port` of its head, or `local` for
    one of its own on this machine, which ends with it.

    Raises
    ------
    InputError
        When there is no such cluster, or this machine is no node of it.
    """

    # Nodes do not compete for processors, and one that waits for a CPU must not keep others from starting.
    starts_together = True

    def __init__(self, address: str = "auto") -> None:
        if address not in _WORDS and not address.rpartition(":")[2].isdecimal():
            raise InputError(f"ray_address is {address}; must be auto, local, or HOST:PORT of the head of the cluster")
        if "://" in address:
            raise InputError(
                f"ray_address is {address}; workers are talked to from a node of the cluster itself: start Ray on this "
                "machine (`ray start --address HOST:PORT`) and say auto"
            )
        try:
            _connect(address)
        except (RuntimeError, ValueError, OSError, OverflowError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"no connection to the Ray cluster at {address}: {reason}; start Ray on this machine (`ray start "
                "--head`, or `ray start --address HOST:PORT` for a cluster that is there), or say local"
            ) from error
        self._numbers = itertools.count(1)

    def slot(self) -> Slot:
        """Give a place for a worker on some node; which one is seen when the first is started."""
        return _RaySlot(self._numbers)

    def close(self) -> None:
        """Leave the cluster; what still runs there for this process ends."""
        ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(address: str) -> None:
    if address not in _WORDS:
        # Ray would try for minutes.
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_LIMIT_S).close()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    # What workers print stays in the logs of their node.
    ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **own)


class _RaySlot:
    """One actor at a time. The next one is started when this one has died, or no worker starts there."""

    def __init__(self, numbers: "itertools.count[int]") -> None:
        self._numbers = numbers
        self._lock = threading.Lock()
        self._actor: Any = None
        self._workers: set[_RayWorker] = set()

    def worker(self, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> Worker:
        """Give a worker that has not been started."""
        return _RayWorker(self, next(self._numbers), preload, idle_load)

    def leave(self) -> None:
        """Let the actor go."""
        with self._lock:
            actor, self._actor = self._actor, None
        if actor is not None:
            _end(actor)

    def actor(self) -> Any:
        """Give the actor, which may still wait for a CPU."""
        with self._lock:
            if self._actor is None:
                # Empty stands for the folder that somebody works in, who is somebody else there.
                folders = [os.path.abspath(folder) for folder in sys.path if folder]
                host = ray.remote(num_cpus=_CPUS, max_restarts=0, concurrency_groups=_GROUPS)(WorkerHost)
                self._actor = host.options(scheduling_strategy="SPREAD").remote(folders)
            return self._actor

    def lost(self, actor: Any) -> None:
        """Note that an actor is dead, or cannot be heard; then it may live, and shall not."""
        with self._lock:
            if self._actor is actor:
                self._actor = None
        _end(actor)

    def entered(self, worker: "_RayWorker") -> None:
        """Note that a worker is about to start."""
        with self._lock:
            self._workers.add(worker)

    def left(self, worker: "_RayWorker") -> None:
        """Note that a worker is gone; where none starts, and none works, the next one is tried elsewhere."""
        with self._lock:
            self._workers.discard(worker)
            others = any(other.ready and other.alive for other in self._workers)
        if not worker.ready and not others:
            self.leave()


class _RayWorker(Worker):
    """A worker of an actor. A thread of its own takes what comes: it can be killed whatever the cluster does."""

    def __init__(self, slot: _RaySlot, number: int, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> None:
        super().__init__()
        self._slot = slot
        self._number = number
        self._loads = (preload, idle_load)
        self._changed = threading.Condition()
        self._arrived: deque[bytes] = deque()
        self._has_begun = False
        self._over = False
        self._how = "not started"
        self._actor: Any = None
        self._reader: threading.Thread | None = None

    def _start(self) -> None:
        self._how = "still running"
        try:
            self._actor = self._slot.actor()
            relay = self._actor.relay.options(num_returns="streaming", concurrency_group="relays")
            items = relay.remote(self._number, *self._loads)
        except RayError as error:
            raise WorkerError(f"a worker cannot be started: {_reason(error)}") from error
        self._slot.entered(self)
        self._reader = threading.Thread(target=self._follow, args=(items,), name=f"ray-{self._number}", daemon=True)
        self._reader.start()

    def _follow(self, items: Any) -> None:
        """Take what the worker says, until it ends."""
        how = "the Ray actor ended"
        try:
            for reference in items:
                item = ray.get(reference)
                if isinstance(item, Ended):
                    how = item.how
                elif isinstance(item, Begun):
                    self._has_begun = True
                    if (difference := _difference(item)) is not None:
                        how = difference
                        break
                else:
                    with self._changed:
                        self._arrived.extend(item)
                        self._changed.notify()
        except RayError as error:
            how = _reason(error)
            self._slot.lost(self._actor)
        except Exception as error:
            # Ray has been shut down, or what came cannot be read.
            _logger.exception("a worker is lost")
            how = f"{type(error).__name__}: {error}"
        self._finish(how)

    def _finish(self, how: str) -> None:
        with self._changed:
            if not self._over:
                self._over, self._how = True, how
            self._changed.notify_all()

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as the cluster has said."""
        return self._actor is not None and not self._over

    @property
    def end(self) -> str:
        """How it ended."""
        return self._how

    def _hindrance(self) -> str:
        return "" if self._has_begun else f": {_shortage()}"

    def send(self, *message: object) -> None:
        """Send; OSError when the worker is known to be gone."""
        if not self.alive:
            raise BrokenPipeError(f"the worker is gone ({self._how})")
        self._tell("send", pickle.dumps(message, pickle.HIGHEST_PROTOCOL), group="sends")

    def _tell(self, method: str, *arguments: object, group: str | None = None) -> None:
        options = {} if group is None else {"concurrency_group": group}
        try:
            getattr(self._actor, method).options(num_returns=0, **options).remote(self._number, *arguments)
        except RayError as error:
            raise BrokenPipeError(_reason(error)) from error

    def poll(self, timeout_s: float) -> bool:
        """Wait for a message, or the end of the worker."""
        with self._changed:
            limit_s = max(0.0, min(timeout_s, threading.TIMEOUT_MAX))
            return self._changed.wait_for(lambda: bool(self._arrived) or self._over, limit_s)

    def receive(self) -> Any:
        """Take the next message; EOFError when the worker is gone."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._arrived) or self._over)
            if not self._arrived:
                raise EOFError
            message = self._arrived.popleft()
        return pickle.loads(message)  # noqa: S301  # from our own worker

    def retire(self) -> None:
        """Let it end by itself."""
        with suppress(OSError):
            self.send("exit")
            with self._changed:
                self._changed.wait_for(lambda: self._over, _EXIT_LIMIT_S)

    def kill(self) -> None:
        """End it now; whoever polls sees the end of the connection, even where the cluster does not answer."""
        with self._lock:
            self._killed = True
            if self.alive:
                with suppress(OSError):
                    self._tell("kill")
        self._finish("killed")

    def dispose(self) -> None:
        """Kill, and see it end if that can be seen soon."""
        self.kill()
        if self._reader is not None:
            self._reader.join(_EXIT_LIMIT_S)
            self._slot.left(self)


def _difference(begun: Begun) -> str | None:
    """What keeps both sides from reading each other."""
    ours, theirs = Installation.here(), begun.installation
    if ours == theirs:
        return None
    return (
        f"{begun.host} has stowplan {theirs.stowplan} with Python {theirs.python}, and this machine {ours.stowplan} "
        f"with Python {ours.python}; install the same there"
    )


def _shortage() -> str:
    """Say why no node has taken an actor."""
    try:
        there, free = ray.cluster_resources().get("CPU", 0.0), ray.available_resources().get("CPU", 0.0)
    except (RayError, RuntimeError) as error:
        return f"the Ray cluster does not answer ({type(error).__name__})"
    if free < _CPUS:
        return f"no node of the Ray cluster has a CPU free, {there - free:g} of {there:g} are taken"
    return f"no node of the Ray cluster started it, although {free:g} of {there:g} CPUs are free"


def _reason(error: RayError) -> str:
    """Say in a line what Ray says in many."""
    if isinstance(error, ActorUnavailableError):
        return "the connection to its Ray actor was lost"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if (missing := next((line for line in lines if "ModuleNotFoundError" in line), None)) is not None:
        return f"stowplan is not installed there, or another version ({missing.partition('ModuleNotFoundError: ')[2]})"
    told = next((line for line in lines if " because " in line), lines[0] if lines else type(error).__name__)
    return told.rstrip(".")


def _end(actor: Any) -> None:
    with suppress(RayError, RuntimeError):
        ray.kill(actor)
