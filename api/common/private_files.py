"""Files that nobody else can read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_for_us_only() -> Iterator[None]:
    """Have this process and those that it starts make files that nobody else can read: they hold what users gave."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
