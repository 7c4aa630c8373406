"""Parameters of horizon."""

from typing import Annotated

from pydantic import Field

from api.schemas.base import Positive
from api.schemas.policies.base import ParametersDoc, Prices, Quotas
from models.allocation.horizon.parameters import (
    LEAST_EFFICIENCY,
    MOST_ARRIVALS,
    MOST_INTERVALS,
    MOST_LEVEL,
    MOST_PRICE,
    HorizonObjective,
    HorizonParameters,
)


class HorizonParametersDoc(ParametersDoc):
    """Parameters of horizon."""

    planner = HorizonParameters
    asks_for = "Which job gets how many GPUs of which type now, by what each will have until it ends."

    objective: HorizonObjective = HorizonObjective.COMPLETION_TIME
    """completion_time: jobs end as soon as they can on average, by weight, with what tail, fairness, lateness and
    throughput make of that; goodput: Sia's Eq. 4 with its default parameters, which is an objective of one interval
    (num_intervals 1)."""
    interval_s: Positive = 60.0
    """Length of the first interval: about as long as until the next plan."""
    num_intervals: Annotated[int, Field(ge=1, le=MOST_INTERVALS)] = 4
    """How many intervals there are, each longer than the one before; 1 looks at the present alone."""
    horizon_s: Positive | None = None
    """When the last interval ends, at least num_intervals x interval_s; of one interval that. null: with a
    backlog_efficiency after half an hour, one interval after interval_s, or six times the dearest start if that is more
    (of a running job that must move restart_price times its restart_cost_s); without when all that is left can be done,
    one interval after interval_s."""
    restart_price: Annotated[float, Field(ge=0, le=MOST_PRICE)] = 1.0
    """How many times its restart cost a running job loses with a change. For completion_time one that was moved often
    is taken to be moved as often again, and loses as much more."""
    longest_wait_s: Positive | None = 21_600.0
    """How old a job may get that waits; then it comes ahead of all that is not. null: it may wait for ever."""
    tail: Annotated[float, Field(ge=0, le=1)] = 0.0
    """How much of the objective is the mean completion time, from submission, of the longest jobs in place of all:
    conditional value at risk. 1: that alone, so that nobody asks how long the others take."""
    tail_level: Annotated[float, Field(ge=0, le=MOST_LEVEL)] = 0.9
    """Part of the weight of all jobs that is not among the longest."""
    fairness: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Power of the time that a job takes on its fair share of the cluster, by which its times are divided; 1: those of
    finish-time fairness (Themis)."""
    lateness: Annotated[float, Field(ge=0, le=MOST_PRICE)] = 0.0
    """What a second after its deadline_s counts, beside what every second of a job does."""
    throughput: Annotated[float, Field(ge=0, le=MOST_PRICE)] = 0.0
    """What a second of work counts that a job could do within interval_s where it is fastest, and does not."""
    backlog_efficiency: Annotated[float, Field(ge=LEAST_EFFICIENCY, le=1)] | None = 0.5
    """What has not ended with the last interval is done then by all GPUs together, the shortest job first, at this part
    of the speed that they have where each helps most. A horizon_s that is given should be near, but several times what
    starts and changes take. null: a plan to the end of all jobs, in which every job goes on as it is then, whatever
    others need. Counts for completion_time alone."""
    arrivals_per_h: Annotated[float, Field(ge=0, le=MOST_ARRIVALS)] = 0.0
    """How many jobs like those that are there are expected to come in an hour (`stowplan trace` says of a history how
    many did): what they need is kept free in later intervals, half of what there is at most."""
    placement_classes: bool = True
    """Whether it is chosen, too, within what jobs of several nodes lie (a leaf, a minipod, or wherever there is room),
    each as fast as the bandwidth between such nodes lets it be, and whom that moves. false: all are taken to have the
    most that so many nodes of the cluster can have. Says nothing where all tiers have the same bandwidth."""
    alpha: Annotated[float, Field(ge=0, le=1)] | None = None
    """Affinity of DP groups, 1 less that of PP groups, by which nodes and rank order of 3D plans over several minipods
    are those that Arnold gives to them. null: nodes as they are left, near ones one after another."""
    quotas: Quotas
    prices: Prices
