"""A line that says what a command is at, and for how long, where somebody looks on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show `what` and the time on the terminal of standard error while the block works; nothing elsewhere.

    For work that does not say how far it is; that of solvers does (`progress_line`). Nothing else is to be printed
    meanwhile. What the block raises passes.
    """
    if not sys.stderr.isatty():
        yield
        return
    # Only now: rich takes long to load, and commands in scripts need none of it.
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from api.cli.console import errors

    words = TextColumn("{task.description}", markup=False)
    with Progress(SpinnerColumn(), words, TimeElapsedColumn(), console=errors(), transient=True) as shown:
        shown.add_task(what, total=None)
        yield
