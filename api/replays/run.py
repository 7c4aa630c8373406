"""Replays of one request: so many side by side, each in a worker under a hard deadline."""

import threading
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Protocol

from api.replays.task import REPLAY_TASK, PackedReplays, Replayed, ReplayProgress
from solver.engine import WorkerEngine
from solver.monitor import Progress
from solver.pool import WorkerPool
from solver.ticket import GRACE_S, Ticket
from stowplan.errors import WorkerError

# A worker that dies may have been killed for want of memory; whoever dies again will do so once more.
_ATTEMPTS = 2
_POLL_S = 0.2


class Watcher(Protocol):
    """Who is told of the replays, by their numbers, from several threads."""

    def begun(self, number: int) -> None:
        """A worker has begun."""

    def advanced(self, number: int, progress: ReplayProgress) -> None:
        """A replay is so far."""

    def ended(self, number: int, outcome: Replayed | BaseException) -> None:
        """A replay came back, or cannot; called from the thread of `run`."""


class RunningReplays:
    """Carries out replays. `stop` and `kill` may come from any thread, `run` is for one.

    `slack_s` is how long a worker may take beyond the limit of its replay, in the middle of a decision.
    """

    def __init__(
        self,
        packed: PackedReplays,
        limit_s: float,
        slack_s: float,
        num_processes: int,
        engine: WorkerEngine | None = None,
    ) -> None:
        self._packed = packed
        self._limit_s = limit_s
        self._slack_s = slack_s
        self._engine = engine
        self._num_processes = min(num_processes, len(packed.replays))
        self._lock = threading.Lock()
        self._tickets: dict[int, Ticket] = {}
        self._killed_at_s: float | None = None

    @property
    def longest_s(self) -> float:
        """All replays end at the latest this long after the first began."""
        rounds = -(-len(self._packed.replays) // self._num_processes)
        return rounds * _ATTEMPTS * (self._limit_s + self._slack_s + GRACE_S)

    def run(self, watcher: Watcher) -> None:
        """Carry out all replays; those that have not begun when it is stopped are not."""
        waiting = deque(range(len(self._packed.replays)))
        preload = (REPLAY_TASK.partition(":")[0],)
        count = self._num_processes
        with WorkerPool(count, count, preload=preload, attempts=_ATTEMPTS, engine=self._engine) as pool:
            while self._begin(waiting, pool, watcher):
                futures = [ticket.future for ticket in self._tickets.values()]
                wait(futures, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for number, ticket in [(k, ticket) for k, ticket in self._tickets.items() if ticket.done()]:
                    del self._tickets[number]
                    watcher.ended(number, ticket.future.exception() or ticket.result())
                if self._killed_at_s is not None and time.monotonic() >= self._killed_at_s:
                    pool.close()

    def stop(self) -> None:
        """Ask the replays that run to come back with what they have; what does not soon is killed."""
        with self._lock:
            if self._killed_at_s is None:
                self._killed_at_s = time.monotonic() + GRACE_S
            tickets = list(self._tickets.values())
        for ticket in tickets:
            ticket.cancel()

    def kill(self) -> None:
        """Stop, and end the workers now."""
        self.stop()
        self._killed_at_s = time.monotonic()

    def _begin(self, waiting: deque[int], pool: WorkerPool, watcher: Watcher) -> bool:
        """Hand replays to workers that are free; returns whether any runs."""
        with self._lock:
            while waiting and len(self._tickets) < self._num_processes and self._killed_at_s is None:
                number = waiting.popleft()
                try:
                    self._tickets[number] = self._submit(number, pool, watcher)
                except WorkerError as error:
                    watcher.ended(number, error)
            return bool(self._tickets)

    def _submit(self, number: int, pool: WorkerPool, watcher: Watcher) -> Ticket:
        def advanced(progress: Progress) -> None:
            if isinstance(progress, ReplayProgress):
                watcher.advanced(number, progress)

        return pool.submit(
            REPLAY_TASK,
            self._packed.task(number, self._limit_s),
            self._limit_s + self._slack_s,
            on_progress=advanced,
            on_start=lambda: watcher.begun(number),
            promised=True,
        )
