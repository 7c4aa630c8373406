"""When a plan of Sia changes by itself. Light: imports no solver and no modelling layer."""

from collections.abc import Iterable

from models.allocation.ageing import next_birthday_s
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.policy import Running, Waiting


def changes_after(
    parameters: SiaParameters,
    waiting: Iterable[Waiting],
    running: Iterable[Running],  # noqa: ARG001 - every policy's signature
) -> float | None:
    """Seconds until a job has waited for as long as it may; see `Policy.changes_after`."""
    if parameters.objective is not SiaObjective.COMPLETION_TIME or parameters.longest_wait_s is None:
        return None
    return next_birthday_s(waiting, parameters.longest_wait_s)
