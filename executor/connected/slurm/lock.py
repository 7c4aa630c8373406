"""One connection to a cluster at a time, as far as this machine knows."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stowplan.errors import InputError


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Be the only one who holds the lock on a file; the end of the process, however it ends, gives it back.

    Raises
    ------
    InputError
        When another process has it, or the file cannot be written.
    """
    try:
        lock = file.open("a")
    except OSError as error:
        raise InputError(f"{file}: cannot be locked: {error.strerror}; name another file with --lock") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"another process is connected to this cluster (it has {file}); end that one") from error
        yield
