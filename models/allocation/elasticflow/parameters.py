"""What a user may tune in ElasticFlow, and when a plan may change though nothing happens."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from models.allocation.ageing import next_turn_s
from models.policy import Parameters, Running, Waiting
from stowplan.errors import InputError


class ElasticFlowMethod(StrEnum):
    """`heuristic`: ElasticFlow's algorithms, with a bound of the integer program beside them. `ilp`: that program."""

    HEURISTIC = "heuristic"
    ILP = "ilp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticFlowParameters(Parameters):
    """Parameters of ElasticFlow.

    slot_s: length of the present slot, for which GPUs are handed out. max_slots: most slots that are looked ahead.
    horizon_s: over what time a restart is paid for. best_effort: jobs whose deadline cannot be guaranteed get what is
    left, as those without one do; else they do not begin before it can be, or is over.

    Raises
    ------
    InputError
        When a value is out of its range.
    """

    method: ElasticFlowMethod = ElasticFlowMethod.HEURISTIC
    slot_s: float = 240.0
    max_slots: int = 12
    horizon_s: float = 3600.0
    best_effort: bool = False

    def __post_init__(self) -> None:
        for name in ("slot_s", "horizon_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}; must be finite and above 0")
        if not 2 <= self.max_slots <= 50:
            raise InputError(f"max_slots is {self.max_slots}; must be from 2 to 50")


def changes_after(
    parameters: ElasticFlowParameters, waiting: Iterable[Waiting], running: Iterable[Running]
) -> float | None:
    """A slot, where jobs share the cluster; see `Policy.changes_after`."""
    return next_turn_s(waiting, running, parameters.slot_s)
