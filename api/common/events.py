"""Events of one plan: written by the threads of the pool, awaited by the clients of the event loop."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

Value = str | float | int | None
_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]
MAX_EVENTS = 256
STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEvent:
    """One event; ids of a plan grow. `name` is `state`, `incumbent` or `bound`."""

    id: int
    name: str
    data: Mapping[str, Value]

    @property
    def document(self) -> dict[str, object]:
        """Its fields; what `dataclasses.asdict` copies takes as long as to store them."""
        return {"id": self.id, "name": self.name, "data": self.data}


class EventLog:
    """The events of one plan, at most `MAX_EVENTS`: beyond that the oldest progress is dropped, never a state.

    Ids count from above `last_id`.
    """

    def __init__(self, last_id: int = 0) -> None:
        self._lock = threading.Lock()
        self._events: list[PlanEvent] = []
        self._last_id = last_id
        self._closed = False
        self._waiting: set[_Waiter] = set()
        # For the end alone: what is published before does not wake them.
        self._waiting_for_end: set[_Waiter] = set()

    @property
    def closed(self) -> bool:
        """Whether the last event has been published."""
        return self._closed

    @classmethod
    def of_past(cls, events: Iterable[PlanEvent]) -> Self:
        """Log of a final plan."""
        log = cls()
        log._events = list(events)
        log._closed = True
        return log

    def publish(self, name: str, data: Mapping[str, Value]) -> None:
        """Add an event."""
        with self._lock:
            self._last_id += 1
            self._events.append(PlanEvent(id=self._last_id, name=name, data=data))
            if len(self._events) > MAX_EVENTS:
                oldest = next((k for k, event in enumerate(self._events) if event.name != STATE), 0)
                del self._events[oldest]
        self._wake()

    def extend(self, events: Iterable[PlanEvent]) -> None:
        """Add events that were published elsewhere, with the ids that they have there; those that are known are left
        out."""
        with self._lock:
            new = [event for event in events if event.id > self._last_id]
            self._events += new
            if new:
                self._last_id = new[-1].id
        self._wake()

    def go_on_above(self, event_id: int) -> None:
        """Give what is published from here on higher ids than this one."""
        with self._lock:
            self._last_id = max(self._last_id, event_id)

    def preview(self, name: str, data: Mapping[str, Value]) -> list[PlanEvent]:
        """All events as they will be once this one has been published."""
        with self._lock:
            return [*self._events, PlanEvent(id=self._last_id + 1, name=name, data=data)]

    def close(self) -> None:
        """Say that there will be no further event."""
        self._closed = True
        self._wake()

    @property
    def last_id(self) -> int:
        """Of the newest event, or below the first one."""
        return self._last_id

    def after(self, event_id: int) -> list[PlanEvent]:
        """Events with an id above `event_id`."""
        with self._lock:
            return [event for event in self._events if event.id > event_id]

    async def wait(self, event_id: int, timeout_s: float) -> None:
        """Return when there is an event above `event_id`, the log is closed, or the time is over."""
        await self._wait(self._waiting, lambda: self._closed or self._last_id > event_id, timeout_s)

    async def wait_closed(self, timeout_s: float) -> None:
        """Return when the log is closed or the time is over."""
        await self._wait(self._waiting_for_end, lambda: self._closed, timeout_s)

    async def _wait(self, waiting: set[_Waiter], is_over: Callable[[], bool], timeout_s: float) -> None:
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if is_over():
                return
            waiting.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter[1].wait()
        except TimeoutError:
            return
        finally:
            with self._lock:
                waiting.discard(waiter)

    def _wake(self) -> None:
        with self._lock:
            waiting = [*self._waiting, *(self._waiting_for_end if self._closed else ())]
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)
