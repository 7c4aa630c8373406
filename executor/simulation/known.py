"""What is known of how fast replayed jobs are, and which policies that suffices for."""

from collections.abc import Mapping
from enum import Enum, auto

from models.policies import POLICIES
from models.policy import Policy


class Known(Enum):
    """What is known of how fast jobs are: nothing but what they took, throughputs, or measured applications."""

    NOTHING = auto()
    TABLE = auto()
    FOLDER = auto()

    def suits(self, policy: Policy) -> bool:
        """Whether it is enough for a policy."""
        takes = {
            Known.NOTHING: False,
            Known.TABLE: policy.plans_by_throughput,
            Known.FOLDER: policy.takes_goodput,
        }
        return policy.plans_by_size or takes[self]

    def refusal(self, policy: Policy, remedy: str) -> str | None:
        """Why it is not enough, and what would do; None where it is.

        Parameters
        ----------
        remedy
            How whoever asks says more of jobs that nothing is known of.
        """
        if self.suits(policy):
            return None
        able = ", ".join(name for name, other in POLICIES.items() if self.suits(other))
        # To say more does not help a policy that goes by more than throughputs.
        known = Known.TABLE if self is Known.NOTHING and not Known.TABLE.suits(policy) else self
        return f"{_WHY[known].format(remedy=remedy)}; choose of {able}"


_WHY: Mapping[Known, str] = {
    Known.NOTHING: "has to know more of jobs than their sizes; {remedy}",
    Known.TABLE: "goes by more than throughputs",
    Known.FOLDER: "does not go by goodput",
}
