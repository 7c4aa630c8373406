"""What a service does for plans because others use its database as well.

It says that it lives, takes over what services had that do not, takes plans that wait elsewhere while it has nothing to
do, lets go of what another one has taken, stops what clients have asked others to cancel, writes down what its plans
tell on their way, and follows plans that run elsewhere. Notifications only make it faster: it looks by itself every
second. What decides is the lease in the database, never what is known here.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from api.common.errors import StoreError
from api.common.events import EventLog, PlanEvent
from api.plans.run import RunningPlan
from api.schemas.plan import PlanStatus
from api.store.database import Store
from api.store.leases import LOOK, Leases, live
from api.store.records import LeftBehind, PlanNews

# How often it looks at everything, and says that it lives.
LOOK_S = 1.0
# How often events are written, and what was told is read.
_NEWS_S = 0.2
# Between attempts to reach a database that is gone.
_AGAIN_S = 1.0
_logger = logging.getLogger("stowplan.api.plans.sharing")


class SharedPlans(Protocol):
    """The plans of this service. Called from one thread."""

    def running(self) -> dict[str, RunningPlan]:
        """Those that it has and has read."""

    def is_known(self, plan_id: str) -> bool:
        """Whether it has a plan, or is about to have it."""

    def take(self, left: Sequence[LeftBehind]) -> None:
        """Go on with plans that were taken; returns at once."""

    def lose(self, plan: RunningPlan) -> None:
        """Another service has taken a plan."""

    def num_wanted(self) -> int:
        """How many plans it could begin with now beside all that it has."""


class Sharing:
    """Threads that look after the plans of one service among several."""

    def __init__(self, store: Store, plans: SharedPlans, room: int, on_look: Callable[[Collection[str]], None]):
        """`room`: plans that this service has room for. `on_look` is told what others want it to end, every second."""
        self._store, self._plans, self._room, self._on_look = store, plans, room, on_look
        self._leases = Leases(store)
        self._lock = threading.Lock()
        self._followed: dict[str, EventLog] = {}
        self._told: set[str] = set()
        self._written: dict[tuple[str, int], tuple[int, PlanStatus]] = {}
        self._unknown: set[str] = set()
        self._look_at_s = 0.0
        self._is_failing = self._is_among_others = False
        self._closing = threading.Event()
        self._woken = threading.Event()
        with store.writing() as connection:
            live(connection, store, room)
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("listen", self._listen), ("share", self._share))
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End; what is followed is closed."""
        self._closing.set()
        self._woken.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for log in self._followed.values():
            log.close()

    def wake(self) -> None:
        """Look at everything now."""
        self._look_at_s = 0.0
        self._woken.set()

    def follow(self, plan_id: str, log: EventLog | None = None) -> EventLog:
        """Events of a plan that is not final, as another service tells them; `log` goes on where there is one."""
        with self._lock:
            found = self._followed.setdefault(plan_id, log or EventLog())
            self._told.add(plan_id)
        self._woken.set()
        return found

    def unfollow(self, plan_id: str) -> EventLog | None:
        """The log of a plan that was followed and is this service's now."""
        with self._lock:
            return self._followed.pop(plan_id, None)

    def _listen(self) -> None:
        """Say that this service lives, on a connection that waits for nobody, and hear what is told."""
        while not self._closing.is_set():
            try:
                with self._store.listening() as listener:
                    # What was told meanwhile was not heard.
                    self.wake()
                    said_at_s = -math.inf
                    while not self._closing.is_set():
                        # Once a second, however much is told.
                        if (since_s := time.monotonic() - said_at_s) >= LOOK_S:
                            live(listener.connection, self._store, self._room)
                            said_at_s, since_s = time.monotonic(), 0.0
                        self._hear(listener.heard(LOOK_S - since_s))
            except StoreError as error:
                _logger.warning("nothing is heard from other services: %s", error)
                self._closing.wait(_AGAIN_S)

    def _hear(self, told: list[str]) -> None:
        heard = [each.partition(" ") for each in told]
        words = [word for owner, _, word in heard if owner != self._store.owner]
        if not words:
            return
        with self._lock:
            mine = {word for word in words if word == LOOK or self._plans.is_known(word)}
            self._told.update(word for word in words if word in self._followed)
            is_news = bool(mine or self._told)
        if mine:
            self.wake()
        elif is_news:
            self._woken.set()

    def _share(self) -> None:
        while not self._closing.is_set():
            self._woken.wait(_NEWS_S)
            self._woken.clear()
            try:
                self._round()
                self._is_failing = False
            except StoreError as error:
                if not self._is_failing:
                    _logger.warning("plans are not shared: %s", error)
                self._is_failing = True
                self._closing.wait(_AGAIN_S)
            except Exception:
                _logger.exception("plans are not shared")
                self._closing.wait(_AGAIN_S)

    def _round(self) -> None:
        is_due = time.monotonic() >= self._look_at_s
        if is_due:
            self._look_at_s = time.monotonic() + LOOK_S
            self._look()
        if self._is_among_others:
            self._tell()
        with self._lock:
            told = set(self._followed) if is_due else self._told & set(self._followed)
            self._told.clear()
        for plan_id in told:
            self._read(plan_id, self._followed[plan_id])

    def _look(self) -> None:
        self._is_among_others = self._leases.num_living() > 1
        before = self._plans.running()
        held = self._leases.held()
        for plan_id, plan in before.items():
            known = held.get(plan_id)
            if known is None or known.epoch != plan.epoch:
                self._plans.lose(plan)
            elif known.wants_end:
                plan.stop(PlanStatus.CANCELED)
        self._on_look({id_ for id_, lease in held.items() if lease.wants_end})
        # What was accepted when the connection went away, so that nobody knew: seen twice, since it may be on its way.
        unknown = {id_ for id_ in held if id_.startswith("plan-") and not self._plans.is_known(id_)}
        left = self._store.take_up_plans(unknown & self._unknown)
        self._unknown = unknown
        if left:
            _logger.warning("%d plans of other services are taken over", len(left))
        if wanted := self._plans.num_wanted():
            left += self._store.take_waiting_plans(wanted)
        if left:
            self._plans.take(left)

    def _tell(self) -> None:
        """Write down what plans have told since it was done last."""
        news, written = [], {}
        for plan_id, plan in self._plans.running().items():
            key, record = (plan_id, plan.epoch), plan.record
            last_id, status = self._written.get(key, (0, PlanStatus.QUEUED))
            events = plan.events.after(last_id)
            written[key] = (events[-1].id if events else last_id, record.status)
            if (events or status is not record.status) and not record.status.final:
                times = {"building_at_s": record.building_at_s, "solving_at_s": record.solving_at_s}
                texts = {event.id: json.dumps(event.document) for event in events}
                news.append(PlanNews(plan_id=plan_id, epoch=plan.epoch, status=record.status, events=texts, **times))
        if news:
            self._store.tell_of_plans(news)
        self._written = written

    def _read(self, plan_id: str, log: EventLog) -> None:
        """Read what was told of a plan that another service has."""
        record = self._store.plan(plan_id)
        is_over = record is None or record.status.final
        texts = [] if is_over else self._store.told_of_plan(plan_id, log.last_id)
        events = [json.loads(text) for text in texts]
        if record is not None and is_over:
            events = json.loads(self._store.plan_events(plan_id) or "[]")
        if self._followed.get(plan_id) is not log:
            return
        log.extend(PlanEvent(**event) for event in events)
        if is_over:
            self.unfollow(plan_id)
            log.close()


def one_thread(name: str) -> ThreadPoolExecutor:
    """What is done one after another, beside everything else."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
