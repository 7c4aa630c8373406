"""What rank 0 of a run did when, beside its steps: by that the parts of a stall are told apart (`executor.stall`).

Little but the standard library is loaded here: a rank begins with it.
"""

import time
from dataclasses import dataclass
from enum import StrEnum

from executor.movement import Movement

# In the folder of a run's metrics, written by rank 0 when it begins its first step.
START_FILE = "start.json"


class Activity(StrEnum):
    """imports: of libraries. meeting: of the ranks. building: model and optimiser. waiting: for another run to end.
    transfer: the state comes from the ranks of that run. conversion: a checkpoint is looked for, and put into another
    layout where it must. loading: of that. saving: the checkpoint with which a run ends.
    """

    IMPORTS = "imports"
    MEETING = "meeting"
    BUILDING = "building"
    WAITING = "waiting"
    TRANSFER = "transfer"
    CONVERSION = "conversion"
    LOADING = "loading"
    SAVING = "saving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An activity; seconds, `from_s` since 1970."""

    activity: Activity
    from_s: float
    seconds: float

    @property
    def to_s(self) -> float:
        """Its end."""
        return self.from_s + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Spans from the beginning of rank 0 to its first step; `movement`: of the state, where that came without a
    checkpoint."""

    spans: tuple[Span, ...]
    movement: Movement | None = None


class Timeline:
    """Takes the time of one activity after the other; the first one begins now.

    The time of day is read once: what sets it meanwhile changes no length.
    """

    def __init__(self, activity: Activity) -> None:
        self._offset_s = time.time() - time.perf_counter()
        self._begun = [(activity, time.perf_counter())]

    def begin(self, activity: Activity) -> None:
        """End one activity and begin the next."""
        self._begun.append((activity, time.perf_counter()))

    def end(self) -> Start:
        """All until now."""
        ends_s = [begin_s for _, begin_s in self._begun[1:]] + [time.perf_counter()]
        return Start(
            spans=tuple(
                Span(activity=activity, from_s=begin_s + self._offset_s, seconds=end_s - begin_s)
                for (activity, begin_s), end_s in zip(self._begun, ends_s, strict=True)
            )
        )
