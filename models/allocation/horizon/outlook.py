"""What is planned behind the present: the schedules that have a share, in the words of a cluster. Light."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Shape = tuple[str, int, int, float]
"""GPU type, nodes, GPUs, and the share of the bandwidth between nodes that these have, or more; 1 for one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A schedule of a job and its share: what it has now, what it changes to and when; None: nothing, or never. moves:
    it leaves its nodes for others of the same shape."""

    share: float
    now: Shape | None
    later: Shape | None
    change_s: float | None
    moves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Schedules of the planned jobs by id; `bounds_s` of the intervals; GPUs by type that are open in each of them.
    tiers: by GPU type and share of the bandwidth the tier within one unit of which nodes have it, where jobs are placed
    by that; None where they are not."""

    bounds_s: Sequence[float]
    open_gpus: Mapping[str, Sequence[float]]
    planned: Mapping[str, Sequence[Planned]]
    tiers: Mapping[tuple[str, float], str] | None = None
