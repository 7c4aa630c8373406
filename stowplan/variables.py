"""Variables of the environment, for a while."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process, and of those that it starts, meanwhile."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
