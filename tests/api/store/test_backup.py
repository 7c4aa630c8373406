"""Copies of the database."""

from dataclasses import replace
from pathlib import Path

import pytest

from api.common.errors import StoreError
from api.store.backup import back_up
from api.store.database import Store
from stowplan.errors import InputError
from tests.api.store.test_database import ASKED, RECORD, filled, overwritten


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
