"""A line that follows a solve."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.status import Status

from api.cli import console
from api.cli.local_worker import Watcher
from api.common.wording import number, percent
from solver.monitor import Progress


@contextmanager
def progress_line(title: str = "") -> Iterator[Watcher]:
    """A line that follows a solve, where somebody looks on; `title` stands before it."""
    screen = console.errors()
    if not screen.is_terminal:
        yield Watcher(on_progress=lambda *_: None, on_stop=lambda: None)
        return
    with screen.status(f"{title}starting") as status:
        yield _watcher(status, title)


def _watcher(status: Status, title: str) -> Watcher:
    stopping = title

    def on_progress(progress: Progress | None, elapsed_s: float) -> None:
        status.update(stopping + _progress_words(progress, elapsed_s))

    def on_stop() -> None:
        nonlocal stopping
        stopping = f"{title}stopping (Ctrl-C again quits)  "
        status.update(stopping)

    return Watcher(on_progress=on_progress, on_stop=on_stop)


def _progress_words(progress: Progress | None, elapsed_s: float) -> str:
    if progress is None:
        return f"building  {elapsed_s:.1f} s"
    gap = None
    if progress.objective is not None and progress.bound is not None:
        gap = abs(progress.objective - progress.bound) / max(abs(progress.objective), 1e-10)
    return (
        f"solving  incumbent {number(progress.objective)}  bound {number(progress.bound)}  gap {percent(gap)}  "
        f"{elapsed_s:.1f} s"
    )
