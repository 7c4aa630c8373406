"""Ends that the database did not take: they are written when it does again."""

import logging
import threading
from collections.abc import Callable

from api.common.errors import StoreError

_AGAIN_S = 1.0
_logger = logging.getLogger("stowplan.api.common.unstored")


class UnstoredEnds:
    """Tries again every second, in the order in which they came, and a last time when it is closed.

    Parameters
    ----------
    what
        Whose ends they are, as in `plans`.
    lost
        What becomes of those that are not written at the end, as in `they are planned again`.
    """

    def __init__(self, what: str, lost: str) -> None:
        self._what, self._lost = what, lost
        self._ends: list[tuple[str, Callable[[], object]]] = []
        # Held while one is written: who drops one knows then that nobody writes it any more.
        self._writing = threading.Lock()
        # Taken within `_writing`, and never for as long as the database takes.
        self._listing = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, id_: str, write: Callable[[], object]) -> None:
        """Write something of `id_` now, or as soon as the database takes it, behind what waits for the same id.

        `write` raises StoreError when the database does not take it, and may be called many times then.
        """
        with self._writing:
            with self._listing:
                is_first = not any(other == id_ for other, _ in self._ends)
            if is_first:
                try:
                    write()
                    return
                except StoreError:
                    _logger.exception("%s of %s cannot be stored yet", self._what, id_)
            self.keep(id_, write)

    def keep(self, id_: str, write: Callable[[], object]) -> None:
        """Do what `write` does, without trying now: the database has just taken nothing at all. Waits for no write."""
        with self._listing:
            self._ends.append((id_, write))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="unstored-ends", daemon=True)
                self._thread.start()

    def drop(self, id_: str) -> None:
        """Forget what waits for an id: it was deleted."""
        with self._writing, self._listing:
            self._ends = [end for end in self._ends if end[0] != id_]

    def close(self) -> None:
        """Try a last time."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(_AGAIN_S)
            while self._write_first():
                pass
        if self._ends:
            ids = {id_ for id_, _ in self._ends}
            _logger.warning("the ends of %d %s are not stored: %s", len(ids), self._what, self._lost)

    def _write_first(self) -> bool:
        """Whether the first one is written; False also when there is none."""
        with self._writing:
            if not self._ends:
                return False
            id_, write = self._ends[0]
            try:
                write()
            except StoreError:
                return False
            except Exception:
                # It will never be taken, and must not keep the others from their turn.
                _logger.exception("%s of %s cannot be stored", self._what, id_)
            with self._listing:
                # Others have come behind it at most.
                del self._ends[0]
            return True
