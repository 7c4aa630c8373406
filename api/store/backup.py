"""Copies of a database of SQLite, made while a service uses it."""

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

from api.common.errors import StoreError
from api.common.setting_kinds import POSTGRESQL
from api.store.connection import Database
from api.store.dialects.damage import refuse_damage, remedy
from api.store.dialects.file import LOG_SUFFIXES, DatabaseFile
from stowplan.errors import InputError


def refuse_server(database: str) -> None:
    """Raise InputError where a database is on a server, which has programs of its own to copy it."""
    if database.startswith(POSTGRESQL):
        raise InputError(
            "a database on PostgreSQL is copied by `pg_dump --format=custom --file=COPY URL`, also while a service "
            "uses it, and restored into an empty one by `pg_restore --dbname=URL COPY`"
        )


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


def restore(copy: Path, database: Path) -> Path | None:
    """Put a copy in the place of a database that nobody uses, or that there is not; the copy stays.

    Returns
    -------
        Where the database is now that was there before.

    Raises
    ------
    InputError
        When there is no copy, or the database cannot be written.
    StoreError
        When the copy is damaged, no database of ours or of a newer version, or a process uses the database.
    """
    draft = database.with_name(f".{database.name}.part")
    draft.unlink(missing_ok=True)
    back_up(copy, draft)
    try:
        # Whatever is wrong with it is said before anything is replaced; an older one becomes one of today.
        Database(draft).close()
        before = _put_away(database) if database.exists() else None
        draft.rename(database)
    except OSError as error:
        raise InputError(f"{database} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return before


def _put_away(database: Path) -> Path:
    """Give a database that nobody uses, damaged or not, another name, with the log that belongs to it."""
    away = next(
        name
        for k in itertools.count(1)
        if not (name := database.with_name(f"{database.name}.before-restore-{k}")).exists()
    )
    with closing(DatabaseFile(database)):
        for suffix in ("", *LOG_SUFFIXES):
            path = Path(f"{database}{suffix}")
            if path.exists():
                path.rename(f"{away}{suffix}")
    return away


def _copy(database: Path, draft: Path) -> None:
    """Copy all pages at once, so that no writer comes between, and see whether they hang together."""
    with (
        closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)) as source,
        closing(sqlite3.connect(draft)) as target,
    ):
        source.backup(target)
        refuse_damage(f"the database {database}", target.execute("PRAGMA integrity_check(1)").fetchone()[0])
