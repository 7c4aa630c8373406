"""Long work of which one piece has its turn at a time, beside the plans, while a few wait: comparisons, replays,
forecasters.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from starlette.concurrency import run_in_threadpool

from api.common.errors import KeyTakenError, ShuttingDownError
from api.common.events import EventLog
from api.common.unstored import UnstoredEnds
from solver.pool import QueueFullError

_POLL_S = 0.02
# At work that another service has.
_LOOK_S = 0.25


class Piece(Protocol):
    """Work that is not final yet. `future`: its turn."""

    events: EventLog
    future: Future[None] | None

    @property
    def document(self) -> Any:
        """What clients see of it; its `status` knows whether it is `final`."""

    def stop(self, status: Any) -> None:
        """Ask it to come back with what it has; the first status that it is asked with stays."""

    def kill(self) -> None:
        """End its processes at once."""


P = TypeVar("P", bound=Piece)


class Turns(Generic[P]):
    """Pieces by id, as long as they are not stored as final.

    Parameters
    ----------
    name
        What the pieces are called together, as in `comparisons`.
    num_waiting
        How many may wait beside the one that has its turn.
    run
        Does a piece, in a thread, until it is final.
    drop
        Makes a piece final that was stopped while it waited.
    """

    def __init__(self, name: str, num_waiting: int, run: Callable[[P], None], drop: Callable[[P], None]) -> None:
        self._num_waiting = num_waiting
        self._run = run
        self._drop = drop
        self._admission = threading.Lock()
        self._active: dict[str, P] = {}
        self._stopping = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._unstored = UnstoredEnds(name, "they end as interrupted when the service starts again")

    def get(self, id_: str) -> P | None:
        """The piece, while it is not final, or could not be stored."""
        return self._active.get(id_)

    def ids(self) -> list[str]:
        """Of all pieces that are here."""
        return list(self._active)

    def admit(self, id_: str, piece: P, known: Callable[[], str | None], keep: Callable[[], None]) -> str:
        """Keep a piece and queue it; returns its id, or that of the one which came of the same request.

        Parameters
        ----------
        known
            The id of what came of the same request, if anything did; may refuse, by raising.
        keep
            Stores it: what is answered for is never lost.

        Raises
        ------
        QueueFullError
            When too many wait.
        ShuttingDownError
            When the service stops.
        """
        with self._admission:
            found = known()
            if found is not None:
                return found
            if self._stopping:
                raise ShuttingDownError("the service stops; ask again when it is back")
            if len(self._active) > self._num_waiting:
                raise QueueFullError(f"{len(self._active)} run or wait, which is as many as this service takes")
            try:
                keep()
            except KeyTakenError:
                # Another service was asked at the same moment.
                return known() or id_
            self._active[id_] = piece
            piece.future = self._thread.submit(self._run, piece)
        return id_

    def stop(self, piece: P, status: Any) -> None:
        """Ask a piece to come back with what it has; one that waits never begins."""
        piece.stop(status)
        if piece.future is not None and piece.future.cancel():
            self._drop(piece)

    def cancel(self, id_: str, status: Any) -> P | None:
        """Stop a piece that is not final, and give it; None where it is."""
        piece = self._active.get(id_)
        if piece is None or piece.document.status.final:
            return None
        self.stop(piece, status)
        return piece

    def write(self, id_: str, write: Callable[[], object]) -> None:
        """Write a part of a piece to the store, now or when the database takes it; raises StoreError otherwise."""
        self._unstored.write(id_, write)

    def end(self, id_: str, write: Callable[[], object]) -> None:
        """Write the end of a piece as `write` does; until then it stays in memory, where clients find it."""

        def end() -> None:
            write()
            self._active.pop(id_, None)

        self._unstored.write(id_, end)

    def delete(self, id_: str, delete: Callable[[], bool]) -> bool:
        """Delete a final piece by `delete`, which says whether it was in the store."""
        # Nobody gets its id, which may be a name, before what waits to be written of it is forgotten.
        with self._admission:
            found = delete()
            self._unstored.drop(id_)
            self._active.pop(id_, None)
        return found

    async def wait(self, id_: str, timeout_s: float, look: Callable[[], Any]) -> None:
        """Return when the piece is final, or the time is over; `look` gives its document where it is elsewhere."""
        end_s = time.monotonic() + timeout_s
        while (piece := self._active.get(id_)) is None:
            if (await run_in_threadpool(look)).status.final or time.monotonic() >= end_s:
                return
            await asyncio.sleep(_LOOK_S)
        await piece.events.wait_closed(end_s - time.monotonic())

    def begin_shutdown(self, status: Any) -> None:
        """Take nothing new and ask what runs to come back with what it has."""
        with self._admission:
            self._stopping = True
        for piece in list(self._active.values()):
            self.stop(piece, status)

    def close(self, end_s: float) -> None:
        """End; what has not come back at `end_s` (monotonic clock) is killed."""
        while self._is_busy() and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        for piece in list(self._active.values()):
            piece.kill()
        self._thread.shutdown()
        self._unstored.close()

    def _is_busy(self) -> bool:
        return any(not piece.document.status.final for piece in list(self._active.values()))
