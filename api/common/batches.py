"""One thread for work that ends in a step which takes as long for many as for one, such as a commit.

What comes while it is busy is prepared one after another, and then finished together: nobody waits for more than the
step that runs and the next one, and threads do not take turns with locks.
"""

import logging
import queue
import threading
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from api.common.errors import ShuttingDownError

PreparedT = TypeVar("PreparedT")
DoneT = TypeVar("DoneT")
# Prepared before the first of them is finished: a few milliseconds of small requests.
_MOST = 8
_logger = logging.getLogger("stowplan.api.common.batches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Generic[PreparedT]):
    """What is to be finished, and the context of who asked for it."""

    value: PreparedT
    context: Context


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked(Generic[PreparedT, DoneT]):
    prepare: Callable[[], PreparedT]
    context: Context
    loop: AbstractEventLoop
    answer: "Future[DoneT]"


class Later(Generic[PreparedT, DoneT]):
    """Something that is asked for here, in a loop, and prepared once some other thread has what for."""

    def __init__(self, put: "Callable[[_Asked[PreparedT, DoneT]], None]") -> None:
        self._put = put
        self._loop, self._context = get_running_loop(), copy_context()
        self.answer: Future[DoneT] = self._loop.create_future()

    def do(self, prepare: Callable[[], PreparedT]) -> None:
        """Have it prepared and finished; raises what `Batches.do` does, and `answer` what either does."""
        self._put(_Asked(prepare=prepare, context=self._context, loop=self._loop, answer=self.answer))

    def fail(self, error: Exception) -> None:
        """Have `answer` raise this, unless there is one."""
        # A loop that has ended has nobody who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_answer, [(self.answer, error)])


class _Word(Enum):
    WAKE = auto()
    END = auto()


class Batches(Generic[PreparedT, DoneT]):
    """Does what is asked in one thread; `finish` gives what each has led to, an exception for one that failed.

    It is also called for none: after `wake`, and where nothing that was asked for could be prepared. What it raises
    then is logged.
    """

    def __init__(
        self, name: str, finish: Callable[[Sequence[Prepared[PreparedT]]], Sequence[DoneT | Exception]]
    ) -> None:
        self._finish = finish
        self._asked: queue.SimpleQueue[_Asked[PreparedT, DoneT] | _Word] = queue.SimpleQueue()
        self._is_closed = False
        # Nothing is asked for behind the end, where nobody would answer.
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def do(self, prepare: Callable[[], PreparedT]) -> DoneT:
        """Prepare and finish something; raises what either does.

        Raises
        ------
        ShuttingDownError
            When it is closed.
        """
        later = self.later()
        later.do(prepare)
        return await later.answer

    def later(self) -> Later[PreparedT, DoneT]:
        """What is prepared later; for who asks here, and in this context."""
        return Later(self._put)

    def wake(self) -> None:
        """Have `finish` called soon, also if nobody asks."""
        self._asked.put(_Word.WAKE)

    def close(self) -> None:
        """Do what has been asked for, and nothing more."""
        with self._closing:
            self._is_closed = True
            self._asked.put(_Word.END)
        self._thread.join()

    def _put(self, asked: "_Asked[PreparedT, DoneT]") -> None:
        with self._closing:
            if self._is_closed:
                raise ShuttingDownError("the service stops; ask again when it is back")
            self._asked.put(asked)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            self._do(batch)

    def _next(self) -> "list[_Asked[PreparedT, DoneT]] | None":
        item = self._asked.get()
        if item is _Word.END:
            return None
        batch: list[_Asked[PreparedT, DoneT]] = []
        while True:
            if isinstance(item, _Asked):
                batch.append(item)
            if len(batch) == _MOST:
                return batch
            try:
                item = self._asked.get_nowait()
            except queue.Empty:
                return batch
            if item is _Word.END:
                self._asked.put(item)
                return batch

    def _do(self, batch: "Sequence[_Asked[PreparedT, DoneT]]") -> None:
        asked: list[_Asked[PreparedT, DoneT]] = []
        ready: list[Prepared[PreparedT]] = []
        for each in batch:
            try:
                ready.append(Prepared(value=each.context.run(each.prepare), context=each.context))
                asked.append(each)
            except Exception as error:  # noqa: BLE001 - whoever asked gets it
                _tell([each], [error])
        done: Sequence[DoneT | Exception]
        try:
            done = self._finish(ready)
        except Exception as error:
            done = [error] * len(ready)
            if not ready:
                _logger.exception("%s: nobody asked for what failed", self._thread.name)
        _tell(asked, done)


def _tell(asked: Sequence[_Asked[PreparedT, DoneT]], done: Sequence[DoneT | Exception]) -> None:
    """Answer; each loop is woken once."""
    for loop in dict.fromkeys(each.loop for each in asked):
        answers = [(each.answer, of) for each, of in zip(asked, done, strict=True) if each.loop is loop]
        # One that has ended has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_answer, answers)


def _answer(answers: "Sequence[tuple[Future[DoneT], DoneT | Exception]]") -> None:
    for answer, done in answers:
        if answer.done():
            continue
        if isinstance(done, Exception):
            answer.set_exception(done)
        else:
            answer.set_result(done)
