"""What the pool's tests run in workers; no solver is imported here, since most of those workers need none."""

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

from solver.monitor import Progress, SolveMonitor
from stowplan.errors import InputError, StowplanError

POINT = np.array([1.0, 0.0, 1.0])


def echo(argument: object, monitor: SolveMonitor) -> object:
    """Return the argument."""
    del monitor
    return argument


def is_loaded(module: str, monitor: SolveMonitor) -> bool:  # noqa: ARG001 - the pool's calling convention
    """Whether the worker has imported a module."""
    return module in sys.modules


def process_facts(argument: object, monitor: SolveMonitor) -> dict[str, object]:
    """What a forked child would have inherited."""
    del argument, monitor
    return {"pid": os.getpid(), "test_runner": "_pytest" in sys.modules, "stdin": sys.stdin.read()}


def keep(key: str, monitor: SolveMonitor) -> int:
    """Say that this worker keeps something; gives its process id."""
    monitor.keeps([key])
    return os.getpid()


def tell(order: tuple[object, float], monitor: SolveMonitor) -> float:
    """Tell something, and end so many seconds later."""
    value, seconds = order
    monitor.tells(value)
    time.sleep(seconds)
    return seconds


def variables(names: list[str], monitor: SolveMonitor) -> dict[str, str | None]:  # noqa: ARG001 - as above
    """What variables are in the worker."""
    return {name: os.environ.get(name) for name in names}


def wait(seconds: float, monitor: SolveMonitor) -> str:
    """Report an incumbent and many bounds, then wait for the end or a cancel."""
    monitor.on_progress(Progress(elapsed_s=0.0, objective=5.0, bound=0.0, incumbent=POINT))
    for bound in range(1, 101):
        monitor.on_progress(Progress(elapsed_s=bound / 1000, bound=float(bound)))
    return "canceled" if monitor.canceled.wait(seconds) else "waited"


def ignore(seconds: float, monitor: SolveMonitor) -> None:
    """Report an incumbent and listen to nobody."""
    monitor.on_progress(Progress(elapsed_s=0.0, objective=5.0, incumbent=POINT))
    time.sleep(seconds)


def hold_the_lock(seconds: float, monitor: SolveMonitor) -> None:
    """Report an incumbent, then hold the interpreter lock so that no other thread runs, as some solvers do."""
    monitor.on_progress(Progress(elapsed_s=0.0, objective=5.0, incumbent=POINT))
    time.sleep(0.3)
    ctypes.PyDLL(None).sleep(ctypes.c_uint(int(seconds)))


def haunt(argument: object, monitor: SolveMonitor) -> str:
    """Leave a thread behind that reports after the end."""
    del argument
    late = Progress(elapsed_s=9.0, objective=-1.0, incumbent=-POINT)
    threading.Timer(0.2, monitor.on_progress, (late,)).start()
    return "gone"


def exit_at_once(code: int, monitor: SolveMonitor) -> None:
    """Die as a crashing solver does."""
    del monitor
    os._exit(code)


def exit_until(order: tuple[str, int], monitor: SolveMonitor) -> int:
    """Count in a file how often it was begun, and die unless that is the number wanted."""
    del monitor
    file, wanted = Path(order[0]), order[1]
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    count = len(file.read_text())
    if count != wanted:
        os._exit(7)
    return count


def exit_when_asked(code: int, monitor: SolveMonitor) -> None:
    """Die as a solver does that crashes when it is interrupted."""
    monitor.canceled.wait(60)
    os._exit(code)


def refuse(argument: object, monitor: SolveMonitor) -> None:
    """Raise an error of the project."""
    del argument, monitor
    raise InputError("no such thing")


def fail(argument: object, monitor: SolveMonitor) -> None:
    """Raise any other error."""
    del argument, monitor
    raise ZeroDivisionError("a bug")


class OddError(StowplanError):
    """Cannot be unpickled: its constructor takes other arguments."""

    def __init__(self, first: int, second: int, third: int) -> None:
        super().__init__(f"{first} {second} {third}")


def odd(argument: object, monitor: SolveMonitor) -> None:
    """Raise an error that the parent cannot read."""
    del argument, monitor
    raise OddError(1, 2, 3)


def unpicklable(argument: object, monitor: SolveMonitor) -> object:
    """Return what cannot be sent."""
    del argument, monitor
    return lambda: None


def hang_first(file: str, monitor: SolveMonitor) -> str:
    """Hang without having found anything, unless it has been begun before."""
    if Path(file).exists():
        return "second"
    Path(file).touch()
    monitor.canceled.wait(120)
    return "first"
