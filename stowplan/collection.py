"""The search for cycles of objects, and when to do without."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Let nobody look for cycles: reading and planning make many objects and hardly a cycle, and the search took a
    third of the time of reading.

    Threads that do this beside one another may end it for one another, and never for good.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
