"""What a user may tune in the policy `horizon`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from models.allocation.parameter_checks import raise_for_prices, raise_for_quotas
from models.policy import Parameters
from stowplan.errors import InputError

MOST_INTERVALS = 16
MOST_PRICE = 1e6
# Beyond it is less than one job of a thousand.
MOST_LEVEL = 0.999
MOST_ARRIVALS = 1e6
LEAST_EFFICIENCY = 0.01
# The horizon where a backlog stands behind it, and how many times the dearest start it is at least.
NEAR_S = 1800.0
STARTS = 6.0
_TERMS = {
    "tail": 1.0,
    "fairness": 1.0,
    "lateness": MOST_PRICE,
    "throughput": MOST_PRICE,
    "arrivals_per_h": MOST_ARRIVALS,
}


class HorizonObjective(StrEnum):
    """`completion_time`: jobs end as soon as they can on average, by weight, with what `tail`, `fairness`, `lateness`
    and `throughput` make of that. `goodput`: Sia's Eq. 4 at its defaults, for one interval."""

    COMPLETION_TIME = "completion_time"
    GOODPUT = "goodput"


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonParameters(Parameters):
    """Parameters of `horizon`.

    interval_s: length of the first interval, about as long as until the next plan. num_intervals: how many there are;
    1 looks at the present alone. horizon_s: when the last one ends (None: with `backlog_efficiency` after half an hour,
    one interval after interval_s, or six times the dearest start if that is more, for a running job that must move
    restart_price times its restart cost; without when all that is known to be left can be done, one after interval_s),
    see `horizon_end`. restart_price: how many times its restart cost a running job loses with a change, beside those
    that follow it, see `changes`. longest_wait_s: how old a job may get that waits; then it comes ahead of all that is
    not (None: it may wait for ever).

    tail: how much of the objective is the mean completion time, from submission, of the longest jobs, those beyond the
    part `tail_level` of all weight (conditional value at risk), in place of the mean of all. fairness: power, from 0 to
    1, of the time that a job takes on its fair share, by which its times are divided; with 1 they are those of
    finish-time fairness (Themis, NSDI 2020). lateness: what a second after its deadline counts beside others.
    throughput: what a second of work counts that a job could do within interval_s where it is fastest, and does not.
    backlog_efficiency: what has not ended with the last interval is done then by all GPUs together, the shortest job
    first, at this part of the speed that each has in its best configuration, see `backlog` (None: a plan to the end
    of all jobs, each goes on as it is then, whatever others need). arrivals_per_h: jobs like those that are there which
    are expected to come in an hour: what they need is kept free in later intervals, see `arrivals`. placement_classes:
    whether jobs of several nodes are planned within a unit of a tier, or wherever there is room, each with the share of
    the bandwidth between nodes that it has there, and whole nodes of who stays are kept for it; else all are taken to
    have the most that so many nodes of the cluster can have, see `classes`. With goodput none of these counts.

    quotas: most GPUs that the jobs of a queue may have together, now and on average in every later interval, see
    `quotas`; a queue without one has no limit. prices: what an earlier plan's `prices` said; a start for the `search`,
    without any other effect.

    alpha: affinity of DP groups, from 0 to 1, by which nodes and rank order of 3D plans over several minipods are
    chosen with Arnold's Eq. 4, see `alignment` (None: nodes as they are left, near ones one after another).

    The half hour and the efficiency are two constants, tuned on Sia's traces of Helios and Philly
    (`benchmarks/README.md`), where the half hour is six times the dearest start.

    Raises
    ------
    InputError
        When a value is out of its range, Sia's objective is asked of several intervals or with terms of completion
        times, or a horizon of one.
    """

    objective: HorizonObjective = HorizonObjective.COMPLETION_TIME
    interval_s: float = 60.0
    num_intervals: int = 4
    horizon_s: float | None = None
    restart_price: float = 1.0
    longest_wait_s: float | None = 21_600.0
    tail: float = 0.0
    tail_level: float = 0.9
    fairness: float = 0.0
    lateness: float = 0.0
    throughput: float = 0.0
    backlog_efficiency: float | None = 0.5
    arrivals_per_h: float = 0.0
    placement_classes: bool = True
    alpha: float | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.interval_s) and self.interval_s > 0):
            raise InputError(f"interval_s is {self.interval_s}; must be finite and above 0")
        if not 1 <= self.num_intervals <= MOST_INTERVALS:
            raise InputError(f"num_intervals is {self.num_intervals}; must be from 1 to {MOST_INTERVALS}")
        if self.objective is HorizonObjective.GOODPUT and self.num_intervals != 1:
            raise InputError(
                f"num_intervals is {self.num_intervals}; the objective goodput is that of one interval: give 1"
            )
        least_s = self.interval_s * self.num_intervals
        if self.horizon_s is not None and not least_s <= self.horizon_s < math.inf:
            raise InputError(
                f"horizon_s is {self.horizon_s}; must be finite and at least {least_s:g}, {self.num_intervals} times "
                "interval_s"
            )
        if self.num_intervals == 1 and self.horizon_s not in (None, self.interval_s):
            raise InputError(
                f"horizon_s is {self.horizon_s}; one interval can only end at interval_s, {self.interval_s:g}: leave "
                "it out, or give more intervals"
            )
        if not 0 <= self.restart_price <= MOST_PRICE:
            raise InputError(f"restart_price is {self.restart_price}; must be from 0 to {MOST_PRICE:g}")
        if self.longest_wait_s is not None and not (math.isfinite(self.longest_wait_s) and self.longest_wait_s > 0):
            raise InputError(f"longest_wait_s is {self.longest_wait_s}; must be finite and above 0")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise InputError(f"alpha is {self.alpha}; must lie in [0, 1]")
        raise_for_quotas(self.quotas)
        raise_for_prices(self.prices)
        self._raise_for_terms()

    def started_from(self, prices: Mapping[str, float]) -> "HorizonParameters":
        """Search from there."""
        return replace(self, prices=prices or self.prices)

    def _raise_for_terms(self) -> None:
        """Check what goes with completion times."""
        for name, most in _TERMS.items():
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise InputError(f"{name} is {value}; must be from 0 to {most:g}")
            if value > 0 and self.objective is HorizonObjective.GOODPUT:
                raise InputError(f"{name} is {value}; it goes with the objective completion_time alone: leave it out")
        efficiency = self.backlog_efficiency
        if efficiency is not None and not LEAST_EFFICIENCY <= efficiency <= 1:
            raise InputError(f"backlog_efficiency is {efficiency}; must be from {LEAST_EFFICIENCY} to 1")
        if not 0 <= self.tail_level <= MOST_LEVEL:
            raise InputError(f"tail_level is {self.tail_level}; must be from 0 to {MOST_LEVEL}")
