"""PostgreSQL: who uses a database, and what becomes of it when connections go."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.engine.default import DefaultDialect

from api.common.errors import StoreError, StoreUnavailableError
from api.store.database import Store
from api.store.dialects import postgresql as dialect
from api.store.dialects.statements import tell
from api.store.tables import NOTES
from stowplan.errors import ExtraMissingError
from tests.api.conftest import postgresql_programs
from tests.api.postgresql import Server, running
from tests.api.store.test_database import ASKED, RECORD
from tests.waiting import eventually


@pytest.fixture
def url(postgresql: Server) -> str:
    return postgresql.database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with closing(Store(url)) as opened:
        yield opened


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that a test stops."""
    with running(postgresql_programs()) as server:
        yield server


def test_services_use_a_database_side_by_side(store: Store, url: str) -> None:
    store.add_plan(RECORD, ASKED)
    with closing(Store(url)) as other:
        assert other.owner != store.owner
        assert other.plan("plan-1") == store.plan("plan-1")
        other.add_plan(replace(RECORD, id="plan-2", idempotency_key=None), ASKED)
    assert store.plan("plan-2") is not None


def test_what_one_tells_another_one_hears(store: Store, url: str) -> None:
    with closing(Store(url)) as other, other.listening() as listener:
        with store.writing() as connection:
            for word in ("plan-1", "plan-2"):
                tell(connection, store.owner, word)
        heard = listener.heard(30.0)
        heard += listener.heard(30.0) if len(heard) < 2 else []
        assert heard == [f"{store.owner} plan-1", f"{store.owner} plan-2"]
        # Nobody tells anything: it waits for as long as it was told to.
        assert listener.heard(0.01) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    # A disk that is full; a row that is too long; a statement that took too long; a server that ends.
    [("53100", StoreError), ("54000", StoreError), ("57014", StoreUnavailableError), ("57P01", StoreUnavailableError)],
)
def test_it_is_known_whether_an_error_is_that_of_anything_that_is_written_now(
    code: str, kind: type[StoreError], store: Store
) -> None:
    with pytest.raises(StoreError) as refused, store.writing() as connection:
        connection.execute(text(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$"))
    assert type(refused.value) is kind


def test_services_write_one_after_another(store: Store, url: str) -> None:
    """The second one sees what the first has written, however late."""

    def write() -> int:
        with closing(Store(url)) as other, other.writing() as connection:
            return len(connection.execute(select(NOTES)).all())

    with ThreadPoolExecutor(1) as thread:
        with store.writing() as connection:
            connection.execute(insert(NOTES).values(plan_id="p", notes="[]"))
            seen = thread.submit(write)
            # It waits to open the database, or to write.
            with pytest.raises(TimeoutError):
                seen.result(0.2)
        assert seen.result(30.0) == 1


def test_a_service_that_knows_no_others_is_alone(url: str) -> None:
    """Those of schema 0003 hold the lock that these share."""
    Store(url).close()
    with psycopg.connect(url, application_name="an older one") as older:
        older.execute("SELECT pg_advisory_lock(%s)", [dialect._LOCK])
        with pytest.raises(StoreError, match=r"in use by another process \(an older one, from this machine\); stop it"):
            Store(url)
    with closing(Store(url)), psycopg.connect(url) as older:
        (is_free,) = older.execute("SELECT pg_try_advisory_lock(%s)", [dialect._LOCK]).fetchone() or ()
        assert not is_free


def test_tables_change_only_when_nobody_uses_them(
    store: Store, url: str, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialect, "_ENDING_S", 0.1)
    postgresql.execute("UPDATE alembic_version SET version_num = '0003'", url)
    with pytest.raises(StoreError, match=r"in use by another process .*: stop all services first"):
        Store(url)
    # One that comes back after another version has changed them does nothing more.
    postgresql.cut(url)
    for ask in (lambda: store.delete_plan("plan-1"), lambda: store.plan("plan-1"), store.ping):
        with pytest.raises(StoreError, match=r"was brought from schema .* to 0003 .*: start the version that"):
            ask()
    assert "was brought from schema" in (store.trouble or "")


def test_a_connection_that_is_cut_is_made_anew(store: Store, url: str, postgresql: Server) -> None:
    store.add_plan(RECORD, ASKED)
    for k in range(3):
        postgresql.cut(url)
        assert store.plan("plan-1") is not None
        store.add_plan(replace(RECORD, id=f"again-{k}", idempotency_key=None), ASKED)
    assert len(store.plans(9, None, [])) == 4
    # With the connection it says again that it uses the database.
    with psycopg.connect(url) as alone:
        assert alone.execute("SELECT pg_try_advisory_lock(%s)", [dialect._LOCK]).fetchone() == (False,)


def test_what_is_cut_in_the_middle_is_not_written_and_said(store: Store, url: str, postgresql: Server) -> None:
    note = insert(NOTES).values(plan_id="p", notes="[]")

    def write() -> None:
        with store.writing() as known:
            known.execute(note)
            postgresql.cut(url)
            known.execute(text("SELECT 1"))

    with pytest.raises(StoreError, match=r"cannot be written: .*; the connection is made anew"):
        write()
    assert store.trouble is not None
    assert "is lost: " in store.trouble
    assert store.plan_notes("p") is None
    with store.writing() as known:
        known.execute(note)
    assert store.plan_notes("p") == "[]"


@pytest.mark.parametrize("is_written", [True, False])
def test_a_connection_that_goes_at_the_commit_leaves_no_doubt(
    store: Store, url: str, postgresql: Server, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """The server is asked whether it had written it."""
    commit: Any = DefaultDialect.do_commit

    def cut(self: DefaultDialect, connection: Any) -> None:
        monkeypatch.undo()
        if is_written:
            commit(self, connection)
        postgresql.cut(url)
        connection.execute("SELECT 1")

    monkeypatch.setattr(DefaultDialect, "do_commit", cut)
    if is_written:
        store.add_plan(RECORD, ASKED)
    else:
        with pytest.raises(StoreError, match="terminating connection"):
            store.add_plan(RECORD, ASKED)
    assert (store.plan("plan-1") is not None) is is_written


@pytest.mark.slow
def test_a_server_that_stops_is_said_and_found_again(own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "_WATCH_S", 0.05)
    with closing(Store(own_server.database())) as store:
        store.add_plan(RECORD, ASKED)
        own_server.stop(signal.SIGQUIT)
        for ask in (store.ping, lambda: store.delete_plan("plan-1")):
            with pytest.raises(StoreError, match="Is the server running"):
                ask()
        assert "is lost: " in eventually(lambda: store.trouble or "")
        own_server.start()
        # Nobody needs to ask for anything.
        eventually(lambda: store.trouble is None)
        assert store.plan("plan-1") is not None
        assert store.delete_plan("plan-1")


def test_a_database_of_another_program_is_refused(postgresql: Server, url: str) -> None:
    postgresql.execute("CREATE TABLE alembic_version (version_num text)", url)
    with pytest.raises(StoreError, match="belongs to another program; name another one"):
        Store(url)


def test_a_database_that_cannot_hold_all_texts_is_refused(postgresql: Server) -> None:
    url = postgresql.database("ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreError, match="is in LATIN1; make one in UTF8"):
        Store(url)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("/test_", "/none_"), 'database "none_.*" does not exist'),
        (("?host=", "?host=/none"), "No such file or directory"),
    ],
)
def test_what_cannot_be_connected_to_is_said_without_the_password(url: str, change: tuple[str, str], says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        Store(url.replace(*change).replace("stowplan@", "stowplan:secret@"))
    assert "secret" not in str(caught.value)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dialect, "find_spec", lambda _: None)
    with pytest.raises(ExtraMissingError, match=r"needs psycopg; .*\[postgresql\]"):
        Store("postgresql://stowplan@localhost/stowplan")
    Store(tmp_path / "plans.sqlite").close()


def test_names_are_ordered_by_code_points(store: Store) -> None:
    """The server of the tests has another order, in which a is before B."""
    with store.reading() as connection:
        assert connection.scalar(text("SELECT 'a' < 'B'"))
        collation = "SELECT collation_name FROM information_schema.columns WHERE table_name = 'clusters'"
        assert connection.scalar(text(f"{collation} AND column_name = 'name'")) == "C"
