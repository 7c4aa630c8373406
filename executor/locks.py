"""Locks on files: of one process or thread at a time, and given back when it ends, however that is."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path, *, waits: bool = True) -> Iterator[bool]:
    """Hold the lock on a file, whose folder is made where there is none; False where somebody else has it and this does
    not wait for it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = True
        except BlockingIOError:
            is_held = False
        yield is_held
