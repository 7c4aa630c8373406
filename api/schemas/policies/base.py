"""What the parameters of every policy offer, whoever's they are."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from api.schemas.base import MAX_GPUS, MAX_NAME_LENGTH, Document, Epsilon, Name, NonNegative
from models.epsilon import EPSILON
from models.policy import Parameters, Policy

Quotas = Annotated[
    dict[Name, Annotated[int, Field(ge=0, le=MAX_GPUS)]],
    Field(default_factory=dict, max_length=10_000, description="Queue -> most GPUs that its jobs may have together."),
]

# A row is named by a kind, up to two names, and numbers; a queue has one for every interval.
_Row = Annotated[str, Field(min_length=1, max_length=3 * MAX_NAME_LENGTH)]

Prices = Annotated[
    dict[_Row, NonNegative],
    Field(
        default_factory=dict,
        max_length=100_000,
        description="`prices` of an earlier plan, a start for solvers that price capacity. They change no optimum, and "
        "those of what this cluster has not are left out.",
    ),
]


class ParametersDoc(Document):
    """Base of the parameters that clients give; one document for all policies that share the planner's type."""

    planner: ClassVar[type[Parameters]]
    """The planner's type of these parameters; it tells which policies they are for."""
    asks_for: ClassVar[str]
    """What a plan answers, in a sentence: the description of its request."""

    epsilon: Epsilon = EPSILON
    """Probability with which a job may still run when an entry of the calendar closes its nodes."""

    def values(self) -> dict[str, Any]:
        """Fields of the planner's type."""
        return dict(vars(self))

    def parameters_for(self, policy: Policy) -> Parameters:
        """Give the planner's parameters of one of the policies.

        Raises
        ------
        InputError
            When they contradict each other.
        """
        return policy.parameters(**self.values(), **policy.variant)
