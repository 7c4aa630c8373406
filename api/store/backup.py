"""Copies of the database, made while a service uses it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from api.common.errors import StoreError
from api.store.damage import refuse_damage, remedy
from stowplan.errors import InputError


def back_up(database: Path, copy: Path) -> None:
    """Copy a database as it is at one moment, and look at the whole copy; nobody has to wait for that.

    Raises
    ------
    InputError
        When there is no database, or the copy cannot be made or would replace a file.
    StoreError
        When the database cannot be read or is damaged; there is no copy then.
    """
    if not database.is_file():
        raise InputError(f"there is no database {database}")
    if copy.exists():
        raise InputError(f"{copy} exists; name a file that does not")
    draft = copy.with_name(f".{copy.name}.part")
    try:
        # What clients sent is for the owner only.
        draft.touch(mode=0o600)
        _copy(database, draft)
        draft.replace(copy)
    except OSError as error:
        raise InputError(f"{copy} cannot be written: {error.strerror}") from error
    except sqlite3.Error as error:
        raise StoreError(f"{database} cannot be copied to {copy}: {error}{remedy(error)}") from error
    finally:
        draft.unlink(missing_ok=True)


def _copy(database: Path, draft: Path) -> None:
    """Copy all pages at once, so that no writer comes between, and see whether they hang together."""
    with (
        closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)) as source,
        closing(sqlite3.connect(draft)) as target,
    ):
        source.backup(target)
        refuse_damage(f"the database {database}", target.execute("PRAGMA integrity_check(1)").fetchone()[0])
