"""What a user may tune in Sia."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from models.allocation.parameter_checks import raise_for_prices
from models.policy import Parameters
from stowplan.errors import InputError
from stowplan.pickling import quickly_pickled


class SiaObjective(StrEnum):
    """`goodput`: Eq. 4. `completion_time`: jobs end as soon as they can on average (see `completion`).
    `given_costs`: the values of goodput tables are costs to minimise, taken as they are."""

    GOODPUT = "goodput"
    COMPLETION_TIME = "completion_time"
    GIVEN_COSTS = "given_costs"


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class SiaParameters(Parameters):
    """Parameters of Sia section 3.4, with the paper's defaults.

    fairness_power: p, not 0; negative minimises. queue_penalty: lambda per job that gets nothing. restart_price: how
    many times its restart cost a change costs a job (Eq. 3). price_suspension: leaving a running job without GPUs costs
    it a restart, too. prices: what an earlier plan's `prices` said; a good start for solvers that price capacity,
    without any other effect. double_at_most: a running job gets at most twice its GPUs, a waiting one its minimum
    (section 3.1). longest_wait_s: for the completion time, how old a job may get that waits; then it comes ahead of
    all that is not (None: it may wait for ever).

    Under `completion_time` fairness_power, queue_penalty and price_suspension have no effect.

    Raises
    ------
    InputError
        When p is 0, a value is not finite, a price is negative, or a time is not above 0.
    """

    fairness_power: float = -0.5
    queue_penalty: float = 1.1
    double_at_most: bool = False
    restart_price: float = 1.0
    price_suspension: bool = False
    objective: SiaObjective = SiaObjective.GOODPUT
    longest_wait_s: float | None = 21_600.0
    prices: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not math.isfinite(self.fairness_power) or self.fairness_power == 0:
            raise InputError(f"fairness_power is {self.fairness_power}; must be finite and not 0")
        if not math.isfinite(self.queue_penalty) or self.queue_penalty < 0:
            raise InputError(f"queue_penalty is {self.queue_penalty}; must be finite and at least 0")
        if not math.isfinite(self.restart_price) or self.restart_price < 0:
            raise InputError(f"restart_price is {self.restart_price}; must be finite and at least 0")
        if self.longest_wait_s is not None and not (math.isfinite(self.longest_wait_s) and self.longest_wait_s > 0):
            raise InputError(f"longest_wait_s is {self.longest_wait_s}; must be finite and above 0")
        raise_for_prices(self.prices)
