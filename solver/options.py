"""What a caller may ask of a solve. Every solve has a time limit."""

import math
from dataclasses import dataclass
from pathlib import Path

from stowplan.arrays import FloatVector
from stowplan.errors import InputError
from stowplan.pickling import quickly_pickled

DEFAULT_TIME_LIMIT_S = 60.0


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolveOptions:
    """Limits and settings of one solve.

    `solver` is a name of `solver.registry`. `time_limit_s` is wall-clock time. `relative_gap` is |objective - bound| /
    max(|objective|, 1e-10); a solve that proves it ends as optimal. `warm_start` is a point (n,), NaN where unknown; a
    backend that cannot use it ignores it. `prices` (m,) are what a unit of each row was worth in a similar problem (a
    result has them); a backend that prices rows starts from there. `sub_programs`: whether a backend
    may look for points by programs of its own, and begin anew when much is fixed; where a relaxation left little open,
    these take longer than all else. `log` names a file for the solver's own log.

    Raises
    ------
    InputError
        When a limit is not positive and finite, the gap is negative, or the thread count is below one.
    """

    solver: str = "highs"
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    relative_gap: float = 1e-4
    threads: int = 1
    seed: int = 0
    warm_start: FloatVector | None = None
    prices: FloatVector | None = None
    sub_programs: bool = True
    log: Path | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.time_limit_s) and self.time_limit_s > 0):
            raise InputError(f"time_limit_s is {self.time_limit_s}; must be finite and above 0")
        if not (math.isfinite(self.relative_gap) and self.relative_gap >= 0):
            raise InputError(f"relative_gap is {self.relative_gap}; must be finite and at least 0")
        if self.threads < 1:
            raise InputError(f"threads is {self.threads}; must be at least 1")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed is {self.seed}; must be in [0, 2**31)")
