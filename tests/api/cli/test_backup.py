"""`stowplan backup`."""

from pathlib import Path

from typer.testing import CliRunner

from api.cli.main import app
from api.store.database import Store


def test_backup_says_what_it_has_made_and_replaces_nothing(tmp_path: Path) -> None:
    Store(tmp_path / "plans.sqlite").close()
    line = ["backup", str(tmp_path / "plans.sqlite"), str(tmp_path / "copy.sqlite")]
    made = CliRunner().invoke(app, line)
    assert (made.exit_code, made.stdout) == (0, f"{tmp_path}/copy.sqlite: 0.1 MB, no damage found\n")
    again = CliRunner().invoke(app, line)
    assert again.exit_code == 2
    assert "copy.sqlite exists; name a file that does not" in again.stderr
