"""What is old goes, whole, and nothing else; its space is given back."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, update

from api.common.settings import Settings
from api.schemas.plan import PlanStatus
from api.store.audit import AuditLog
from api.store.database import Store
from api.store.deployments import DeploymentStore, ToldDeployment, delete_old_deployments
from api.store.keys import RequestKey
from api.store.leases import lease, live
from api.store.purge import DAY_S, Purged, Retention, purge
from api.store.records import SnapshotRecord
from api.store.replays import ReplayStore
from api.store.tables import AUDIT, BODIES, DEPLOYMENTS, LEASES, PLANS, REPLAYS, RESERVATIONS, RUNS, STEPS
from api.store.texts import Body, PlanInput
from tests.api.store.test_database import RECORD, filled

# 2026-01-01 in UTC; things of day k are k days younger.
START_S = 1_767_225_600.0
KEEP = Retention(
    age_s=1e9,
    num_plans=10**9,
    events_age_s=1e9,
    metrics_age_s=1e9,
    num_steps=10**9,
    audit_age_s=1e9,
    deployments_age_s=1e9,
)


@pytest.fixture
def store(lasting: Path | str) -> Iterator[Store]:
    with closing(Store(lasting)) as opened:
        yield opened


def finished(store: Store, day: int, status: PlanStatus = PlanStatus.SUCCEEDED) -> str:
    """A plan of a day, with a snapshot of its own."""
    at_s = START_S + day * DAY_S
    record = replace(RECORD, id=f"plan-{day}", idempotency_key=f"{day}", queued_at_s=at_s)
    store.add_plan(record, PlanInput(rest='{"policy":"sia"}', snapshot=Body.of(f'"{day}"')), "hash", "[]")
    if status.final:
        store.finish_plan(replace(record, status=status, finished_at_s=at_s, outcome="{}"), '["events"]')
    return record.id


def left(store: Store) -> list[str]:
    """Ids of all plans, oldest first."""
    return [plan.id for plan in reversed(store.plans(99, None, []))]


def count(store: Store, table: object) -> int:
    with store.reading() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0  # type: ignore[arg-type]


def test_old_plans_go_with_all_that_is_theirs(store: Store) -> None:
    for day in range(6):
        finished(store, day, PlanStatus.QUEUED if day == 1 else PlanStatus.SUCCEEDED)
    # Where others delete plans as well, nobody goes by what is remembered.
    assert (store.recent_snapshots.get("plan-0") is None) is store.is_shared
    purged = purge(store, replace(KEEP, age_s=3 * DAY_S), START_S + 5.5 * DAY_S)
    assert store.recent_snapshots.get("plan-0") is None
    # What is not final stays.
    assert purged == Purged(plans=2)
    assert left(store) == ["plan-1", "plan-3", "plan-4", "plan-5"]
    assert count(store, BODIES) == 4
    assert store.plan_notes("plan-0") is None
    assert purge(store, replace(KEEP, age_s=3 * DAY_S), START_S + 5.5 * DAY_S) == Purged()


def test_of_more_plans_than_are_kept_the_newest_stay(store: Store) -> None:
    for day in range(5):
        finished(store, day, PlanStatus.SOLVING if day == 0 else PlanStatus.FAILED)
    assert purge(store, replace(KEEP, num_plans=2), START_S) == Purged(plans=2)
    assert left(store) == ["plan-0", "plan-3", "plan-4"]


def test_events_go_before_their_plans(store: Store) -> None:
    for day in range(3):
        finished(store, day)
    assert purge(store, replace(KEEP, events_age_s=1.5 * DAY_S), START_S + 3 * DAY_S) == Purged(event_logs=2)
    assert [store.plan_events(f"plan-{day}") for day in range(3)] == [None, None, '["events"]']
    assert left(store) == ["plan-0", "plan-1", "plan-2"]


def test_snapshots_go_and_plans_keep_theirs(store: Store) -> None:
    body = Body.of('"0"')
    store.add_snapshot(SnapshotRecord(id="snapshot-0", created_at_s=START_S, document=body))
    store.add_snapshot(SnapshotRecord(id="snapshot-1", created_at_s=START_S, document=Body.of("{}")))
    finished(store, 0)
    assert purge(store, replace(KEEP, age_s=DAY_S), START_S + DAY_S / 2) == Purged()
    assert purge(store, replace(KEEP, age_s=DAY_S), START_S + DAY_S + 1) == Purged(plans=1, snapshots=2)
    assert count(store, BODIES) == 0


def test_replays_and_comparisons_go_by_when_they_ended(store: Store) -> None:
    replays = ReplayStore(store)
    key = RequestKey(collection="replays", key="k", input_hash="h")
    for day in (1, 2):
        document = f'{{"times": {{"finished": "2026-01-0{day}T12:00:00.25Z"}}}}'
        replays.add(f"replays-{day}", "{}", "{}", key if day == 1 else None)
        replays.add_result(f"replays-{day}", 0, "{}", "{}")
        replays.finish(f"replays-{day}", document, "[]", is_interrupted=False)
        store.add_comparison(f"comparison-{day}", "{}")
        store.finish_comparison(f"comparison-{day}", document, is_interrupted=False)
    replays.add("replays-running", '{"times": {"finished": null}}', "{}")
    # At noon of the third of January, what ended at noon of the first and a quarter of a second is older than that.
    at_s = START_S + 2.5 * DAY_S + 1.0
    assert purge(store, replace(KEEP, age_s=2 * DAY_S), at_s) == Purged(comparisons=1, replays=1)
    assert replays.document("replays-1") is store.comparison("comparison-1") is None
    assert replays.numbers("replays-1") == []
    assert store.resource_of(key) is None
    assert count(store, REPLAYS) == 2
    assert replays.numbers("replays-2") == [0]


def test_reservations_go_when_they_have_been_over(store: Store) -> None:
    rows = [
        {"id": f"r{k}", "calendar": "main", "holds": 1, "until_s": until_s, "document": "{}"}
        for k, until_s in enumerate((START_S, START_S + 9 * DAY_S, None))
    ]
    with store.writing() as connection:
        connection.execute(insert(RESERVATIONS), rows)
    assert purge(store, replace(KEEP, age_s=DAY_S), START_S + 2 * DAY_S) == Purged(reservations=1)
    assert count(store, RESERVATIONS) == 2


def measured(store: Store, run: int, num_steps: int, until_s: float) -> None:
    """A launch of two ranks with so many steps, from 1 on."""
    zeros = {column.name: 0.0 for column in STEPS.columns}
    steps = [
        {**zeros, "run": run, "step": step, "rank": rank, "host": "n", "peak_memory_bytes": 1}
        for step in range(1, num_steps + 1)
        for rank in range(2)
    ]
    launch = {"id": run, "job_id": "llm", "launch": run, "document": "{}", "num_records": len(steps), "first_step": 1}
    with store.writing() as connection:
        connection.execute(insert(RUNS).values(**launch, since_s=0.0, until_s=until_s))
        connection.execute(insert(STEPS), steps)


def test_launches_go_with_their_steps_and_long_ones_keep_the_newest(store: Store) -> None:
    measured(store, 1, 5, START_S)
    measured(store, 2, 5, START_S + 9 * DAY_S)
    measured(store, 3, 3, START_S + 9 * DAY_S)
    keep = replace(KEEP, metrics_age_s=DAY_S, num_steps=3)
    assert purge(store, keep, START_S + 2 * DAY_S) == Purged(launches=1, steps=4)
    with store.reading() as connection:
        kept = connection.execute(select(STEPS.c.run, STEPS.c.step, STEPS.c.rank)).all()
        runs = connection.execute(select(RUNS.c.id, RUNS.c.num_records, RUNS.c.first_step).order_by(RUNS.c.id)).all()
    assert {(run, step) for run, step, _ in kept} == {(2, 3), (2, 4), (2, 5), (3, 1), (3, 2), (3, 3)}
    assert [tuple(run) for run in runs] == [(2, 6, 3), (3, 6, 1)]


def test_space_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "plans.sqlite"
    before = len(filled(path))
    with closing(Store(path)) as store:
        with store.writing() as connection:
            connection.execute(update(PLANS).values(status=PlanStatus.FAILED.value))
        assert purge(store, replace(KEEP, num_plans=1), START_S) == Purged(plans=49)
    assert path.stat().st_size < before / 3


def test_a_purge_that_is_stopped_goes_on_another_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.store.purge._BATCH", 2)
    for day in range(6):
        finished(store, day)
    answers = iter([False, False, True, *[True] * 99])
    keep = Retention.of(Settings(keep_days=1))
    assert purge(store, keep, START_S + 99 * DAY_S, lambda: next(answers)).plans == 4
    assert left(store) == ["plan-4", "plan-5"]
    assert purge(store, keep, START_S + 99 * DAY_S).plans == 2


def test_old_entries_of_the_audit_log_go_by_their_own_age(store: Store) -> None:
    rows = [
        {"at_s": START_S + k * DAY_S, "action": "create_plan", "resource": f"{k}", "request_id": "r"} for k in range(5)
    ]
    with store.writing() as connection:
        connection.execute(insert(AUDIT), rows)
    assert purge(store, replace(KEEP, age_s=0.0), START_S + 4.5 * DAY_S) == Purged()
    assert purge(store, replace(KEEP, audit_age_s=3 * DAY_S), START_S + 4.5 * DAY_S) == Purged(audit_entries=2)
    assert [entry.resource for entry in AuditLog(store).page(9, None, None)] == ["4", "3", "2"]


def test_what_was_told_of_deployments_goes_where_nobody_looks_after_them(store: Store) -> None:
    told = {"place": "p", "host": "h", "job_id": "j", "started_at_s": START_S, "holders": "[]", "document": "{}"}
    owners = {"over": None, "gone": "long ago", "runs": store.owner, "told": "long ago"}
    with store.writing() as connection:
        live(connection, store, 1)
        for name, owner in owners.items():
            at_s = START_S + (9 * DAY_S if name == "told" else 0.0)
            connection.execute(insert(DEPLOYMENTS).values(id=name, told_at_s=at_s, **told))
            if owner is not None:
                lease(connection, store, name, "deployments")
                connection.execute(update(LEASES).where(LEASES.c.resource_id == name).values(owner=owner))
    assert purge(store, Retention.of(Settings()), START_S + 9 * DAY_S) == Purged()
    keep = replace(KEEP, deployments_age_s=DAY_S)
    assert purge(store, keep, START_S + 9 * DAY_S) == Purged(told_deployments=2)
    with store.reading() as connection:
        assert set(connection.scalars(select(DEPLOYMENTS.c.id))) == {"runs", "told"}
        assert set(connection.scalars(select(LEASES.c.resource_id))) == {"runs", "told"}


def test_what_is_told_of_again_meanwhile_stays(store: Store) -> None:
    known = DeploymentStore(store)
    known.tell(
        ToldDeployment(id="back", place="p", host="h", job_id="j", started_at_s=START_S, holders="[]", document="{}"),
        is_over=True,
    )
    with store.writing() as connection:
        assert delete_old_deployments(START_S, connection, ["back"]) == 0
    assert known.known("back") is not None
