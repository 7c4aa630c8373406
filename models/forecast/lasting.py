"""How long something lasts from now on, as far as it is known: quantiles."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from stowplan.errors import Issue, raise_for_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """A distribution of seconds, given by quantiles: over by `seconds[k]` with probability `probabilities[k]`.

    Between two quantiles it is linear. What lies outside of them is not known, and is taken so that nobody is promised
    too much: below the first one nothing is over, above the last one it lasts for ever. A point forecast is the one
    quantile of probability 1.

    Raises
    ------
    InputError
        When there is no quantile, a probability is not in (0, 1], or either does not ascend.
    """

    probabilities: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        raise_for_errors(list(lasting_issues(self.probabilities, self.seconds)), "time that something lasts")

    @property
    def mean_s(self) -> float:
        """Mean of the seconds. What lasts beyond the last quantile lasts twice as long on average, as lives of Pareto's
        distribution with exponent 2 do, and what is over by the first one until then."""
        known, seconds = (0.0, *self.probabilities), (self.seconds[0], *self.seconds)
        within_s = math.fsum(
            0.5 * (above - below) * (first_s + last_s)
            for (below, above), (first_s, last_s) in zip(pairwise(known), pairwise(seconds), strict=True)
        )
        return within_s + (1.0 - known[-1]) * 2.0 * seconds[-1]

    def quantile(self, probability: float) -> float:
        """Seconds within which it is over with `probability`; infinity where nobody knows."""
        known, seconds = self.probabilities, self.seconds
        k = bisect_left(known, probability)
        if k == len(known):
            return math.inf
        if k == 0 or known[k] == probability:
            return seconds[k]
        share = (probability - known[k - 1]) / (known[k] - known[k - 1])
        return seconds[k - 1] + share * (seconds[k] - seconds[k - 1])

    def probability_within(self, limit_s: float) -> float:
        """Probability that it is over within `limit_s` seconds."""
        k = bisect_right(self.seconds, limit_s)
        if k == 0:
            return 0.0
        if k == len(self.seconds) or self.seconds[k - 1] == limit_s:
            return self.probabilities[k - 1]
        share = (limit_s - self.seconds[k - 1]) / (self.seconds[k] - self.seconds[k - 1])
        return self.probabilities[k - 1] + share * (self.probabilities[k] - self.probabilities[k - 1])

    def after(self, passed_s: float) -> "Lasting | None":
        """How long it still lasts when it has lasted for `passed_s` and is not over; None: longer than was foreseen."""
        over = self.probability_within(passed_s)
        left = [
            (probability, seconds - passed_s)
            for probability, seconds in zip(self.probabilities, self.seconds, strict=True)
            if seconds > passed_s and probability > over
        ]
        if not left:
            return None
        return Lasting(
            probabilities=tuple(min(1.0, (probability - over) / (1.0 - over)) for probability, _ in left),
            seconds=tuple(seconds for _, seconds in left),
        )


def lasting_issues(probabilities: tuple[float, ...], seconds: tuple[float, ...]) -> Iterator[Issue]:
    """What keeps quantiles from being a distribution; pointers `/probabilities/2`."""
    if not probabilities or len(probabilities) != len(seconds):
        detail = f"has {len(probabilities)} probabilities and {len(seconds)} times; give at least one of each, in pairs"
        yield Issue(code="quantiles", pointer="/probabilities", detail=detail)
        return
    for k, probability in enumerate(probabilities):
        if not 0.0 < probability <= 1.0:
            yield Issue(
                code="out_of_range", pointer=f"/probabilities/{k}", detail=f"is {probability}; above 0, at most 1"
            )
        elif k and probability <= probabilities[k - 1]:
            detail = f"is {probability} after {probabilities[k - 1]}; every probability is above the one before"
            yield Issue(code="not_ascending", pointer=f"/probabilities/{k}", detail=detail)
    for k, time_s in enumerate(seconds):
        if not (math.isfinite(time_s) and time_s >= 0.0):
            yield Issue(code="negative", pointer=f"/seconds/{k}", detail=f"is {time_s}; finite and at least 0")
        elif k and time_s < seconds[k - 1]:
            detail = f"is {time_s} after {seconds[k - 1]}; a larger probability takes no less time"
            yield Issue(code="not_ascending", pointer=f"/seconds/{k}", detail=detail)
