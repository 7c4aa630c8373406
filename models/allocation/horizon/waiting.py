"""When a plan of `horizon` changes by itself. Light: imports no solver and no modelling layer."""

from collections.abc import Iterable

from models.allocation.ageing import next_birthday_s
from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.policy import Running, Waiting


def changes_after(
    parameters: HorizonParameters, waiting: Iterable[Waiting], running: Iterable[Running]
) -> float | None:
    """Seconds until the first interval ends, where there are jobs, of which one alone may have become faster elsewhere,
    too, or until a job has waited for as long as it may; see `Policy.changes_after`."""
    waiting, running = list(waiting), list(running)
    if parameters.objective is HorizonObjective.GOODPUT:
        return None
    times_s = []
    if parameters.num_intervals > 1 and (waiting or running):
        times_s.append(parameters.interval_s)
    if parameters.longest_wait_s is not None:
        times_s += [time_s for time_s in (next_birthday_s(waiting, parameters.longest_wait_s),) if time_s is not None]
    return min(times_s, default=None)
