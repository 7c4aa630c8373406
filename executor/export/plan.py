"""What formats of a whole plan are made of, and what they give: a hand-over to a scheduler that has the queue."""

from collections.abc import Mapping
from dataclasses import dataclass

from models.plan import Plan
from models.workload import Snapshot
from stowplan.errors import Issue


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPlan:
    """A plan of any policy, and what was planned: its jobs, where they ran, and the calendar.

    `taken_at_s`: the moment of the snapshot in seconds since 1970, None where nobody has said one.
    """

    plan: Plan
    snapshot: Snapshot
    taken_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFiles:
    """Text by name of file. `notes`: what the scheduler cannot be told, or was not; warnings with pointers into the
    plan."""

    files: Mapping[str, str]
    notes: tuple[Issue, ...] = ()
