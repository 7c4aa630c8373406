"""What a controller is told: the policy, and when to ask it. Light: imports nothing that plans."""

import math
from dataclasses import dataclass, field

from models.policies import policy_of
from models.policy import Parameters
from solver.options import SolveOptions
from stowplan.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOptions:
    """`parameters` choose the policy. `round_s`: plan every so many seconds, while there are jobs; None: after every
    event. `settle`: a job of known performance keeps the GPUs it got until it works, at least. `options`: of every
    solve. `charge`: what is decided takes effect so many times the CPU seconds of the decision later; above 0 no two
    replays are the same."""

    parameters: Parameters
    round_s: float | None = None
    settle: bool = False
    charge: float = 0.0
    options: SolveOptions = field(default_factory=SolveOptions)

    def __post_init__(self) -> None:
        if self.round_s is not None and not 0 < self.round_s < math.inf:
            raise InputError(f"round_s is {self.round_s}; must be finite and above 0, or left out")
        if not 0 <= self.charge < math.inf:
            raise InputError(f"charge is {self.charge}; must be a number from 0 on")


def usual_options(parameters: Parameters) -> SolveOptions:
    """How the decisions of a policy are solved where nobody says otherwise."""
    policy = policy_of(parameters)
    return SolveOptions(solver=policy.solver, relative_gap=policy.relative_gap)
