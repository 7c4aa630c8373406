"""When a plan of Arena changes by itself. Light: imports no solver and no modelling layer."""

from collections.abc import Iterable

from models.allocation.ageing import next_birthday_s, next_promotion_s
from models.allocation.arena.parameters import ArenaAnswer, ArenaMethod, ArenaObjective, ArenaParameters
from models.policy import Running, Waiting


def changes_after(
    parameters: ArenaParameters,
    waiting: Iterable[Waiting],
    running: Iterable[Running],  # noqa: ARG001 - every policy's signature
) -> float | None:
    """Seconds until a job rises by one queue, or has waited for as long as it may; see `Policy.changes_after`."""
    jobs = tuple(waiting)
    times_s = []
    if parameters.promotion_after_s is not None:
        times_s.append(next_promotion_s(jobs, parameters.promotion_after_s))
    if parameters.longest_wait_s is not None and _bounds_waits(parameters):
        times_s.append(next_birthday_s(jobs, parameters.longest_wait_s))
    return min((time_s for time_s in times_s if time_s is not None), default=None)


def _bounds_waits(parameters: ArenaParameters) -> bool:
    """Whether a plan may change when a job has waited for as long as it may."""
    chooses = parameters.method is ArenaMethod.HEURISTIC and parameters.answer is ArenaAnswer.BETTER
    return chooses or parameters.objective is ArenaObjective.COMPLETION_TIME
