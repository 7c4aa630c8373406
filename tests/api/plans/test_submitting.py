"""Plans that are asked for at the same moment: what becomes of one, and of others that have to do with it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import copy_context
from dataclasses import replace
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import Connection

from api.common.batches import Prepared
from api.common.errors import StoreError, StoreUnavailableError
from api.common.events import EventLog
from api.common.metrics import Metrics
from api.common.settings import Settings
from api.plans.ending import Endings
from api.plans.reading import ReadPlan
from api.plans.run import RunningPlan
from api.plans.service import Plans
from api.plans.submission import Submission, Submissions, Submitted
from api.plans.traces import NoTraces
from api.reading.requests import RequestReader
from api.schemas.plan import PlanStatus
from api.store.database import Store
from api.store.records import NewPlan
from solver.pool import QueueFullError, WorkerPool
from tests.api.plans.test_ending import FAILED, Ended
from tests.api.store.test_database import ASKED, RECORD


def asked_for(id_: str, key: str) -> Prepared[Submission]:
    read = cast("ReadPlan", SimpleNamespace(filled_in=(), notes=()))
    new = NewPlan(record=replace(RECORD, id=id_, idempotency_key=key), asked=ASKED)
    return Prepared(value=Submission(asked=read, new=new), context=copy_context())


def test_a_plan_that_is_refused_is_refused_to_all_that_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def running_plan(*_: Any) -> SimpleNamespace:
        return SimpleNamespace(start=start, events=EventLog())

    def start(*, promised: bool) -> None:  # noqa: ARG001 - as the pool is asked
        if len(begun) == 0:
            begun.append("refused")
            raise QueueFullError("full")
        begun.append("taken")

    begun: list[str] = []
    pool = WorkerPool(1, 0)
    with closing(Store(None)) as store:
        plans = Plans(Settings(), store, pool, cast("RequestReader", None), Metrics(pool))
        monkeypatch.setattr(plans, "_running_plan", running_plan)
        asked = [asked_for("plan-1", "a"), asked_for("plan-2", "a"), asked_for("plan-3", "b"), asked_for("plan-4", "b")]
        first, same, other, known = plans._submissions._write(asked)
        assert isinstance(first, QueueFullError)
        # It is not stored: its id would lead nowhere.
        assert same is first
        assert (other, known) == (Submitted(id="plan-3"), Submitted(id="plan-3"))
        assert begun == ["refused", "taken"]
        assert [record.id for record in store.plans(9, None, [])] == ["plan-3"]
        plans.close()


@pytest.mark.parametrize(
    ("fault", "commits"), [(None, 1), (StoreUnavailableError("another program writes"), 0), (StoreError("odd"), 2)]
)
def test_plans_and_ends_that_come_together_are_written_together_if_the_database_takes_that(
    fault: StoreError | None, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_together(ends: Any, *more: Any) -> Any:
        if fault is not None and ends:
            raise fault
        return write(ends, *more)

    @contextmanager
    def writing() -> Iterator[Connection]:
        with transaction() as connection:
            yield connection
        written.append(None)

    written: list[None] = []
    begun: list[str] = []
    with closing(Store(None)) as store:
        ended = [Ended(k) for k in range(2)]
        for plan in ended:
            store.add_plan(plan.record, ASKED)
        running = cast("dict[str, RunningPlan]", {plan.record.id: plan for plan in ended})
        endings = Endings(store, Metrics(WorkerPool(1, 0)), NoTraces(), running, lambda *_: None)
        begin, running_plan = (lambda record, *_: begun.append(record.id)), cast("Any", None)
        submissions = Submissions(store, endings, Lock(), lambda *_: None, begin, running_plan)
        write, transaction = store.write_together, store.writing
        monkeypatch.setattr(store, "write_together", write_together)
        monkeypatch.setattr(store, "writing", writing)
        for plan in ended:
            endings.add(cast("RunningPlan", plan), FAILED)
        found = submissions._write([asked_for("plan-a", "a"), asked_for("plan-b", "b")])
        assert len(written) == commits
        is_unavailable = isinstance(fault, StoreUnavailableError)
        assert found == ([fault] * 2 if is_unavailable else [Submitted(id="plan-a"), Submitted(id="plan-b")])
        assert begun == ([] if is_unavailable else ["plan-a", "plan-b"])
        assert bool(running) is is_unavailable
        assert all(plan.events.closed for plan in ended)
        submissions.close()
        endings.close()
        assert not running
        assert [record.status for record in store.plans(9, None, [PlanStatus.FAILED])] == [PlanStatus.FAILED] * 2
