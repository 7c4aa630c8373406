"""What a controller was told of a cluster, and how patient the connection is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.workload import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """`settle_s`: what changes within it is one event to decide on. `unread_s`: for how long the API may not answer, or
    what it says not be understood, before that ends the connection. `tries`: how often a gang is tried whose pods
    cannot be patched, `pause_s` later, and twice as late each time. `calendar_s`: how often the calendar is asked
    for."""

    settle_s: float = 1.0
    unread_s: float = 600.0
    tries: int = 5
    pause_s: float = 2.0
    calendar_s: float = 60.0


@dataclass(slots=True, kw_only=True)
class Told:
    """A job that the controller knows.

    `counts`: its GPUs by node, of others' jobs as they were seen. Of ours, once they were placed: `nodes` of their pods
    in rank order, `started` the uids of the pods that were let go, and after `failures` when they are tried again.
    """

    job: Job
    submitted_s: float
    is_ours: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[str, ...] | None = None
    since_s: float = 0.0
    num_starts: int = 0
    started: frozenset[str] = frozenset()
    failures: int = 0
    due_s: float = 0.0
