"""Ends of plans that come at the same time: written at once, or one by one where the database takes them only so."""

from contextlib import closing
from dataclasses import replace
from typing import Any, cast

import pytest

from api.common import unstored
from api.common.errors import StoreError, StoreUnavailableError
from api.common.events import EventLog
from api.common.metrics import Metrics
from api.plans.ending import Endings
from api.plans.run import RunningPlan
from api.plans.termination import Termination
from api.plans.traces import NoTraces
from api.schemas.plan import FailureDoc, PlanStatus
from api.store.database import Store
from api.store.records import PlanRecord
from solver.pool import WorkerPool
from tests.api.store.test_database import ASKED, RECORD

TIMINGS = '{"accept_ms":1.0,"queue_ms":null,"phases_ms":{},"cpu_ms":null,"first_incumbent_ms":null,"total_ms":null}'
FAILED = Termination(status=PlanStatus.FAILED, failure=FailureDoc(code="internal_error", detail="no"))


class Ended:
    """What ends of a plan are made of."""

    def __init__(self, number: int) -> None:
        self.record = replace(RECORD, id=f"plan-{number}", idempotency_key=None, timings=TIMINGS)
        self.events, self.notes, self.queued_s, self.epoch, self.asked = EventLog(), (), 0.0, 1, None
        self.num_asked = 0
        self.is_odd = False

    def decide(self) -> bool:
        self.num_asked += 1
        if self.is_odd:
            raise ValueError("an odd plan")
        return self.num_asked == 1


@pytest.mark.parametrize("takes_many", [True, False])
def test_ends_that_come_together_are_all_stored_and_told(*, takes_many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []

    def finish_plans(ends: Any) -> list[bool]:
        together.append(len(ends))
        if not takes_many:
            raise StoreError("not all at once")
        return finish(ends)

    with closing(Store(None)) as store:
        finish = store.finish_plans
        monkeypatch.setattr(store, "finish_plans", finish_plans)
        plans = [Ended(k) for k in range(4)]
        for plan in plans:
            store.add_plan(plan.record, ASKED)
        running = cast("dict[str, RunningPlan]", {plan.record.id: plan for plan in plans})
        endings = Endings(store, Metrics(WorkerPool(1, 0)), NoTraces(), running, lambda *_: None)
        for plan in (*plans, plans[0]):
            endings.add(cast("RunningPlan", plan), FAILED)
        endings.close()
        assert together == [4]
        assert not running
        assert all(plan.events.closed for plan in plans)
        stored = [store.plan(plan.record.id) for plan in plans]
        assert [record and record.status for record in stored] == [PlanStatus.FAILED] * 4


def test_ends_wait_once_for_a_database_that_takes_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def finish_plans(_: Any) -> list[bool]:
        asked.append("all")
        raise StoreUnavailableError("another program writes")

    def finish_plan(record: PlanRecord, *more: Any) -> bool:
        asked.append(record.id)
        return finish(record, *more)

    # None is tried again before the end.
    monkeypatch.setattr(unstored, "_AGAIN_S", 3600.0)
    with closing(Store(None)) as store:
        finish = store.finish_plan
        monkeypatch.setattr(store, "finish_plans", finish_plans)
        monkeypatch.setattr(store, "finish_plan", finish_plan)
        plans = [Ended(k) for k in range(4)]
        for plan in plans:
            store.add_plan(plan.record, ASKED)
        running = cast("dict[str, RunningPlan]", {plan.record.id: plan for plan in plans})
        endings = Endings(store, Metrics(WorkerPool(1, 0)), NoTraces(), running, lambda *_: None)
        for plan in plans:
            endings.add(cast("RunningPlan", plan), FAILED)
        endings.finish(endings.take())
        # Who waits has the ends, which stay in memory until they are stored.
        assert asked == ["all"]
        assert caplog.messages == ["the ends of 4 plans cannot be stored yet: another program writes"]
        assert len(running) == 4
        assert all(plan.events.closed for plan in plans)
        endings.close()
        assert asked == ["all", *(plan.record.id for plan in plans)]
        assert not running


class OddTraces(NoTraces):
    """Traces that do not take the end of one plan."""

    def ended(self, asked: object, record: PlanRecord) -> None:  # noqa: ARG002 - as traces are told
        if record.id == "plan-1":
            raise RuntimeError("an odd trace")


@pytest.mark.parametrize("fault", ["plan", "traces", "database"])
def test_a_plan_that_does_not_end_as_it_should_keeps_none_from_its_end(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def finish_plan(record: PlanRecord, events: str, epoch: int | None = None) -> bool:
        if record.id == "plan-1":
            raise OverflowError("an odd number")
        return finish(record, events, epoch)

    def finish_plans(ends: Any) -> list[bool]:
        return [finish_plan(*end) for end in ends]

    with closing(Store(None)) as store:
        finish = store.finish_plan
        if fault == "database":
            monkeypatch.setattr(store, "finish_plan", finish_plan)
            monkeypatch.setattr(store, "finish_plans", finish_plans)
        plans = [Ended(k) for k in range(4)]
        plans[1].is_odd = fault == "plan"
        for plan in plans:
            store.add_plan(plan.record, ASKED)
        running = cast("dict[str, RunningPlan]", {plan.record.id: plan for plan in plans})
        traces = OddTraces() if fault == "traces" else NoTraces()
        endings = Endings(store, Metrics(WorkerPool(1, 0)), traces, running, lambda *_: None)
        for plan in plans:
            endings.add(cast("RunningPlan", plan), FAILED)
        endings.close()
        found = [store.plan(plan.record.id) for plan in plans]
        is_stored = [record is not None and record.status is PlanStatus.FAILED for record in found]
        assert is_stored == [True, fault == "traces", True, True]
        assert [plan.events.closed for plan in plans] == [True, fault != "plan", True, True]
        assert "plan plan-1 does not end as it should" in caplog.text
