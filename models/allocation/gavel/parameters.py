"""What a user may tune in Gavel."""

import math
from dataclasses import dataclass
from enum import StrEnum

from models.policy import Parameters
from stowplan.errors import InputError


class GavelMethod(StrEnum):
    """`heuristic`: a round by descending priority, with the bound of the integer program beside it. `ilp`: that
    program."""

    HEURISTIC = "heuristic"
    ILP = "ilp"


class GavelObjective(StrEnum):
    """What shares of time are best. `max_min_fairness`: the least throughput over that of an equal share, by weight
    (Gavel section 4.1). `makespan`: the last of these jobs ends first (section 4.2)."""

    MAX_MIN_FAIRNESS = "max_min_fairness"
    MAKESPAN = "makespan"


@dataclass(frozen=True, slots=True, kw_only=True)
class GavelParameters(Parameters):
    """Parameters of Gavel. round_s: for how long GPUs are handed out at a time.

    Raises
    ------
    InputError
        When a value is out of its range.
    """

    method: GavelMethod = GavelMethod.HEURISTIC
    objective: GavelObjective = GavelObjective.MAX_MIN_FAIRNESS
    round_s: float = 360.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.round_s) and self.round_s > 0):
            raise InputError(f"round_s is {self.round_s}; must be finite and above 0")
