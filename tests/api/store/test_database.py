"""The database: what it keeps, and what it refuses."""

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from sqlalchemy import Connection, insert, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from api.common.errors import IdempotencyConflictError, StoreError, StoreUnavailableError
from api.schemas.plan import PlanStatus
from api.store.database import Store
from api.store.dialects.frequent import Frequent
from api.store.leases import Leases, Others
from api.store.records import NewPlan, PlanRecord, SnapshotRecord
from api.store.tables import BODIES, POSTED, RUNS
from api.store.texts import Body, PlanInput
from solver.pool import QueueFullError
from stowplan.errors import InputError

PAGE = 4096
RECORD = PlanRecord(
    id="plan-1",
    policy="sia",
    status=PlanStatus.QUEUED,
    queued_at_s=1.5,
    version="1",
    input_hash="sha256:0",
    options="{}",
    timings="{}",
    idempotency_key="key",
)
ASKED = PlanInput(rest='{"policy":"sia"}', snapshot=Body.of('{"jobs":[]}'))


def _new(id_: str, asked: PlanInput = ASKED, **changes: Any) -> NewPlan:
    return NewPlan(record=replace(RECORD, id=id_, idempotency_key=None, **changes), asked=asked)


def test_a_plan_is_kept_changed_and_deleted(location: Path | str | None) -> None:
    store = Store(location)
    store.add_plan(RECORD, ASKED)
    assert store.plan("plan-1") == replace(RECORD, sequence=1)
    again = NewPlan(record=replace(RECORD, id="plan-2"), asked=ASKED)
    assert store.add_plans([again], lambda *_: None) == ["plan-1"]
    with pytest.raises(IdempotencyConflictError):
        store.add_plans([replace(again, posted_hash="another")], lambda *_: None)
    assert store.plan_input("plan-1") == '{"policy":"sia","snapshot":{"jobs":[]}}'
    final = replace(RECORD, status=PlanStatus.SUCCEEDED, objective=2.5, outcome="{}", finished_at_s=3.0)
    assert store.finish_plan(final, "[]")
    assert store.plan("plan-1") == replace(final, sequence=1)
    assert store.plan_events("plan-1") == "[]"
    assert store.take_up_plans() == []
    assert store.delete_plan("plan-1")
    assert not store.delete_plan("plan-1")
    assert not store.finish_plan(final, "[]")
    assert store.plan("plan-1") is None
    assert store.plan_input("plan-1") is None
    store.close()


def test_unfinished_plans_are_taken_up_after_a_restart(lasting: Path | str) -> None:
    store = Store(lasting)
    for k, status in enumerate(PlanStatus):
        store.add_plan(replace(RECORD, id=f"plan-{status}", status=status, idempotency_key=f"{k}"), ASKED)
    active = [status for status in PlanStatus if not status.final]
    for times in (1, 2, 3):
        store.close()
        store = Store(lasting)
        taken = store.take_up_plans()
        assert [left.record for left in taken] == [store.plan(f"plan-{name}") for name in active]
        assert {left.times_taken_up for left in taken} == {times}
        # A worker begins with the first one only.
        assert [left.times_begun_again for left in taken] == [times - 1, *[0] * (len(active) - 1)]
        assert Leases(store).begin(taken[0].record.id, taken[0].epoch, times)
    Leases(store).let_go()
    assert {(left.times_taken_up, left.times_begun_again) for left in store.take_up_plans()} == {(1, 0)}
    for left in taken:
        assert store.finish_plan(replace(left.record, status=PlanStatus.SUCCEEDED), "[]")
    assert store.take_up_plans() == []
    store.close()


def test_pages_go_from_new_to_old(location: Path | str | None) -> None:
    store = Store(location)
    for k in range(5):
        status = PlanStatus.FAILED if k % 2 else PlanStatus.SUCCEEDED
        store.add_plan(replace(RECORD, id=f"plan-{k}", status=status, idempotency_key=None), ASKED)
    assert [plan.id for plan in store.plans(2, None, [])] == ["plan-4", "plan-3"]
    assert [plan.id for plan in store.plans(9, 4, [])] == ["plan-2", "plan-1", "plan-0"]
    assert [plan.id for plan in store.plans(9, None, [PlanStatus.FAILED])] == ["plan-3", "plan-1"]
    store.close()


def test_a_snapshot_is_stored_once(location: Path | str | None) -> None:
    store = Store(location)
    record = SnapshotRecord(id="snapshot-1", created_at_s=1.0, document=Body.of("{}"))
    assert store.add_snapshot(record)
    assert not store.add_snapshot(replace(record, created_at_s=2.0))
    assert store.snapshot("snapshot-1") == record
    assert store.snapshot("snapshot-2") is None
    store.close()


def test_equal_snapshots_are_stored_once_and_as_long_as_somebody_has_them(location: Path | str | None) -> None:
    with closing(Store(location)) as store:
        for k in range(3):
            store.add_plan(replace(RECORD, id=f"plan-{k}", idempotency_key=None), ASKED)
        store.add_snapshot(SnapshotRecord(id="snapshot-1", created_at_s=1.0, document=ASKED.snapshot))
        other = PlanInput(rest="{}", snapshot=Body.of("[]"))
        store.add_plan(replace(RECORD, id="plan-3", idempotency_key=None), other)
        assert _bodies(store) == {ASKED.snapshot.hash, other.snapshot.hash}
        for k in range(4):
            assert store.delete_plan(f"plan-{k}")
        assert _bodies(store) == {ASKED.snapshot.hash}
        snapshot = store.snapshot("snapshot-1")
        assert snapshot is not None
        assert snapshot.document.text == ASKED.snapshot.text


def _bodies(store: Store) -> set[str]:
    with store.reading() as connection:
        return set(connection.scalars(select(BODIES.c.hash)))


@pytest.mark.slow
def test_many_threads_write_and_read(location: Path | str | None) -> None:
    store = Store(location)

    def work(k: int) -> None:
        for j in range(10):
            record = replace(RECORD, id=f"plan-{k}-{j}", idempotency_key=None)
            store.add_plan(record, ASKED)
            assert store.plan(record.id) is not None
            store.finish_plan(replace(record, status=PlanStatus.SUCCEEDED), "[]")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.plans(500, None, [PlanStatus.SUCCEEDED])) == 80
    store.close()


def test_one_process_owns_a_database(tmp_path: Path) -> None:
    store = Store(tmp_path / "plans.sqlite")
    with pytest.raises(StoreError, match="in use by another process"):
        Store(tmp_path / "plans.sqlite")
    # Under another name, and without what lies beside it, it is the same database.
    (tmp_path / "link.sqlite").hardlink_to(tmp_path / "plans.sqlite")
    (tmp_path / "plans.sqlite.lock").unlink(missing_ok=True)
    for name in ("plans.sqlite", "link.sqlite"):
        with pytest.raises(StoreError, match="in use by another process"):
            Store(tmp_path / name)
    store.close()
    Store(tmp_path / "plans.sqlite").close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_goes_away_is_noticed(tmp_path: Path, suffix: str, is_replaced: bool) -> None:
    store = Store(tmp_path / "plans.sqlite")
    store.add_plan(RECORD, ASKED)
    assert store.trouble is None
    file, away = tmp_path / f"plans.sqlite{suffix}", tmp_path / "away"
    file.rename(away)
    if is_replaced:
        file.touch()
    # Reading, too: what it finds is in nobody's file.
    for ask in (store.ping, lambda: store.plan("plan-1"), lambda: store.delete_plan("plan-1")):
        with pytest.raises(StoreError, match=f"plans.sqlite{suffix} was removed or replaced.*`stowplan backup`"):
            ask()
    away.rename(file)
    assert store.plan("plan-1") is not None
    store.close()


def test_a_file_that_goes_away_while_it_is_written_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path / "plans.sqlite")
    with pytest.raises(StoreError, match="was removed or replaced"), store.writing():
        (tmp_path / "plans.sqlite").unlink()
    store.close()


def test_a_full_disk_is_said_clearly(tmp_path: Path) -> None:
    store = Store(tmp_path / "plans.sqlite")
    with store.writing() as connection:
        connection.execute(text("PRAGMA max_page_count = 30"))
    with pytest.raises(StoreError, match="cannot be written: database or disk is full; make room on its disk"):
        store.add_plan(RECORD, _large(0, 200_000))
    assert store.plan("plan-1") is None
    store.add_plan(RECORD, ASKED)
    store.close()


def _large(k: int, num_bytes: int) -> PlanInput:
    """Text that cannot be compressed by much more than half."""
    text = Random(k).randbytes(num_bytes).hex()  # noqa: S311 - reproducible, no secret
    return PlanInput(rest='{"policy":"sia"}', snapshot=Body.of(text))


def filled(path: Path) -> bytes:
    """Content of a database of several hundred pages."""
    store = Store(path)
    for k in range(50):
        store.add_plan(replace(RECORD, id=f"plan-{k}", idempotency_key=None), _large(k, 20_000))
    store.close()
    return path.read_bytes()


def overwritten(content: bytes) -> bytes:
    """The same with a page in the middle that is none."""
    middle = len(content) // 2 // PAGE * PAGE
    return content[:middle] + b"\xff" * PAGE + content[middle + PAGE :]


@pytest.mark.parametrize(
    ("damaged", "says"),
    [
        (overwritten, "is damaged: "),
        (lambda content: content[: len(content) // 2], "database disk image is malformed"),
        (lambda content: b"\xff" * 100 + content[100:], "file is not a database"),
    ],
)
def test_damage_is_said_at_start_with_what_can_be_done(
    tmp_path: Path, damaged: Callable[[bytes], bytes], says: str
) -> None:
    path = tmp_path / "plans.sqlite"
    path.write_bytes(damaged(filled(path)))
    with pytest.raises(StoreError, match=rf"{says}.*`stowplan backup`.*\.recover"):
        Store(path)


@pytest.mark.slow
def test_a_large_database_does_not_delay_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "plans.sqlite")
    with store.writing() as connection:
        # So many that the look takes many times its limit: on a busy machine that is noticed late.
        numbers = "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 3000000) SELECT k FROM n"
        connection.execute(text("CREATE TABLE large AS " + numbers))
    store.close()
    monkeypatch.setattr("api.store.dialects.damage._LOOK_S", 0.01)
    with closing(Store(tmp_path / "plans.sqlite")) as store:
        store.add_plan(RECORD, ASKED)
        assert "too large to be looked at as a whole" in caplog.text


def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.sqlite")
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="belongs to another program"):
        Store(tmp_path / "other.sqlite")


@pytest.mark.parametrize("content", [b"no database " * 100])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(StoreError, match="file is not a database"):
        Store(tmp_path / "text")


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written: No such file or directory"):
        Store(tmp_path / "missing" / "plans.sqlite")
    with pytest.raises(StoreError, match="cannot be written"):
        Store(tmp_path)


def test_plans_that_come_together_are_admitted_refused_and_known_each_by_itself(location: Path | str | None) -> None:
    def group(id_: str, key: str | None, posted: str | None = None) -> list[NewPlan]:
        return [NewPlan(record=replace(RECORD, id=id_, idempotency_key=key), asked=ASKED, posted_hash=posted)]

    def three(num_new: int, others: Others) -> None:
        if others.active.total() + num_new > 3:
            raise QueueFullError("full")

    asked = (
        group("plan-1", "a"),
        group("plan-2", None),
        group("plan-3", "a"),
        group("plan-4", "a", "another"),
        group("plan-5", None),
        group("plan-6", None),
    )
    with closing(Store(location)) as store:
        found = store.add_each([(new, copy_context()) for new in asked], three)
        assert found[:3] == [["plan-1"], ["plan-2"], ["plan-1"]]
        assert isinstance(found[3], IdempotencyConflictError)
        assert found[4] == ["plan-5"]
        assert isinstance(found[5], QueueFullError)
        assert [store.plan(f"plan-{k}") is not None for k in range(1, 7)] == [True, True, False, False, True, False]
        failed = replace(RECORD, status=PlanStatus.FAILED, idempotency_key=None)
        ends = [(replace(failed, id=id_), "[]", 1) for id_ in ("plan-1", "plan-3", "plan-2")]
        assert store.finish_plans(ends) == [True, False, True]
        assert store.finish_plans(ends) == [False, False, False]
        statuses = {record.id: record.status for record in store.plans(9, None, [])}
        assert statuses == {
            "plan-1": PlanStatus.FAILED,
            "plan-2": PlanStatus.FAILED,
            "plan-5": PlanStatus.QUEUED,
        }


def test_what_was_posted_is_kept_where_a_key_may_ask_for_it_again(location: Path | str | None) -> None:
    keyed = NewPlan(record=RECORD, asked=ASKED, posted_hash="as posted")
    with closing(Store(location)) as store:
        assert store.add_plans([keyed, replace(_new("plan-2"), posted_hash="as posted")], lambda *_: None)
        with store.reading() as connection:
            assert connection.execute(select(POSTED)).all() == [("plan-1", "as posted")]
        again = replace(keyed, record=replace(RECORD, id="plan-3", input_hash="filled in otherwise"))
        assert store.add_plans([again], lambda *_: None) == ["plan-1"]


@pytest.mark.parametrize(("version", "kind"), [(None, StoreError), ("\ud800", UnicodeEncodeError)])
def test_a_plan_that_the_database_does_not_take_keeps_none_from_being_stored(
    location: Path | str | None, version: Any, kind: type[Exception]
) -> None:
    asked = [[_new("plan-1")], [_new("plan-2", version=version)], [_new("plan-3")]]
    with closing(Store(location)) as store:
        first, refused, last = store.add_each([(new, copy_context()) for new in asked], lambda *_: None)
        assert (first, last) == (["plan-1"], ["plan-3"])
        assert isinstance(refused, kind)
        assert {record.id for record in store.plans(9, None, [])} == {"plan-1", "plan-3"}


def test_a_plan_that_is_larger_than_the_room_left_keeps_none_from_being_stored(tmp_path: Path) -> None:
    large = PlanInput(rest="{}", snapshot=Body.of(Random(0).randbytes(200_000).hex()))  # noqa: S311 - what cannot be made smaller
    with closing(Store(tmp_path / "plans.sqlite")) as store:
        with store.writing() as connection:
            num_pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {num_pages + 2}")
        asked = [_new("plan-1"), _new("plan-2", large), _new("plan-3")]
        first, refused, last = store.add_each([([new], copy_context()) for new in asked], lambda *_: None)
        assert (first, last) == (["plan-1"], ["plan-3"])
        assert isinstance(refused, StoreError)
        assert "full" in str(refused)


@pytest.mark.parametrize("num_before", [0, 1])
def test_plans_wait_once_for_a_database_that_takes_none(
    num_before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program begins to write before them, or when one is odd and they are tried one by one."""

    def transaction() -> AbstractContextManager[Connection]:
        if len(begun) == num_before:
            other.execute("BEGIN IMMEDIATE")
        begun.append(None)
        return begin()

    begun: list[None] = []
    asked = [_new("plan-0", version=None), *(_new(f"plan-{k}") for k in range(1, 4))]
    path = tmp_path / "plans.sqlite"
    with closing(Store(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        with store.writing() as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout = 1")
        begin = store._dialect.transaction
        monkeypatch.setattr(store._dialect, "transaction", transaction)
        found = store.add_each([([new], copy_context()) for new in asked], lambda *_: None)
        assert [type(each) for each in found] == [StoreUnavailableError] * 4
        assert len(begun) == num_before + 1


def test_a_frequent_statement_is_for_the_same_values_every_time() -> None:
    statement = Frequent(insert(BODIES))
    values = {"hash": "a", "num_bytes": 1, "data": b"a"}
    with closing(Store(None)) as store, store.writing() as connection:
        assert statement.change(connection, values) == 1
        with pytest.raises(ValueError, match="is for values of"):
            statement.change(connection, {"hash": "b", "num_bytes": 1})
        with pytest.raises(ValueError, match="made in Python"):
            Frequent(insert(RUNS)).change(connection, {"job_id": "a", "launch": 1})


def _take_at_most(connection: Connection, num_bytes: int) -> None:
    """Longer texts and rows are refused."""
    driver = cast("sqlite3.Connection", connection.connection.driver_connection)
    driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, num_bytes)


@pytest.mark.parametrize(
    ("values", "error"),
    [({"data": bytes(2000)}, DataError), ({"num_bytes": None, "data": b""}, IntegrityError)],
)
def test_errors_of_a_frequent_statement_are_those_of_sqlalchemy(
    values: dict[str, object], error: type[DBAPIError]
) -> None:
    statement, values = insert(BODIES), {"hash": "a", "num_bytes": 1, **values}
    with closing(Store(None)) as store, store.writing() as connection:
        _take_at_most(connection, 1000)
        with pytest.raises(error) as usual:
            connection.execute(statement, values)
        with pytest.raises(error) as frequent:
            Frequent(statement).change(connection, values)
        assert type(frequent.value) is type(usual.value) is error


def test_an_end_that_the_database_cannot_hold_is_told_from_one_that_it_does_not_take_now() -> None:
    with closing(Store(None)) as store:
        store.add_plan(RECORD, ASKED)
        with store.writing() as connection:
            _take_at_most(connection, 5000)
        with pytest.raises(InputError, match="too big"):
            store.finish_plan(replace(RECORD, outcome=os.urandom(9000).hex()), "[]")
