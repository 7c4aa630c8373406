"""One task of a pool: what its caller sees of it, and its run on a worker, under a hard deadline.

Callbacks are called from the pool's threads and should return soon; what they raise is logged and dropped.
"""

import logging
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from solver.engine import Worker
from solver.monitor import Progress
from solver.worker import merged
from stowplan.arrays import FloatVector
from stowplan.errors import StowplanError, WorkerError

_logger = logging.getLogger("stowplan.solver.ticket")

# From being asked to stop until a worker is killed.
GRACE_S = 3.0
# From handing a task over to the worker's word that it has begun.
_BEGIN_LIMIT_S = 30.0
_MAX_HANDOVERS = 3


class TaskCanceledError(StowplanError):
    """The task was canceled before it began."""

    code: ClassVar[str] = "canceled"


class DeadlineError(WorkerError):
    """The worker was killed at the deadline of its task, or died there: it did not come back when it was asked to."""

    code: ClassVar[str] = "deadline"


class Pickled:
    """A pickled value that crosses this process unread: a task that gets it in its argument sees the value."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (self._data,)


class Ticket:
    """One submitted task. `future` is for waiting (`asyncio.wrap_future`); everything else may be read any time."""

    def __init__(
        self,
        number: int,
        task: str,
        argument: bytes,
        deadline_s: float,
        on_progress: Callable[[Progress], None] | None,
        on_start: Callable[[], None] | None,
        on_told: Callable[["Ticket"], None] | None = None,
        wants: str | None = None,
        withdraw: Callable[["Ticket"], bool] = lambda _: False,
    ) -> None:
        self.wants = wants
        self.number = number
        self.task = task
        self.deadline_s = deadline_s
        self.future: Future[Any] = Future()
        # Waiting for it can be given up; that does not end the task, `cancel` does.
        self.future.set_running_or_notify_cancel()
        self.submitted_s = time.monotonic()
        self.num_attempts = 0
        # Whether it may wait, now or to be begun again.
        self.is_patient = True
        # What it has told on its way, if anything.
        self.told: tuple[Any] | None = None
        self.last_progress: Progress | None = None
        self.last_incumbent: FloatVector | None = None
        self._argument = argument
        # Of whoever listens.
        self.on_progress = on_progress
        self._on_start = on_start
        self._on_told = on_told
        self._withdraw = withdraw
        self._started: float | None = None
        self._ended: float | None = None
        self._handovers = 0
        self._lock = threading.Lock()
        self._canceled = False
        self._worker: Worker | None = None

    @property
    def queued_s(self) -> float:
        """Seconds between submission and the start in the worker (until now, while it waits)."""
        return (self._started or time.monotonic()) - self.submitted_s

    @property
    def elapsed_s(self) -> float:
        """Seconds between the start in the worker and the end (until now, while it runs); 0 before it starts."""
        return 0.0 if self._started is None else (self._ended or time.monotonic()) - self._started

    @property
    def is_overdue(self) -> bool:
        """Whether it has run for as long as it may."""
        return self.elapsed_s >= self.deadline_s

    @property
    def running(self) -> bool:
        """Whether the task has begun and is not done."""
        return self._started is not None and not self.future.done()

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self.future.done()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the task's return value, or raise its error.

        Raises
        ------
        TimeoutError
            When there is none after `timeout` seconds.
        DeadlineError
            When the worker was killed at the deadline, or died there.
        WorkerError
            When the worker died before, and so did those that began again.
        TaskCanceledError
            When the task was canceled before it began.
        StowplanError
            Whatever the task itself raised.
        """
        return self.future.result(timeout)

    def done_callback(self, function: Callable[["Ticket"], None]) -> None:
        """Call `function` with this ticket when it is done; at once when it is."""
        self.future.add_done_callback(lambda _: _call(function, self))

    def cancel(self) -> None:
        """Withdraw the task when it waits; ask it to stop, keeping its incumbent, when it runs."""
        if self.future.done():
            return
        with self._lock:
            self._canceled = True
            worker = self._worker
        if self._withdraw(self):
            self.fail(TaskCanceledError(f"task {self.task} was canceled while it waited"))
        elif worker is not None:
            worker.cancel(self.number)

    def go_on_for(self, deadline_s: float) -> None:
        """Have the deadline be so many seconds from now; for `on_told`."""
        self.deadline_s = self.elapsed_s + deadline_s

    def fail(self, error: BaseException) -> None:
        """End the task with `error`, unless it has ended."""
        if not self.future.done():
            self._ended = time.monotonic()
            self.future.set_exception(error)

    def begins_again(self, attempts: int) -> bool:
        """Wait again, as if it had never begun, since its worker died; False when no other worker is to be tried.

        A task that had not begun is not to blame; one that had is begun `attempts` times in all.
        """
        self._handovers += 1
        if self._started is None:
            return self._handovers < _MAX_HANDOVERS
        found_something = self.last_incumbent is not None
        if found_something or self.is_overdue or self._canceled or self.num_attempts >= attempts:
            return False
        self._handovers, self._started, self.told, self.last_progress = 0, None, None, None
        return True

    def run_on(self, worker: Worker) -> bool:
        """Run the task to its end, whatever that is. Returns whether the worker can take another.

        Raises
        ------
        EOFError, OSError
            When the worker is gone, or was killed since the task did not begin; it has not ended then.
        """
        try:
            self._hand_to(worker)
            limit, asked = time.monotonic() + _BEGIN_LIMIT_S, False
            while True:
                # The clock comes first: a flood of progress must not hold up the deadline.
                remaining_s = limit - time.monotonic()
                if remaining_s <= 0 or not worker.poll(remaining_s):
                    if self._started is None or asked:
                        break
                    worker.cancel(self.number)
                    limit, asked = time.monotonic() + GRACE_S, True
                    continue
                kind, number, *content = worker.receive()
                if number != self.number:
                    # A thread that the task before left behind.
                    continue
                if self._is_last(kind, content, worker):
                    return True
                if not asked and self._started is not None:
                    limit = self._started + self.deadline_s
        except (EOFError, OSError):
            raise
        except Exception as error:
            # What came back cannot be read here, say an exception of a type with another constructor.
            _logger.exception("unreadable answer to task %s", self.task)
            self.fail(WorkerError(f"the answer of task {self.task} cannot be read: {error}"))
            return False
        worker.kill()
        if self._started is None:
            raise EOFError(f"task {self.task} did not begin")
        self.fail(DeadlineError(f"task {self.task} was killed at its deadline of {self.deadline_s:g} s"))
        return False

    def _hand_to(self, worker: Worker) -> None:
        worker.send("task", self.number, self.task, self._argument)
        with self._lock:
            self._worker = worker
            canceled = self._canceled
        if canceled:
            worker.cancel(self.number)

    def _begin(self) -> None:
        self.num_attempts += 1
        self._started = time.monotonic()
        if self._on_start is not None:
            _call(self._on_start)

    def _advance(self, progress: Progress) -> None:
        self.last_progress = merged(self.last_progress, progress)
        if progress.incumbent is not None:
            self.last_incumbent = progress.incumbent
        if self.on_progress is not None:
            _call(self.on_progress, progress)

    def _is_last(self, kind: str, content: Sequence[Any], worker: Worker) -> bool:
        """Take what a worker says of the task; whether that is the last word."""
        if kind == "started":
            self._begin()
            return False
        if kind == "progress":
            self._advance(content[0])
            return False
        if kind == "told":
            self.told = (content[0],)
            if self._on_told is not None:
                _call(self._on_told, self)
            return False
        value, news = content
        if news.keeps is not None:
            worker.keeps = news.keeps
        self.told = news.told or self.told
        if news.progress is not None:
            self._advance(news.progress)
        if kind == "failed":
            self.fail(value)
        else:
            self._finish(value)
        return True

    def _finish(self, value: Any) -> None:
        if not self.future.done():
            self._ended = time.monotonic()
            self.future.set_result(value)


def _call(function: Callable[..., None], *arguments: object) -> None:
    try:
        function(*arguments)
    except Exception:
        _logger.exception("callback %r failed", function)
