"""Plans that this service has taken and has not read yet: of an earlier process, and of services that are gone."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from api.common.events import STATE, EventLog
from api.convert.reading import MalformedJsonError
from api.plans.reading import ReadPlan
from api.plans.sharing import one_thread
from api.schemas.plan import FailureDoc, PlanStatus
from api.store.database import Store
from api.store.records import LeftBehind
from stowplan.errors import InputError, Issue
from stowplan.records import from_document

# Ids of events of each epoch are above those of the one before.
EPOCH_EVENTS = 1_000_000_000
# A plan may be why the process goes down, when it does so often while a worker has begun with it.
_MOST_BEGUN_AGAIN = 3
_GIVEN_UP = FailureDoc(
    code="interrupted",
    detail=f"the service crashed {_MOST_BEGUN_AGAIN + 1} times before the plan was final; ask for it again, for less",
)
_logger = logging.getLogger("stowplan.api.plans.left_behind")


class LeftBehindPlan:
    """One of them, and what is asked of it meanwhile. Its events go on above those that clients may have seen."""

    def __init__(self, left: LeftBehind, events: EventLog | None) -> None:
        self.left = left
        self.events = events or EventLog()
        self.events.go_on_above((left.epoch - 1) * EPOCH_EVENTS)
        self.is_canceled = left.wants_end

    @property
    def times_begun_again(self) -> int:
        """Who waited elsewhere had not begun."""
        return self.left.times_begun_again + (self.left.times_taken_up > 0)


class LeftBehindPlans:
    """All of them, by id, which are read one after another.

    Parameters
    ----------
    reread
        Reads the request behind a plan as it is stored.
    go_on
        Goes on with a plan that was read, with what was said of its request.
    """

    def __init__(
        self,
        store: Store,
        reread: Callable[[str], Coroutine[Any, Any, ReadPlan]],
        go_on: Callable[[LeftBehindPlan, ReadPlan, tuple[Issue, ...]], None],
    ) -> None:
        self._store, self._reread, self._go_on = store, reread, go_on
        self._plans: dict[str, LeftBehindPlan] = {}
        self._thread = one_thread("take-up")
        self._is_closing = False

    def __len__(self) -> int:
        """How many are not read yet."""
        return len(self._plans)

    def get(self, plan_id: str) -> LeftBehindPlan | None:
        """One of them, until it was read."""
        return self._plans.get(plan_id)

    def add(self, left: LeftBehind, events: EventLog | None) -> None:
        """Know one, which can be asked for from here on; `events`: those by which it was followed."""
        self._plans[left.record.id] = LeftBehindPlan(left, events)

    def read(self, plan_id: str) -> None:
        """Read one when it has its turn, and go on with it."""
        self._thread.submit(self._take_up, plan_id)

    def begin_shutdown(self) -> None:
        """Read no more: they are left to the next process, or to another one."""
        self._is_closing = True

    def close(self) -> None:
        """End when what is being read is read."""
        self.begin_shutdown()
        self._thread.shutdown()
        for plan in self._plans.values():
            plan.events.close()

    def _take_up(self, plan_id: str) -> None:
        if self._is_closing:
            return
        plan = self._plans[plan_id]
        try:
            self._read_one(plan)
        except Exception:
            # It stays in the store for the next process, and keeps no other plan from its turn.
            _logger.exception("plan %s cannot be taken up", plan_id)
            plan.events.close()
        finally:
            del self._plans[plan_id]

    def _read_one(self, plan: LeftBehindPlan) -> None:
        id_ = plan.left.record.id
        if plan.left.times_begun_again >= _MOST_BEGUN_AGAIN:
            self._give_up(plan, _GIVEN_UP)
            return
        try:
            asked = asyncio.run(self._reread(id_))
        except (InputError, MalformedJsonError) as error:
            detail = f"this version cannot go on with the plan: {error}"
            self._give_up(plan, FailureDoc(code="interrupted", detail=detail))
            return
        told = json.loads(self._store.plan_notes(id_) or "[]")
        filled_in = (from_document(Issue, note, "note") for note in told)
        self._go_on(plan, asked, (*filled_in, *asked.notes))

    def _give_up(self, plan: LeftBehindPlan, failure: FailureDoc) -> None:
        record = replace(
            plan.left.record,
            status=PlanStatus.INTERRUPTED,
            finished_at_s=time.time(),
            failure=failure.model_dump_json(),
        )
        state = {"status": record.status.value}
        told = json.dumps([event.document for event in plan.events.preview(STATE, state)])
        if self._store.finish_plan(record, told, plan.left.epoch):
            plan.events.publish(STATE, state)
        plan.events.close()
