"""Parameters of Arena."""

from typing import Annotated

from pydantic import Field

from api.schemas.base import NumGpus, Positive
from api.schemas.policies.base import ParametersDoc
from models.allocation.arena.parameters import ArenaAnswer, ArenaObjective, ArenaParameters


class ArenaParametersDoc(ParametersDoc):
    """Parameters of Arena section 3.5; `num_queues` and `search_depth` are the paper's."""

    planner = ArenaParameters
    asks_for = "Which job gets how many GPUs of which type with which 3D plan; arena: Algorithm 1, arena-ilp: Eqs. 5-7."

    objective: ArenaObjective = ArenaObjective.THROUGHPUT
    """throughput: Eq. 5; deadlines: as many deadlines as can be met (Eq. 6), by weight, then Eq. 5;
    finish_time_fairness: Eq. 7; completion_time: Eq. 5, where a job counts the more the sooner it can end."""
    normalise: bool = True
    """Throughputs count in shares of the job's best one; without it in samples/s, and small models win."""
    num_queues: Annotated[int, Field(ge=1, le=1000)] = 3
    """Priorities are 1 (first) to this."""
    priority_ratio: Annotated[float, Field(ge=1, le=100)] = 2.0
    """How many times a job of one priority counts against a job of the next."""
    promotion_after_s: Positive | None = 3600.0
    """A waiting job rises by one queue every time that it has waited so long (null: never)."""
    search_depth: Annotated[int, Field(ge=0, le=1000)] = 3
    """Heuristic: most jobs that are scaled down to launch one."""
    max_scale_ups: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Heuristic: most jobs that are scaled up in one event (null: while it gains anything)."""
    horizon_s: Positive = 3600.0
    """Over what time a restart is paid for, and how long a job is taken to wait that is left out."""
    mean_weight: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    """Finish-time fairness: weight of the mean beside the maximum."""
    urgency: Annotated[float, Field(ge=0, le=2)] = 0.5
    """Completion time: a job counts by its time left to minus this power (0: not at all)."""
    longest_wait_s: Positive | None = 21_600.0
    """Completion time: a job that waits and is older comes ahead of all throughput; heuristic: it is launched where
    Algorithm 1 launches it (null: never)."""
    answer: ArenaAnswer = ArenaAnswer.BETTER
    """Heuristic: the integer program's point where it is better, or Algorithm 1's whatever the program has found."""
    counts: Annotated[tuple[NumGpus, ...], Field(min_length=1, max_length=1000)] | None = None
    """GPU counts that may be given (null: every buddy block)."""
