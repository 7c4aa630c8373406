"""Tasks for readers that stand in for reading."""

import time

from solver.monitor import SolveMonitor


def endless(_: object, monitor: SolveMonitor) -> None:
    """Read until the reader is killed."""
    monitor.canceled.wait()
    time.sleep(60.0)


def echoed(argument: object, _: SolveMonitor) -> object:
    """What there is to read."""
    return argument
