"""What is planned behind the present: the schedules that have a share, in the words of a cluster. Light."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Shape = tuple[str, int, int]
"""GPU type, nodes and GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A schedule of a job and its share: what it has now, what it changes to and when; None: nothing, or never."""

    share: float
    now: Shape | None
    later: Shape | None
    change_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Schedules of the planned jobs by id; `bounds_s` of the intervals; GPUs by type that are open in each of them."""

    bounds_s: Sequence[float]
    open_gpus: Mapping[str, Sequence[float]]
    planned: Mapping[str, Sequence[Planned]]
