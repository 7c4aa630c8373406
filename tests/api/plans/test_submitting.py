"""Plans that are asked for at the same moment: what becomes of one, and of others that have to do with it."""

from contextlib import closing
from contextvars import copy_context
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.common.batches import Prepared
from api.common.events import EventLog
from api.common.metrics import Metrics
from api.common.settings import Settings
from api.plans.reading import ReadPlan
from api.plans.service import Plans
from api.plans.submission import Submission
from api.reading.requests import RequestReader
from api.store.database import Store
from api.store.records import NewPlan
from solver.pool import QueueFullError, WorkerPool
from tests.api.store.test_database import ASKED, RECORD


def test_a_plan_that_is_refused_is_refused_to_all_that_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def running_plan(*_: Any) -> SimpleNamespace:
        return SimpleNamespace(start=start, events=EventLog())

    def start(*, promised: bool) -> None:  # noqa: ARG001 - as the pool is asked
        if len(begun) == 0:
            begun.append("refused")
            raise QueueFullError("full")
        begun.append("taken")

    def asked_for(id_: str, key: str) -> Prepared[Submission]:
        read = cast("ReadPlan", SimpleNamespace(filled_in=(), notes=()))
        new = NewPlan(record=replace(RECORD, id=id_, idempotency_key=key), asked=ASKED)
        return Prepared(value=Submission(asked=read, new=new), context=copy_context())

    begun: list[str] = []
    pool = WorkerPool(1, 0)
    with closing(Store(None)) as store:
        plans = Plans(Settings(), store, pool, cast("RequestReader", None), Metrics(pool))
        monkeypatch.setattr(plans, "_running_plan", running_plan)
        asked = [asked_for("plan-1", "a"), asked_for("plan-2", "a"), asked_for("plan-3", "b"), asked_for("plan-4", "b")]
        first, same, other, known = plans._submit_together(asked)
        assert isinstance(first, QueueFullError)
        # It is not stored: its id would lead nowhere.
        assert same is first
        assert (other, known) == ("plan-3", "plan-3")
        assert begun == ["refused", "taken"]
        assert [record.id for record in store.plans(9, None, [])] == ["plan-3"]
        plans.close()
