"""What a controller is told: the policy, and when to ask it. Light: imports nothing that plans."""

import math
from dataclasses import dataclass, field

from models.policy import Parameters
from solver.options import SolveOptions
from stowplan.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOptions:
    """`parameters` choose the policy. `round_s`: plan every so many seconds, while there are jobs; None: after every
    event. `settle`: a job of known performance keeps the GPUs it got until it works, at least. `options`: of every
    solve."""

    parameters: Parameters
    round_s: float | None = None
    settle: bool = False
    options: SolveOptions = field(default_factory=SolveOptions)

    def __post_init__(self) -> None:
        if self.round_s is not None and not 0 < self.round_s < math.inf:
            raise InputError(f"round_s is {self.round_s}; must be finite and above 0, or left out")
