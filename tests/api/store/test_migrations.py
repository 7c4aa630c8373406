"""Databases of every released schema are brought to today's, whole or not at all."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from api.common.errors import StoreError
from api.schemas.plan import PlanStatus
from api.store import schema
from api.store.database import Store
from api.store.replays import ReplayStore
from api.store.tables import METADATA

RELEASED = Path(__file__).parent / "released"
MIGRATIONS = Path(schema.__file__).parent / "migrations"
LEFT_BEHIND = "plan-left-behind"


def stored(revision: str, path: Path) -> None:
    """Write the file that a service of a released schema had written."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((RELEASED / f"{revision}.sql").read_text())


def rows(path: Path, table: str) -> list[dict[str, object]]:
    """All rows of a table."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1")]  # noqa: S608 - a name of ours


@pytest.fixture(params=sorted(file.stem for file in RELEASED.glob("*.sql")))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    stored(request.param, tmp_path / "plans.sqlite")
    return tmp_path / "plans.sqlite"


def test_every_schema_before_todays_has_a_stored_file() -> None:
    script = ScriptDirectory(str(MIGRATIONS))
    assert script.get_heads() == [schema.HEAD]
    released = {revision.revision for revision in script.walk_revisions()} - {schema.HEAD}
    assert {file.stem for file in RELEASED.glob("*.sql")} == released


def test_what_was_stored_is_there(old: Path) -> None:
    plans = {str(row["id"]): row for row in rows(old, "plans")}
    [snapshot] = rows(old, "snapshots")
    untouched = {table: rows(old, table) for table in ("calendars", "replays", "measured_steps", "idempotency_keys")}
    with closing(Store(old)) as store:
        assert [left.record.id for left in store.take_up_plans()] == [LEFT_BEHIND]
        for id_, row in plans.items():
            record = store.plan(id_)
            assert record is not None
            same = ("sequence", "policy", "input_hash", "idempotency_key", "objective", "outcome", "timings")
            assert {name: getattr(record, name) for name in same} == {name: row[name] for name in same}
            assert store.plan_input(id_) == row["input"]
            assert store.plan_events(id_) == row["events"]
        found = store.snapshot(str(snapshot["id"]))
        assert found is not None
        assert found.document.text == snapshot["document"]
        [replays] = rows(old, "replays")
        assert ReplayStore(store).document(str(replays["id"])) == replays["document"]
        # Two plans have the same snapshot, which is the one that is stored for itself as well.
        assert len(rows(old, "bodies")) < len(plans) + 1
        record = store.plan(LEFT_BEHIND)
        assert record is not None
        assert record.status is PlanStatus.QUEUED
    assert {table: rows(old, table) for table in untouched} == untouched


def test_an_old_database_becomes_one_like_a_new_one(old: Path, tmp_path: Path) -> None:
    Store(old).close()
    Store(tmp_path / "new.sqlite").close()

    def described(path: Path) -> set[tuple[str, str, str]]:
        return {
            (str(row["type"]), str(row["name"]), " ".join(str(row["sql"]).replace('"', "").split()))
            for row in rows(path, "sqlite_master")
        }

    assert described(old) == described(tmp_path / "new.sqlite")
    with closing(Store(old)) as store, store.writing() as connection:
        # Nor does Alembic see a difference to the tables of the code.
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    assert [row["seq"] for row in rows(old, "sqlite_sequence") if row["name"] == "plans"] == [4]


def test_a_migration_that_fails_leaves_everything_as_it_was(old: Path) -> None:
    before = {name: rows(old, name) for name in ("plans", "snapshots", "sqlite_master")}
    # Of an unreadable request the migration knows nothing: it comes to the last plan, and breaks.
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE plans SET input = 'no JSON' WHERE id = ?", (LEFT_BEHIND,))
        connection.commit()
    with pytest.raises(StoreError, match=r"cannot be brought from schema .* was left as it is: .*Expecting value"):
        Store(old)
    after = {name: rows(old, name) for name in before}
    [broken] = [row for row in after["plans"] if row["id"] == LEFT_BEHIND]
    broken["input"] = next(row["input"] for row in before["plans"] if row["id"] == LEFT_BEHIND)
    assert after == before
    assert not inspect_versions(old)


def inspect_versions(path: Path) -> bool:
    """Whether the file says that migrations have begun."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT count(*) FROM sqlite_master WHERE name = 'alembic_version'"
        return bool(connection.execute(query).fetchone()[0])


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "plans.sqlite").close()
    with closing(sqlite3.connect(tmp_path / "plans.sqlite")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(StoreError, match=f"has schema 9999, written by a newer Stowplan; this one knows {schema.HEAD}"):
        Store(tmp_path / "plans.sqlite")


def test_versions_that_know_no_migrations_refuse_it(tmp_path: Path) -> None:
    Store(tmp_path / "plans.sqlite").close()
    with closing(sqlite3.connect(tmp_path / "plans.sqlite")) as connection:
        # They look at this number, and know 1.
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
