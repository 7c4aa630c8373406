"""Ends of plans that the database did not take: they are written when it does again."""

import logging
import threading
from collections.abc import Callable

from api.common.errors import StoreError
from api.store.database import PlanRecord, Store

_AGAIN_S = 1.0
_logger = logging.getLogger("stowplan.api.plans.unstored")


class UnstoredEnds:
    """Tries again every second, in the order in which plans ended, and a last time when it is closed.

    `on_answer` is called with the id of each plan, and whether its end is written: another service may have it by now.
    """

    def __init__(self, store: Store, on_answer: Callable[[str, bool], object]) -> None:
        self._store, self._on_answer = store, on_answer
        self._ends: list[tuple[PlanRecord, str, int]] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, record: PlanRecord, events: str, epoch: int) -> None:
        """Keep the final state of a plan and its events until they are written, under the lease of that epoch."""
        with self._lock:
            self._ends.append((record, events, epoch))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="unstored-ends", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Try a last time; what is not written then is planned again by the next process."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(_AGAIN_S)
            while self._ends and self._write(*self._ends[0]):
                with self._lock:
                    del self._ends[0]
        if self._ends:
            _logger.warning("the ends of %d plans are not stored: they are planned again", len(self._ends))

    def _write(self, record: PlanRecord, events: str, epoch: int) -> bool:
        try:
            is_stored = self._store.finish_plan(record, events, epoch)
        except StoreError:
            return False
        self._on_answer(record.id, is_stored)
        return True
