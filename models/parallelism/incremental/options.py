"""How far the incremental planner looks."""

import math
from dataclasses import dataclass
from enum import StrEnum

from stowplan.errors import InputError


class MicroBatches(StrEnum):
    """Numbers of micro-batches N_b that plans may have: every divisor of the global batch, or that of the base plan."""

    FREE = "free"
    KEPT = "kept"


class Scaling(StrEnum):
    """Degrees that more or fewer GPUs may change: those of all three dimensions, or data degrees only (Suika-DP of
    section 5.1)."""

    THREE_D = "3d"
    DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalOptions:
    """The prunings of Algorithm 1 (Suika section 3.2.2), N GPUs in the plan, M released.

    `window`: prefixes whose plans a plan may come from, the closest ones (W); None: all of them. `unit`: GPUs of one
    node that are added together (w); None: min(ceil(N / 16), 8). `expansion_limit`: stop when the plan has grown by
    this multiple of N (the paper: M about N); None: no early stop. `micro_batches`: the paper keeps N_b, which costs
    several percent where degrees grow; a model with a micro-batch of its own keeps that. `tolerance`: how much slower
    than the best a plan with another N_b may be to be built upon; 0: only the best is. `scaling`: which degrees may
    change.

    Raises
    ------
    InputError
        When a number is not positive.
    """

    window: int | None = 8
    unit: int | None = None
    expansion_limit: float | None = 1.0
    micro_batches: MicroBatches = MicroBatches.FREE
    tolerance: float = 0.05
    scaling: Scaling = Scaling.THREE_D

    def __post_init__(self) -> None:
        for name in ("window", "unit", "expansion_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value}; must be above 0, or null for the default")
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise InputError(f"tolerance is {self.tolerance}; must be finite and at least 0")

    def unit_of(self, num_gpus: int) -> int:
        """w for a plan of N GPUs."""
        return self.unit or min(math.ceil(num_gpus / 16), 8)

    def most_added(self, num_gpus: int) -> float:
        """GPUs after which a plan of N GPUs grows no further."""
        return math.inf if self.expansion_limit is None else self.expansion_limit * num_gpus
