"""Ends that the database did not take: in which order they are written, and when it is given up."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from api.common.errors import StoreError
from api.plans import unstored
from api.plans.unstored import UnstoredEnds
from api.schemas.plan import PlanStatus
from api.store.database import PlanRecord, Store
from tests.api.store.test_database import ASKED, RECORD
from tests.waiting import eventually


class Moody(Store):
    """A database that takes ends only when told so."""

    takes = False
    asked = 0

    def finish_plan(self, record: PlanRecord, events: str, epoch: int | None = None) -> bool:
        self.asked += 1
        if not self.takes:
            raise StoreError("not now")
        return super().finish_plan(record, events, epoch)


@contextmanager
def ended(on_answer: Callable[[str, bool], object]) -> Iterator[tuple[Moody, UnstoredEnds]]:
    """Three plans whose ends are not stored."""
    with closing(Moody(None)) as store:
        ends = UnstoredEnds(store, on_answer)
        for k in range(3):
            record = replace(RECORD, id=f"plan-{k}", idempotency_key=None)
            store.add_plan(record, ASKED)
            ends.add(replace(record, status=PlanStatus.SUCCEEDED), "[]", 1)
        yield store, ends


def statuses(store: Store) -> set[PlanStatus]:
    return {plan.status for plan in store.plans(9, None, [])}


def test_they_are_written_in_order_when_the_database_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstored, "_AGAIN_S", 0.01)
    stored: list[tuple[str, bool]] = []
    with ended(lambda id_, is_stored: stored.append((id_, is_stored))) as (store, ends):
        eventually(lambda: store.asked >= 3)
        assert statuses(store) == {PlanStatus.QUEUED}
        store.takes = True
        eventually(lambda: len(stored) == 3)
        assert stored == [(f"plan-{k}", True) for k in range(3)]
        assert statuses(store) == {PlanStatus.SUCCEEDED}
        ends.close()


@pytest.mark.parametrize("takes", [True, False])
def test_who_closes_tries_a_last_time(takes: bool, caplog: pytest.LogCaptureFixture) -> None:
    stored: list[tuple[str, bool]] = []
    with ended(lambda id_, is_stored: stored.append((id_, is_stored))) as (store, ends):
        store.takes = takes
        ends.close()
        assert len(stored) == (3 if takes else 0)
        assert ("the ends of 3 plans are not stored" in caplog.text) is not takes
