"""What the searches of Arnold's placements answer."""

from collections.abc import Callable
from dataclasses import dataclass

from stowplan.arrays import IntMatrix

Report = Callable[[IntMatrix, float], None]
"""Takes every better solution, with the bound known by then."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchAnswer:
    """`solution`: the minipod of every node of a group (G, g); for Eq. 2 of every cell (R, C); over weighted tiers
    whole nodes per group and bin (G, B). None when too few nodes are free. `certificate` says what proves `bound`.

    `proven`: the bound is the objective, or it is proven that there is no solution.
    """

    solution: IntMatrix | None
    objective: float | None
    bound: float | None
    certificate: str
    proven: bool
