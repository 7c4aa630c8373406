"""What is known of how fast replayed jobs are, and which policies that suffices for."""

from collections.abc import Mapping
from enum import Enum, auto

from models.policies import POLICIES
from models.policy import Policy


class Known(Enum):
    """What is known of how fast jobs are: nothing but what they took, throughputs, measured applications, or which
    models they train."""

    NOTHING = auto()
    TABLE = auto()
    FOLDER = auto()
    MODELS = auto()

    def suits(self, policy: Policy) -> bool:
        """Whether it is enough for a policy."""
        takes = {
            Known.NOTHING: policy.plans_without_speed,
            Known.TABLE: policy.plans_by_throughput,
            Known.FOLDER: policy.takes_goodput or (policy.keeps_sizes and policy.plans_by_throughput),
            Known.MODELS: policy.plans_parallelism or policy.plans_by_throughput,
        }
        return policy.plans_by_size or takes[self]

    def refusal(self, policy: Policy, remedies: Mapping["Known", str]) -> str | None:
        """Why it is not enough, and what would do; None where it is.

        Parameters
        ----------
        remedies
            How whoever asks lets so much be known.
        """
        if self.suits(policy):
            return None
        enough = [known for known in Known if known.suits(policy)]
        why = _WHY[self if Known.TABLE in enough else Known.TABLE] if enough else _NEVER
        others = enough if self is Known.NOTHING else [known for known in enough if known is Known.MODELS]
        more = [remedy for known, remedy in remedies.items() if known in others]
        able = ", ".join(name for name, other in POLICIES.items() if self.suits(other))
        return "; ".join([why, *more[:1], f"choose of {able}"])


_WHY: Mapping[Known, str] = {
    Known.NOTHING: "has to know more of jobs than their sizes",
    Known.TABLE: "goes by more than throughputs",
    Known.FOLDER: "does not go by goodput",
}
_NEVER = "places single jobs, and does not choose among those that come and go"
