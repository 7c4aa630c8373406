"""A pool of worker processes with a hard deadline for every task.

Solvers can ignore a request to stop, leak memory or crash; a process can be killed. Every worker is a process of its
own (never forked from one that has solved: it hangs in HiGHS then), on this machine or wherever an engine runs it
(`solver.engine`), and is looked after by one thread here, which runs tasks on it (`solver.ticket`) and replaces it.
Nothing here imports a solver or a modelling language.
"""

import itertools
import logging
import math
import pickle
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import ClassVar, Self

from solver.engine import Slot, Worker, WorkerEngine
from solver.monitor import Progress
from solver.process import LocalEngine
from solver.queue import TaskQueue
from solver.ticket import DeadlineError, Ticket
from stowplan.errors import InputError, StowplanError, WorkerError

_logger = logging.getLogger("stowplan.solver.pool")

_IDLE_CHECK_S = 0.5
# Between starts that fail, and what a start may take: both double from failure to failure, up to these.
_MAX_PAUSE_S = 30.0
_MAX_START_LIMIT_S = 600.0


class QueueFullError(StowplanError):
    """As many tasks wait as the queue holds; later is better."""

    code: ClassVar[str] = "queue_full"


class WorkerPool:
    """`num_workers` processes and a queue of at most `max_queue` waiting tasks, in the order of `solver.queue`.

    A worker is replaced after `max_tasks_per_worker` tasks, which bounds what leaks; with `warm_spare` it works on
    until another is ready that has loaded everything, and so does one that is outdated (`Worker.is_outdated`).
    `preload` names modules that a worker imports before it is ready (a forked one of those that its template will load
    what that has loaded by then), `idle_load` those that it imports once
    `load_idle` was called, while no task waits.

    A start that fails, or takes longer than `start_limit_s`, is tried again, later and with more time. After
    `start_attempts` of them in a row in every slot the pool is in `trouble`: it takes no task, until a worker starts.
    With `gives_up` it then ends instead, and so do the tasks that wait.

    A task whose worker dies before its deadline, and before it reported an incumbent, is begun again by another one,
    before all that wait: `attempts` times in all, since it may be why they die.

    Workers are processes of this machine, unless an `engine` runs them elsewhere.
    """

    def __init__(
        self,
        num_workers: int,
        max_queue: int,
        max_tasks_per_worker: int = 100,
        preload: tuple[str, ...] = (),
        idle_load: tuple[str, ...] = (),
        *,
        warm_spare: bool = False,
        start_limit_s: float = 60.0,
        start_attempts: int = 5,
        gives_up: bool = True,
        attempts: int = 1,
        engine: WorkerEngine | None = None,
    ) -> None:
        if num_workers < 1 or max_queue < 0 or max_tasks_per_worker < 1:
            raise InputError("a pool needs at least one worker, a queue of at least 0 and one task per worker")
        self._max_queue = max_queue
        self._max_tasks = max_tasks_per_worker
        self._preload = preload
        self._idle_load = idle_load
        self._changed = threading.Condition()
        self.engine: WorkerEngine = engine or LocalEngine()
        self._starting = nullcontext() if self.engine.starts_together else threading.Lock()
        self._queue: TaskQueue[Ticket] = TaskQueue()
        self._workers: set[Worker] = set()
        # Those that wait for a task.
        self._idle: set[Worker] = set()
        self._num_busy = 0
        self._num_started = 0
        self._num_renewed = 0
        self._num_workers = num_workers
        self._numbers = itertools.count(1)
        self._warm_spare = warm_spare
        self._start_limit_s = start_limit_s
        self._start_attempts = start_attempts
        self._gives_up = gives_up
        self._attempts = attempts
        self._may_load = False
        self._closed = False
        # Per slot: how many starts failed in a row, and how the last one did.
        self._failures = [0] * num_workers
        self._last_failure = ""
        self._threads = [
            threading.Thread(target=self._look_after, args=(k,), name=f"pool-{k}", daemon=True)
            for k in range(num_workers)
        ]

    def start(self) -> Self:
        """Start the workers; returns before they are ready."""
        for thread in self._threads:
            thread.start()
        return self

    def load_idle(self) -> None:
        """Have workers load the `idle_load` modules from now on; before, it would slow down whoever starts them."""
        with self._changed:
            self._may_load = True
            ready = [worker for worker in self._workers if worker.ready]
        for worker in ready:
            worker.load()

    def close(self) -> None:
        """Fail what waits and runs, kill all workers. May be called twice, from any thread."""
        with self._changed:
            self._closed = True
            waiting = self._queue.clear()
            workers = list(self._workers)
            self._changed.notify_all()
        for worker in workers:
            worker.kill()
        for ticket in waiting:
            ticket.fail(WorkerError("the pool was closed"))
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def num_ready(self) -> int:
        """Workers that are up, idle or busy."""
        with self._changed:
            return sum(worker.ready for worker in self._workers)

    @property
    def num_busy(self) -> int:
        """Workers that run a task."""
        return self._num_busy

    @property
    def num_restarts(self) -> int:
        """Workers that took the place of one that was used up or died."""
        return max(0, self._num_started - self._num_renewed - self._num_workers)

    @property
    def trouble(self) -> str | None:
        """Why no worker starts, when none does; None while there is hope."""
        with self._changed:
            return self._trouble()

    @property
    def queue_length(self) -> int:
        """Tasks that wait."""
        return len(self._queue)

    def is_kept(self, name: str) -> bool:
        """Whether a worker that waits keeps what has this name."""
        with self._changed:
            return any(name in worker.keeps for worker in self._idle)

    def submit(
        self,
        task: str,
        argument: object,
        deadline_s: float,
        on_progress: Callable[[Progress], None] | None = None,
        on_start: Callable[[], None] | None = None,
        on_told: Callable[[Ticket], None] | None = None,
        *,
        promised: bool = False,
        at_once: bool = False,
        wants: str | None = None,
    ) -> Ticket:
        """Queue `task`, a function `package.module:function` called as `function(argument, monitor)`.

        `deadline_s` counts from its start in the worker. At the deadline it is asked to stop, and killed a few
        seconds later; the last incumbent that it reported stays on the ticket. `on_told` is called with the ticket when
        the task has told something (`Ticket.told`) well before its end. A `promised` task was accepted before:
        it waits even where the queue is full, or no worker starts now. One that is to begin `at_once` never waits, also
        not to be begun again.
        `wants` names what another task has kept: of the workers that wait, the one that keeps it gets the task.

        Raises
        ------
        QueueFullError
            When `max_queue` tasks wait already, or nobody can begin at once.
        WorkerError
            When the pool is closed or in trouble.
        InputError
            When the deadline is not positive and finite.
        """
        if not (math.isfinite(deadline_s) and deadline_s > 0):
            raise InputError(f"deadline_s is {deadline_s}; must be finite and above 0")
        # Pickled here and now: the caller hears of what cannot be pickled, and later changes have no effect.
        data = pickle.dumps(argument, pickle.HIGHEST_PROTOCOL)
        ticket = Ticket(
            next(self._numbers), task, data, deadline_s, on_progress, on_start, on_told, wants, self._withdraw
        )
        ticket.is_patient = not at_once
        with self._changed:
            if self._closed:
                raise WorkerError("the pool was closed")
            if (trouble := self._trouble()) is not None and (self._gives_up or not promised):
                raise WorkerError(trouble)
            # A spare counts only when the worker before it is gone.
            idle = min(self._num_workers, sum(worker.ready for worker in self._workers)) - self._num_busy
            if len(self._queue) >= (0 if at_once else self._max_queue) + idle and not promised:
                raise QueueFullError(f"the queue of {self._max_queue} waiting tasks is full")
            self._queue.push(ticket, ticket.submitted_s, deadline_s)
            # All of them, since the first that wakes may leave it to another one.
            self._changed.notify_all()
        return ticket

    def _withdraw(self, ticket: Ticket) -> bool:
        with self._changed:
            return self._queue.remove(ticket)

    def _look_after(self, slot: int) -> None:
        """Keep one worker alive and busy, until the pool closes or gives up."""
        place = self.engine.slot()
        worker: Worker | None = None
        while not self._has_ended():
            try:
                worker = self._ready(worker, place, self._start_limit(slot))
            except WorkerError as error:
                worker = None
                self._note_failure(slot, str(error))
                self._pause(min(_MAX_PAUSE_S, 0.1 * 2.0 ** min(self._failures[slot], 20)))
                continue
            with self._changed:
                self._failures[slot] = 0
            goes_well, worker = self._feed(worker, place)
            if not goes_well:
                self._pause(_IDLE_CHECK_S)
        if worker is not None:
            self._end(worker)
        place.leave()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(self._has_ended, timeout=seconds)

    def _has_ended(self) -> bool:
        return self._closed or (self._gives_up and self._trouble() is not None)

    def _trouble(self) -> str | None:
        fewest = min(self._failures)
        if fewest < self._start_attempts:
            return None
        return f"no worker starts, {fewest} times in a row; the last one: {self._last_failure}"

    def _start_limit(self, slot: int) -> float:
        longer = self._start_limit_s * 2.0 ** min(self._failures[slot], 20)
        return max(self._start_limit_s, min(_MAX_START_LIMIT_S, longer))

    def _ready(self, worker: Worker | None, place: Slot, limit_s: float) -> Worker:
        """A worker that is ready: this one, or a new one."""
        with self._starting:
            worker = worker or self._launched(place, self._preload, self._idle_load)
            try:
                worker.await_ready(limit_s)
            except WorkerError:
                self._end(worker)
                raise
        with self._changed:
            may_load = self._may_load
        if may_load:
            worker.load()
        return worker

    def _launched(self, place: Slot, preload: tuple[str, ...], idle_load: tuple[str, ...]) -> Worker:
        worker = place.worker(preload, idle_load)
        with self._changed:
            if self._closed:
                raise WorkerError("the pool was closed")
            self._workers.add(worker)
            self._num_started += 1
        try:
            worker.launch()
        except WorkerError:
            self._end(worker)
            raise
        return worker

    def _spare(self, spare: Worker | None, place: Slot) -> Worker | None:
        """The one that is on its way, else a new one, which has loaded everything when it is ready."""
        if spare is not None and spare.alive and spare.age_s < _MAX_START_LIMIT_S:
            return spare
        if spare is not None:
            _logger.warning("a worker is not replaced yet: the next one did not start (%s)", spare.end)
            self._end(spare)
        try:
            return self._launched(place, self._preload + self._idle_load, ())
        except WorkerError as error:
            _logger.warning("a worker is not replaced yet: %s", error)
            return None

    def _note_failure(self, slot: int, reason: str) -> None:
        with self._changed:
            if self._closed:
                return
            self._failures[slot] += 1
            self._last_failure = reason
            waiting = self._queue.clear() if self._has_ended() else []
            self._changed.notify_all()
        _logger.warning("start %d in a row failed: %s", self._failures[slot], reason)
        for ticket in waiting:
            ticket.fail(WorkerError(self.trouble or reason))

    def _end(self, worker: Worker) -> None:
        with self._changed:
            self._workers.discard(worker)
        worker.dispose()

    def _feed(self, worker: Worker, place: Slot) -> tuple[bool, Worker | None]:
        """Give `worker` tasks until it is used up, has died, or the pool closes; then it is gone.

        Returns whether there is no reason to pause, and the next worker, if there is one.
        """
        spare: Worker | None = None
        count, is_renewed = 0, not self._warm_spare
        while True:
            ticket = self._next_ticket(worker, spare, until_outdated=not is_renewed)
            if ticket is None:
                if is_renewed or not self._is_outdated(worker):
                    break
                is_renewed, spare = True, self._spare(spare, place)
                self._num_renewed += spare is not None
                continue
            usable = self._work(worker, ticket)
            count += 1
            if not usable or (count >= self._max_tasks and not self._warm_spare):
                break
            if count >= self._max_tasks:
                spare = self._spare(spare, place)
        if worker.alive:
            worker.retire()
        self._end(worker)
        return count > 0 or spare is not None, spare

    def _is_outdated(self, worker: Worker) -> bool:
        return not self._closed and worker.alive and worker.is_outdated

    def _work(self, worker: Worker, ticket: Ticket) -> bool:
        try:
            return ticket.run_on(worker)
        except (EOFError, OSError):
            self._lost(worker, ticket)
            return False
        finally:
            with self._changed:
                self._num_busy -= 1

    def _next_ticket(self, worker: Worker, spare: Worker | None, *, until_outdated: bool) -> Ticket | None:
        """The next task; None when the pool closes, the worker is dead or outdated, or its spare is there."""
        with self._changed:
            self._idle.add(worker)
            try:
                while not self._closed and worker.alive and not (spare is not None and spare.is_up):
                    if self._queue and not self._is_for_another(worker, self._queue.first()):
                        self._num_busy += 1
                        ticket = self._queue.pop()
                        if self._queue:
                            # Others may have left this one here, and not seen what comes behind it.
                            self._changed.notify_all()
                        return ticket
                    if until_outdated and worker.is_outdated:
                        return None
                    self._changed.wait(_IDLE_CHECK_S)
            finally:
                self._idle.remove(worker)
            # Somebody may have left a task to it.
            self._changed.notify_all()
        return None

    def _is_for_another(self, worker: Worker, ticket: Ticket) -> bool:
        """Whether another worker that waits keeps what the task wants, and this one does not."""
        wanted = ticket.wants
        if wanted is None or wanted in worker.keeps:
            return False
        return any(wanted in other.keeps for other in self._idle)

    def _lost(self, worker: Worker, ticket: Ticket) -> None:
        """The worker is dead: have the task begun again by another one, or fail."""
        with self._changed:
            if not self._closed and ticket.is_patient and ticket.begins_again(self._attempts):
                self._queue.push_first(ticket)
                # One alone may be a worker that leaves it to another.
                self._changed.notify_all()
                return
        kind = DeadlineError if ticket.is_overdue and not self._closed else WorkerError
        again = f", {ticket.num_attempts} times in a row" if ticket.num_attempts > 1 else ""
        reason = "the pool was closed" if self._closed else f"its worker died ({worker.end}){again}"
        ticket.fail(kind(f"task {ticket.task} failed: {reason}"))
