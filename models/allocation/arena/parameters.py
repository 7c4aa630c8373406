"""What a user may tune in Arena."""

import math
from dataclasses import dataclass
from enum import StrEnum

from models.policy import Parameters
from stowplan.errors import InputError


class ArenaMethod(StrEnum):
    """`heuristic`: Algorithm 1, with the bound of the integer program beside it. `ilp`: the integer program."""

    HEURISTIC = "heuristic"
    ILP = "ilp"


class ArenaAnswer(StrEnum):
    """What the heuristic answers with. `better`: the integer program's point where that is better than Algorithm 1's
    and leaves no job out for too long. `algorithm`: Algorithm 1's, whatever the program has found."""

    BETTER = "better"
    ALGORITHM = "algorithm"


class ArenaObjective(StrEnum):
    """`throughput`: Eq. 5. `deadlines`: as many deadlines as can be met (Eq. 6), by weight, then Eq. 5.
    `finish_time_fairness`: Eq. 7. `completion_time`: Eq. 5, where a job counts the more the sooner it can end."""

    THROUGHPUT = "throughput"
    DEADLINES = "deadlines"
    FINISH_TIME_FAIRNESS = "finish_time_fairness"
    COMPLETION_TIME = "completion_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaParameters(Parameters):
    """Parameters of Arena section 3.5; P and D are the paper's, for the others it gives no value.

    normalise: throughputs count in shares of the job's best one, so that jobs of different models compare; without it
    they count in samples/s, as Eq. 5 is printed, and small models win. For finish-time fairness: finish times in units
    of the job's best one, else in seconds per GPU (Eq. 7).
    num_queues: P; priorities are 1 to P. priority_ratio: a job of one priority counts that many times a job of the
    next, in throughputs, finish times and deadlines; 1 leaves priorities to the queues of the heuristic.
    promotion_after_s: a waiting job rises by one queue every time that it has waited so long (None: never).
    search_depth: D, most jobs that are changed to make room for one. max_scale_ups: most jobs that are scaled up in one
    event (None: while it gains anything; Algorithm 1 stops at D here too).
    horizon_s: over what time a restart is paid for, and how long a job is taken to wait that is left out.
    mean_weight: of the mean beside the maximum of Eq. 7, which alone sees only the worst job.
    urgency: for the completion time, the power of the time left with which a job counts less. longest_wait_s: how old a
    job may get that waits; then, for the completion time, it comes ahead of all throughput, and under other objectives
    the heuristic launches it where Algorithm 1 does (None: it may wait for ever).
    answer: see `ArenaAnswer`.
    counts: GPU counts that may be given (None: every buddy block).

    Raises
    ------
    InputError
        When a value is out of its range.
    """

    method: ArenaMethod = ArenaMethod.HEURISTIC
    answer: ArenaAnswer = ArenaAnswer.BETTER
    objective: ArenaObjective = ArenaObjective.THROUGHPUT
    normalise: bool = True
    num_queues: int = 3
    priority_ratio: float = 2.0
    promotion_after_s: float | None = 3600.0
    search_depth: int = 3
    max_scale_ups: int | None = None
    horizon_s: float = 3600.0
    mean_weight: float = 0.1
    urgency: float = 0.5
    longest_wait_s: float | None = 21_600.0
    counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name, lowest in (("num_queues", 1), ("search_depth", 0), ("max_scale_ups", 0)):
            count = getattr(self, name)
            if count is not None and count < lowest:
                raise InputError(f"{name} is {count}; must be at least {lowest}")
        for name in ("promotion_after_s", "horizon_s", "mean_weight", "longest_wait_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}; must be finite and above 0")
        if not 0 <= self.urgency <= 2:
            raise InputError(f"urgency is {self.urgency}; must be from 0 to 2")
        if not 1 <= self.priority_ratio <= 100:
            raise InputError(f"priority_ratio is {self.priority_ratio}; must be from 1 to 100")
        if self.counts is not None and (not self.counts or min(self.counts) < 1):
            raise InputError(f"counts are {list(self.counts)}; name at least one, all at least 1")
