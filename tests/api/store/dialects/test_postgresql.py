"""PostgreSQL: who owns a database, and what becomes of it when connections go."""

import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, text
from sqlalchemy.engine.default import DefaultDialect

from api.common.errors import StoreError
from api.schemas.plan import PlanStatus
from api.store.database import Store
from api.store.dialects import postgresql as dialect
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


def test_one_service_owns_a_database_as_long_as_it_is_open(url: str, postgresql: Server) -> None:
    store = Store(url)
    with pytest.raises(StoreError, match=r"is in use by another process \(stowplan .* from this machine\); stop it or"):
        Store(url)
    store.add_plan(RECORD, ASKED)
    # Another one on the same server is another one.
    Store(postgresql.database()).close()
    store.close()
    with closing(Store(url)) as again:
        assert again.plan("plan-1") is not None


def test_a_connection_that_is_cut_is_made_anew(store: Store, url: str, postgresql: Server) -> None:
    store.add_plan(RECORD, ASKED)
    for k in range(3):
        postgresql.cut(url)
        assert store.plan("plan-1") is not None
        store.add_plan(replace(RECORD, id=f"again-{k}", idempotency_key=None), ASKED)
    assert len(store.plans(9, None, [])) == 4
    # With the connection the lock is back.
    with pytest.raises(StoreError, match="in use by another process"):
        Store(url)


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


def test_who_was_followed_by_another_writes_and_reads_nothing_more(url: str, postgresql: Server) -> None:
    first = Store(url)
    first.add_plan(RECORD, ASKED)
    postgresql.cut(url)
    # Before the first one has noticed, another service comes.
    with closing(Store(url)) as second:
        second.finish_plan(replace(RECORD, status=PlanStatus.SUCCEEDED), "[]")
        with pytest.raises(StoreError, match="in use by another process"):
            first.delete_plan("plan-1")
    # It is gone, but what it has written is unknown to the first.
    for ask in (lambda: first.delete_plan("plan-1"), lambda: first.plan("plan-1"), first.ping):
        with pytest.raises(StoreError, match=r"another service has used .* stop it, or start it again"):
            ask()
    assert "another service has used" in (first.trouble or "")
    first.close()
    with closing(Store(url)) as third:
        found = third.plan("plan-1")
        assert found is not None
        assert found.status is PlanStatus.SUCCEEDED


def test_an_own_session_that_the_server_does_not_know_to_be_lost_is_ended(store: Store) -> None:
    """As when a network forgets a connection."""
    with store.writing() as connection:
        engine, lost = connection.engine, connection.connection.driver_connection
    engine.dispose(close=False)
    store.add_plan(RECORD, ASKED)
    assert store.plan("plan-1") is not None
    assert lost is not None
    lost.close()


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
