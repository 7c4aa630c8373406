"""Several services on one PostgreSQL: whoever is asked answers, and of every plan one end is written."""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from unittest.mock import Mock

import httpx
import pytest
from sqlalchemy import text

from api.app import create_app
from api.common.errors import StoreError
from api.common.settings import Settings
from api.plans import planning, sharing
from api.schemas.plan import PlanStatus
from api.store import leases
from api.store.database import Store
from api.store.dialects.statements import tell
from api.store.forecasters import ForecasterStore
from api.store.leases import Leases, live
from api.store.records import NewPlan, SnapshotRecord
from api.store.replays import ReplayStore
from api.store.texts import Body, PlanInput
from solver.pool import WorkerPool
from tests.api import tasks
from tests.api.asking import events_of, post, until, waited
from tests.api.plans.test_run import WorksAs, canceled, started, works_as
from tests.api.postgresql import Server
from tests.api.requests import sia_request
from tests.api.serving import serving
from tests.api.store.test_database import ASKED, RECORD
from tests.growth import work
from tests.waiting import eventually

__all__ = ["works_as"]
DONE = replace(RECORD, status=PlanStatus.SUCCEEDED, outcome="{}")


@pytest.fixture
def url(postgresql: Server) -> str:
    return postgresql.database()


@pytest.fixture
def stores(url: str) -> Iterator[tuple[Store, Store]]:
    with closing(Store(url)) as one, closing(Store(url)) as other:
        yield one, other


@pytest.fixture
def clients(url: str, pool: WorkerPool) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Two services, with room for two plans each."""
    settings = Settings(database=url, shutdown_s=1.0, workers=1, queue_size=1)
    with ExitStack() as stack:
        one, other = (stack.enter_context(serving(create_app(settings, pool=pool))) for _ in range(2))
        yield one, other


def lives(store: Store) -> None:
    with store.writing() as connection:
        live(connection, store, 2)


def dies(store: Store) -> None:
    """Its last sign of life is long ago, by the clock of the database."""
    with store.writing() as connection:
        silent = "UPDATE instances SET seen_at_s = seen_at_s - 11 WHERE id = :id"
        connection.execute(text(silent), {"id": store.owner})


def waits(store: Store) -> None:
    """All plans have waited for long."""
    with store.writing() as connection:
        connection.execute(text("UPDATE leases SET since_s = since_s - 2"))


def test_who_lives_keeps_its_plans_and_who_does_not_loses_them_with_their_ends(stores: tuple[Store, Store]) -> None:
    one, other = stores
    lives(one)
    one.add_plan(RECORD, ASKED)
    assert other.take_up_plans() == []
    assert not other.finish_plan(DONE, "[]", 1)
    dies(one)
    (left,) = other.take_up_plans()
    assert (left.epoch, left.times_taken_up, left.record.id) == (2, 1, "plan-1")
    # It was only slow: what it has found is refused, and nothing of it is written.
    assert not Leases(one).begin("plan-1", 1, 0)
    assert not one.finish_plan(replace(DONE, outcome='{"of":"one"}'), "[]", 1)
    assert other.finish_plan(replace(DONE, outcome='{"of":"other"}'), "[]", 2)
    assert not other.finish_plan(DONE, "[]", 2)
    found = one.plan("plan-1")
    assert found is not None
    assert found.outcome == '{"of":"other"}'


def test_an_own_plan_that_was_taken_and_came_back_has_another_epoch(stores: tuple[Store, Store]) -> None:
    one, other = stores
    one.add_plan(RECORD, ASKED)
    assert other.take_up_plans()[0].epoch == 2
    assert one.take_up_plans()[0].epoch == 3
    assert not one.finish_plan(DONE, "[]", 1)
    assert one.finish_plan(DONE, "[]", 3)


def test_what_waits_is_taken_in_turn_and_what_has_begun_stays(stores: tuple[Store, Store]) -> None:
    one, other = stores
    lives(one)
    for k in range(3):
        one.add_plan(replace(RECORD, id=f"plan-{k}", idempotency_key=None), ASKED)
    with one.writing() as connection:
        connection.execute(text("UPDATE leases SET due_s = CASE resource_id WHEN 'plan-2' THEN 1 ELSE 2 END"))
    assert Leases(one).begin("plan-0", 1, 0)
    assert other.take_waiting_plans(9) == []
    waits(one)
    assert [left.record.id for left in other.take_waiting_plans(1)] == ["plan-2"]
    waits(one)
    assert [left.record.id for left in other.take_waiting_plans(9)] == ["plan-1"]
    assert {id_: held.epoch for id_, held in Leases(one).held().items()} == {"plan-0": 1}


def test_to_look_for_what_nobody_has_keeps_nobody_from_writing(stores: tuple[Store, Store]) -> None:
    one, other = stores
    lives(one)
    one.add_plan(RECORD, ASKED)
    one.add_comparison("comparison-1", "{}")
    with one.writing():
        assert other.take_up_plans() == other.take_waiting_plans(9) == []
        assert not [*other.take_up_comparisons(), *ReplayStore(other).take_up(), *ForecasterStore(other).take_up()]
    dies(one)
    assert other.take_up_comparisons() == ["{}"]


def test_a_look_is_no_more_work_the_more_plans_have_ended(stores: tuple[Store, Store]) -> None:
    one, other = stores
    lives(one)
    one.add_plan(replace(RECORD, id="plan-runs", idempotency_key=None), ASKED)
    assert Leases(one).begin("plan-runs", 1, 0)

    def look() -> None:
        assert Leases(one).num_living() == 1
        assert Leases(one).held().keys() == {"plan-runs"}
        for store in stores:
            assert not [*store.take_up_plans(), *store.take_waiting_plans(9), *store.take_up_comparisons()]

    counted = []
    for num_ended in (1, 40):
        for k in range(num_ended):
            id_ = f"plan-{num_ended}-{k}"
            other.add_plan(replace(RECORD, id=id_, idempotency_key=None), ASKED)
            assert other.finish_plan(replace(DONE, id=id_, idempotency_key=None), "[]", 1)
        look()
        counted.append(work(look))
        with one.reading() as connection:
            # All that the statements of a look read.
            assert connection.scalar(text("SELECT count(*) FROM leases")) == 1
    # SQLAlchemy remembers statements, and how it made them.
    assert counted[1] < 1.1 * counted[0]


def test_who_hears_much_says_no_more_often_that_it_lives(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = stores
    said, heard = Mock(side_effect=live), set[str]()
    monkeypatch.setattr(sharing, "live", said)
    plans = Mock(running=dict, num_wanted=lambda: 0, is_known=lambda word: heard.add(word))
    shares = sharing.Sharing(one, plans, 2, lambda _: None)
    shares.start()
    try:
        eventually(lambda: said.call_count >= 2)
        begun_s, before = time.monotonic(), said.call_count
        for k in range(40):
            with other.writing() as connection:
                tell(connection, other.owner, f"plan-{k}")
        eventually(lambda: len(heard) == 40)
        assert said.call_count - before <= 1 + (time.monotonic() - begun_s) / sharing.LOOK_S
    finally:
        shares.close()


def test_bodies_that_one_forgets_while_another_keeps_them_stay(stores: tuple[Store, Store]) -> None:
    """Content-addressed: each round one deletes the last plan of a text while the other stores the same text."""
    one, other = stores
    for k in range(20):
        asked = PlanInput(rest="{}", snapshot=Body.of(f'"{k}"'))
        one.add_plan(replace(RECORD, id=f"old-{k}", idempotency_key=None), asked)
        barrier = threading.Barrier(2)

        def delete(id_: str = f"old-{k}", barrier: threading.Barrier = barrier) -> None:
            barrier.wait(30)
            one.delete_plan(id_)

        def keep(k: int = k, asked: PlanInput = asked, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(30)
            other.add_snapshot(SnapshotRecord(id=f"snapshot-{k}", created_at_s=1.0, document=asked.snapshot))

        with ThreadPoolExecutor(2) as threads:
            for future in [threads.submit(delete), threads.submit(keep)]:
                future.result(30)
        found = one.snapshot(f"snapshot-{k}")
        assert found is not None
        assert found.document.text == f'"{k}"'


def test_a_key_gives_one_plan_whoever_is_asked(stores: tuple[Store, Store]) -> None:
    def add(k: int) -> list[str]:
        new = NewPlan(record=replace(RECORD, id=f"plan-{k}"), asked=ASKED)
        return stores[k % 2].add_plans([new], lambda *_: None)

    with ThreadPoolExecutor(8) as threads:
        found = [id_ for ids in threads.map(add, range(16)) for id_ in ids]
    assert len(set(found)) == 1
    assert len(stores[0].plans(99, None, [])) == 1


def test_one_end_is_written_while_services_fall_silent_and_connections_go(url: str, postgresql: Server) -> None:
    """Three that take over what silent ones had, on a server that ends their sessions; what they end they were given a
    turn ago, and it may be another one's by now."""
    plans = [f"plan-{k}" for k in range(12)]
    over = threading.Event()

    def serve(number: int, store: Store) -> list[str]:
        ended, mine = [], dict.fromkeys(plans, 1) if number == 0 else {}
        for turn in itertools.count(number):
            if over.is_set():
                break
            with suppress(StoreError):
                (lives if turn % 3 else dies)(store)
                left = store.take_up_plans()
                for id_, epoch in mine.items():
                    done = replace(DONE, id=id_, version=f"{number}", idempotency_key=None)
                    if turn % 2 and store.finish_plan(done, "[]", epoch):
                        ended.append(f"{id_} {number}")
                mine = (mine if turn % 2 == 0 else {}) | {each.record.id: each.epoch for each in left}
        return ended

    with ExitStack() as stack:
        stores = [stack.enter_context(closing(Store(url))) for _ in range(3)]
        for id_ in plans:
            stores[0].add_plan(replace(RECORD, id=id_, idempotency_key=None), ASKED)

        def num_ended() -> int:
            postgresql.cut(url)
            with suppress(StoreError):
                return len(stores[0].plans(99, None, [PlanStatus.SUCCEEDED]))
            return 0

        with ThreadPoolExecutor(3) as threads:
            served = [threads.submit(serve, k, store) for k, store in enumerate(stores)]
            try:
                eventually(num_ended, lambda count: count == len(plans))
            finally:
                over.set()
            ended = [each for future in served for each in future.result(30)]
        assert sorted(ended) == sorted(f"{plan.id} {plan.version}" for plan in stores[0].plans(99, None, []))


def test_any_service_answers_follows_and_cancels(clients: tuple[httpx.Client, httpx.Client], works_as: WorksAs) -> None:
    one, other = clients
    works_as(tasks.improving_task)
    plan = started(one, sia_request())
    path = plan["links"]["self"]
    until(other, path, lambda seen: seen["status"] == "solving")
    with ThreadPoolExecutor(1) as thread:
        followed = thread.submit(events_of, other, plan)
        final = canceled(other, plan)
        seen = followed.result(60)
    assert (final["status"], final["verified"]) == ("canceled", True)
    assert one.get(path).json() == final
    # What is told there is what is told here, with the same ids.
    assert seen == events_of(one, plan)
    assert "incumbent" in {name for _, name, _ in seen}


def test_keys_and_limits_hold_across_services(clients: tuple[httpx.Client, httpx.Client], works_as: WorksAs) -> None:
    one, other = clients
    works_as(tasks.hanging_task)
    keyed = [post(client, "/v1/plans", sia_request(), Idempotency_Key="k").json()["id"] for client in (one, other)]
    assert keyed[0] == keyed[1]
    conflict = post(other, "/v1/plans", sia_request(options={"seed": 7}), Idempotency_Key="k")
    assert (conflict.status_code, conflict.json()["code"]) == (409, "idempotency_conflict")
    # Both have room for two; all of it may be asked of one.
    assert [post(one, "/v1/plans", sia_request()).status_code for _ in range(3)] == [202] * 3
    for client in clients:
        full = post(client, "/v1/plans", sia_request())
        assert (full.status_code, "4 plans run or wait" in full.json()["detail"]) == (429, True), full.text
    for plan in one.get("/v1/plans").json()["plans"]:
        canceled(other, plan)


def test_plans_of_a_service_that_stops_or_dies_go_on_in_another(
    url: str, pool: WorkerPool, works_as: WorksAs, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(database=url, shutdown_s=1.0)
    with serving(create_app(settings, pool=pool)) as other:
        works_as(tasks.hanging_task)
        with serving(create_app(settings, pool=pool)) as one:
            stops = started(one, sia_request())
            works_as(planning.planned)
        assert waited(other, other.get(stops["links"]["self"], headers={"Prefer": "wait=50"})).json()["verified"]
        # One that is gone without a word: nobody renews its row.
        monkeypatch.setattr(leases, "SILENT_S", 1.5)
        with closing(Store(url)) as gone:
            lives(gone)
            source = other.get(stops["links"]["input"]).text
            rest, _, snapshot = source[:-1].partition(',"snapshot":')
            asked = PlanInput(rest=f"{rest}}}", snapshot=Body.of(snapshot))
            known = gone.plan(stops["id"])
            assert known is not None
            record = replace(known, id="plan-left", status=PlanStatus.SOLVING, outcome=None, objective=None)
            gone.add_plan(record, asked)
        final = until(other, "/v1/plans/plan-left", lambda seen: seen["status"] == "succeeded")
        assert final["verified"]
        eventually(lambda: other.get("/healthz").status_code == 200)
