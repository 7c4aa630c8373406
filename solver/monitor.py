"""How a running solve talks to whoever waits for it: progress out, cancel in."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from stowplan.arrays import FloatVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Progress:
    """State of a running solve; None where nothing is known yet.

    `elapsed_s` counts from the start of the solve. `incumbent` (n,) is given only when it is new.
    """

    elapsed_s: float
    objective: float | None = None
    bound: float | None = None
    incumbent: FloatVector | None = None
    num_nodes: int | None = None

    def __reduce__(self) -> tuple[Callable[..., "Progress"], tuple[Any, ...]]:
        """Of points that choose few columns among many only these are sent."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.incumbent is not None:
            used = np.flatnonzero(self.incumbent)
            if 2 * used.size < self.incumbent.size:
                values["incumbent"] = self.incumbent.size, used, self.incumbent[used]
        return _received, (type(self), values)

    def after(self, earlier: "Progress") -> "Progress":
        """The newest of everything: what is not known here is kept from `earlier`."""
        return replace(
            self,
            objective=earlier.objective if self.objective is None else self.objective,
            bound=earlier.bound if self.bound is None else self.bound,
            incumbent=earlier.incumbent if self.incumbent is None else self.incumbent,
            num_nodes=earlier.num_nodes if self.num_nodes is None else self.num_nodes,
        )


def _received(kind: type[Progress], values: dict[str, Any]) -> Progress:
    if isinstance(values["incumbent"], tuple):
        size, used, chosen = values["incumbent"]
        values["incumbent"] = point = np.zeros(size)
        point[used] = chosen
    return kind(**values)


def _ignore(_: object) -> None:
    """Drop what nobody listens to."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolveMonitor:
    """`on_progress` may be called from a solver thread; `canceled` set from any thread ends the solve early,
    keeping the best incumbent. `tells` is given what a task has found on its way, once: whoever waits for it
    has that early, or with the end. `keeps` is told the names of what this process keeps for later tasks, in place of
    what it has told before."""

    on_progress: Callable[[Progress], None] = _ignore
    tells: Callable[[object], None] = _ignore
    keeps: Callable[[Sequence[str]], None] = _ignore
    canceled: threading.Event = field(default_factory=threading.Event)
