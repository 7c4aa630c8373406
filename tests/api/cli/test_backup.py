"""`stowplan backup`, `restore` and `purge`."""

from contextlib import closing
from pathlib import Path

from sqlalchemy import update
from typer.testing import CliRunner

from api.cli.main import app
from api.store.database import Store
from api.store.tables import PLANS
from tests.api.store.test_database import filled


def test_backup_says_what_it_has_made_and_replaces_nothing(tmp_path: Path) -> None:
    Store(tmp_path / "plans.sqlite").close()
    line = ["backup", str(tmp_path / "plans.sqlite"), str(tmp_path / "copy.sqlite")]
    made = CliRunner().invoke(app, line)
    assert (made.exit_code, made.stdout) == (0, f"{tmp_path}/copy.sqlite: 0.2 MB, no damage found\n")
    again = CliRunner().invoke(app, line)
    assert again.exit_code == 2
    assert "copy.sqlite exists; name a file that does not" in again.stderr


def test_restore_says_where_the_former_database_is(tmp_path: Path) -> None:
    Store(tmp_path / "plans.sqlite").close()
    Store(tmp_path / "copy.sqlite").close()
    made = CliRunner().invoke(app, ["restore", str(tmp_path / "copy.sqlite"), str(tmp_path / "plans.sqlite")])
    assert made.exit_code == 0
    assert made.stdout == (
        f"{tmp_path}/plans.sqlite: restored from {tmp_path}/copy.sqlite\n"
        f"{tmp_path}/plans.sqlite.before-restore-1: what was there before\n"
    )
    missing = CliRunner().invoke(app, ["restore", str(tmp_path / "none"), str(tmp_path / "plans.sqlite")])
    assert missing.exit_code == 2
    assert "there is no database" in missing.stderr


def test_purge_says_what_went(tmp_path: Path) -> None:
    path = tmp_path / "plans.sqlite"
    filled(path)
    with closing(Store(path)) as store, store.writing() as connection:
        connection.execute(update(PLANS).values(status="failed", finished_at_s=1.0))
    done = CliRunner().invoke(app, ["purge", str(path), "--keep-days", "30"])
    assert done.exit_code == 0, done.stderr
    assert "deleted: 50 plans\n" in done.stdout
    assert " MB given back\n" in done.stdout
    nothing = CliRunner().invoke(app, ["purge", str(path)])
    assert "deleted: nothing\n" in nothing.stdout
    wrong = CliRunner().invoke(app, ["purge", str(path), "--keep-days", "-1"])
    assert (wrong.exit_code, wrong.stderr) == (2, "error: keep_days is -1.0; must be finite and above 0\n")
    with closing(Store(path)):
        assert "in use by another process" in CliRunner().invoke(app, ["purge", str(path)]).stderr
    assert "there is no database" in CliRunner().invoke(app, ["purge", str(tmp_path / "none")]).stderr
