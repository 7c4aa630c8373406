"""Parameters of Sia, with the paper's defaults."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from api.schemas.base import Positive
from api.schemas.policies.base import ParametersDoc, Prices
from models.allocation.sia.parameters import SiaObjective, SiaParameters


def _not_zero(value: float) -> float:
    if value == 0:
        raise PydanticCustomError("out_of_range", "is 0; must be above or below 0 (the paper uses -0.5)")
    return value


class SiaParametersDoc(ParametersDoc):
    """Parameters of Sia, with the paper's defaults."""

    planner = SiaParameters
    asks_for = "Which job gets how many GPUs of which type, and where."

    fairness_power: Annotated[float, Field(ge=-10, le=10), AfterValidator(_not_zero)] = -0.5
    """p of the objective, not 0; a negative power minimises."""
    queue_penalty: Annotated[float, Field(ge=0, le=1e9)] = 1.1
    """lambda: the price of leaving a job without GPUs."""
    double_at_most: bool = False
    """A running job gets at most twice its GPUs, a waiting one its minimum."""
    restart_price: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """How many times its restart cost a change costs a job."""
    price_suspension: bool = False
    """Leaving a running job without GPUs costs it a restart, too."""
    objective: SiaObjective = SiaObjective.GOODPUT
    """goodput: Eq. 4 of the paper; completion_time: jobs end as soon as they can on average, by `remaining_iterations`
    (fairness_power, queue_penalty and price_suspension have no effect then); given_costs: values of goodput tables are
    costs to minimise."""
    longest_wait_s: Positive | None = 21_600.0
    """For completion_time: how old a job may get that waits; then it comes ahead of all that is not. null: it may wait
    for ever."""
    prices: Prices
