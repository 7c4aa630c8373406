"""`stowplan backup`, `restore` and `purge`."""

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sqlalchemy import update
from typer.testing import CliRunner

from api.cli.main import app
from api.schemas.plan import PlanStatus
from api.store.database import Store
from api.store.tables import PLANS
from tests.api.postgresql import Server
from tests.api.store.test_database import ASKED, RECORD, filled


def test_backup_says_what_it_has_made_and_replaces_nothing(tmp_path: Path) -> None:
    Store(tmp_path / "plans.sqlite").close()
    line = ["backup", str(tmp_path / "plans.sqlite"), str(tmp_path / "copy.sqlite")]
    made = CliRunner().invoke(app, line)
    assert made.exit_code == 0
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/copy\.sqlite: 0\.\d MB, no damage found\n", made.stdout)
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


def test_a_server_is_purged_and_copied_by_its_own_programs(postgresql: Server, tmp_path: Path) -> None:
    url = postgresql.database()
    with closing(Store(url)) as store:
        store.add_plan(replace(RECORD, status=PlanStatus.FAILED, finished_at_s=1.0), ASKED)
        # Also while services use it.
        done = CliRunner().invoke(app, ["purge", url, "--keep-days", "30"])
        assert (done.exit_code, done.stdout) == (0, "deleted: 1 plans\n")
    for line in (["backup", url, str(tmp_path / "copy")], ["restore", str(tmp_path / "copy"), url]):
        refused = CliRunner().invoke(app, line)
        assert refused.exit_code == 2
        assert "`pg_dump --format=custom --file=COPY URL`" in " ".join(refused.stderr.split())


def test_a_dump_is_restored_into_an_empty_database(postgresql: Server, tmp_path: Path) -> None:
    """As the error says; a service goes on with what it finds there."""
    source, target = postgresql.database(), postgresql.database()
    with closing(Store(source)) as store:
        store.add_plan(RECORD, ASKED)
        postgresql.run("pg_dump", "--format=custom", f"--file={tmp_path}/copy", source)
    postgresql.run("pg_restore", f"--dbname={target}", f"{tmp_path}/copy")
    with closing(Store(target)) as store:
        assert [left.record.id for left in store.take_up_plans()] == ["plan-1"]
        store.add_plan(replace(RECORD, id="plan-2", idempotency_key=None), ASKED)
        assert [plan.sequence for plan in store.plans(9, None, [])] == [2, 1]
