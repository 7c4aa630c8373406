"""Copies of the database."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from api.common.errors import StoreError
from api.store.backup import back_up, restore
from api.store.database import Store
from stowplan.errors import InputError
from tests.api.store.test_database import ASKED, RECORD, filled, overwritten
from tests.api.store.test_migrations import stored


def test_a_copy_has_what_is_stored_while_the_service_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "plans.sqlite")
    store.add_plan(RECORD, ASKED)
    back_up(tmp_path / "plans.sqlite", tmp_path / "copy.sqlite")
    store.add_plan(replace(RECORD, id="plan-2", idempotency_key=None), ASKED)
    assert store.plan("plan-2") is not None
    store.close()
    assert {path.name for path in tmp_path.iterdir()} == {"plans.sqlite", "copy.sqlite"}
    assert (tmp_path / "copy.sqlite").stat().st_mode & 0o777 == 0o600
    copy = Store(tmp_path / "copy.sqlite")
    assert [plan.id for plan in copy.plans(9, None, [])] == ["plan-1"]
    copy.close()


def test_a_database_that_nobody_uses_is_copied(tmp_path: Path) -> None:
    content = filled(tmp_path / "plans.sqlite")
    back_up(tmp_path / "plans.sqlite", tmp_path / "copy.sqlite")
    assert (tmp_path / "plans.sqlite").read_bytes() == content
    copy = Store(tmp_path / "copy.sqlite")
    assert len(copy.plans(99, None, [])) == 50
    copy.close()


def test_of_a_damaged_database_there_is_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "plans.sqlite"
    path.write_bytes(overwritten(filled(path)))
    with pytest.raises(StoreError, match=r"plans.sqlite is damaged: .*\.recover"):
        back_up(path, tmp_path / "copy.sqlite")
    path.write_bytes(b"no database " * 100)
    with pytest.raises(StoreError, match="file is not a database"):
        back_up(path, tmp_path / "copy.sqlite")
    assert [file.name for file in tmp_path.iterdir()] == ["plans.sqlite"]


def test_what_cannot_be_copied_is_said_clearly(tmp_path: Path) -> None:
    path = tmp_path / "plans.sqlite"
    with pytest.raises(InputError, match="there is no database"):
        back_up(path, tmp_path / "copy.sqlite")
    Store(path).close()
    with pytest.raises(InputError, match=r"plans\.sqlite exists; name a file that does not"):
        back_up(path, path)
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        back_up(path, tmp_path / "missing" / "copy.sqlite")
    assert [file.name for file in tmp_path.iterdir()] == ["plans.sqlite"]


def test_a_copy_takes_the_place_of_what_there_is(tmp_path: Path) -> None:
    database, copy = tmp_path / "plans.sqlite", tmp_path / "copy.sqlite"
    with closing(Store(database)) as store:
        store.add_plan(RECORD, ASKED)
        back_up(database, copy)
        store.add_plan(replace(RECORD, id="plan-2", idempotency_key=None), ASKED)
        with pytest.raises(StoreError, match="in use by another process"):
            restore(copy, database)
    before = restore(copy, database)
    assert before == tmp_path / "plans.sqlite.before-restore-1"
    assert _ids(database) == ["plan-1"]
    assert _ids(before) == ["plan-2", "plan-1"]
    # The copy stays; a second one finds another name.
    assert restore(copy, database) == tmp_path / "plans.sqlite.before-restore-2"
    assert restore(copy, tmp_path / "new.sqlite") is None
    assert _ids(tmp_path / "new.sqlite") == ["plan-1"]


def test_a_damaged_database_makes_way_and_a_damaged_copy_replaces_nothing(tmp_path: Path) -> None:
    database, copy = tmp_path / "plans.sqlite", tmp_path / "copy.sqlite"
    filled(copy)
    database.write_bytes(overwritten(copy.read_bytes()))
    before = restore(copy, database)
    assert before is not None
    assert len(_ids(database)) == 50
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        restore(before, database)
    with pytest.raises(InputError, match="there is no database"):
        restore(tmp_path / "missing", database)
    assert len(_ids(database)) == 50
    assert not list(tmp_path.glob(".*"))


def test_a_copy_of_an_older_version_becomes_one_of_today(tmp_path: Path) -> None:
    stored("0001", tmp_path / "copy.sqlite")
    restore(tmp_path / "copy.sqlite", tmp_path / "plans.sqlite")
    assert "plan-left-behind" in _ids(tmp_path / "plans.sqlite")


def _ids(path: Path) -> list[str]:
    with closing(Store(path)) as store:
        return [plan.id for plan in store.plans(99, None, [])]
