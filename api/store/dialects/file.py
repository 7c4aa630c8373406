"""The file of the database: one process owns it, and notices when it goes away."""

import fcntl
import os
from pathlib import Path

from api.common.errors import StoreError

# Beside the file: what is written and not in it yet, and SQLite's index of that.
LOG_SUFFIXES = ("-wal", "-shm")
_Identity = tuple[int, int] | None


class DatabaseFile:
    """A file that this process owns until it is closed, which must be after SQLite; others may read it.

    Raises
    ------
    StoreError
        When it cannot be written, or another process owns it.
    """

    def __init__(self, path: Path) -> None:
        # SQLite keeps its log beside the file itself, not beside a link to it.
        self._path = path.resolve()
        try:
            self._handle = self._path.open("ab")
            # On the file itself, whatever it is called; SQLite's own locks are of another kind, which this one leaves
            # alone. They end when any handle of the process is closed, so that this one stays open longer.
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._handle.close()
            raise StoreError(
                f"the database {path} is in use by another process; stop it or name another file"
            ) from error
        except OSError as error:
            raise StoreError(f"the database {path} cannot be written: {error.strerror}") from error
        # As text: they are looked at around every statement.
        self._known = {str(self._path): _identity(os.fstat(self._handle.fileno()))}

    def note_log(self) -> None:
        """Keep in mind the files that SQLite has made beside the database; it keeps them while a connection is open."""
        self._known |= {path: _found(path) for path in (f"{self._path}{suffix}" for suffix in LOG_SUFFIXES)}

    @property
    def trouble(self) -> str | None:
        """What keeps that which is written from being found again; None when nothing does."""
        gone = next((path for path, known in self._known.items() if _found(path) != known), None)
        if gone is None:
            return None
        return (
            f"{gone} was removed or replaced while the service used it: what is stored now would be lost. Put it back, "
            "or stop the service and start it with a copy that `stowplan backup` has made"
        )

    def close(self) -> None:
        """Let others have it."""
        self._handle.close()


def _found(path: str) -> _Identity:
    try:
        return _identity(os.stat(path))
    except OSError:
        return None


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
