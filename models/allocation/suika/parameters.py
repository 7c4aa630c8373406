"""What a user may tune in Suika."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from models.parallelism.incremental.options import IncrementalOptions
from models.policy import Parameters
from stowplan.errors import InputError


class SuikaMethod(StrEnum):
    """`heuristic`: Algorithm 2, with the bound of the integer program beside it. `ilp`: the integer program."""

    HEURISTIC = "heuristic"
    ILP = "ilp"


class Queueing(StrEnum):
    """Order of the waiting jobs: by age, or by the time that their remaining iterations take."""

    FIFO = "fifo"
    SJF = "sjf"


class Offers(StrEnum):
    """Scale-outs over which Problem 1 is stated. `all`: what every job is offered at first, and what Algorithm 2 met.
    `met`: what it met, which is known anyway; then the bound is one of these alone."""

    ALL = "all"
    MET = "met"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuikaParameters(Parameters):
    """Parameters of Suika section 3.2, with the paper's defaults.

    aggressiveness: lambda_tau, exponent of the threshold tau = U^lambda; 0 asks for scale-outs that are linear or
    better, more lets weaker ones through. planning: prunings of the incremental planner; without tolerance by default,
    since one decision asks for hundreds of plans and it hardly changes what is gained. max_rounds: limit of scale-outs
    in one decision. offers: asking every job for the bound takes most of the time of a decision.

    Raises
    ------
    InputError
        When the aggressiveness is negative or not finite, or there are no rounds.
    """

    method: SuikaMethod = SuikaMethod.HEURISTIC
    aggressiveness: float = 1.0
    queueing: Queueing = Queueing.FIFO
    planning: IncrementalOptions = field(default_factory=lambda: IncrementalOptions(tolerance=0.0))
    max_rounds: int = 1000
    offers: Offers = Offers.ALL

    def __post_init__(self) -> None:
        if not (math.isfinite(self.aggressiveness) and self.aggressiveness >= 0):
            raise InputError(f"aggressiveness is {self.aggressiveness}; must be finite and at least 0")
        if self.max_rounds < 1:
            raise InputError(f"max_rounds is {self.max_rounds}; must be at least 1")
