"""What happens to a cluster and its jobs. Times are seconds on the backend's clock."""

from dataclasses import dataclass

from models.plan import JobAllocation
from models.workload import Job
from topology.calendar import CalendarEntry
from topology.cluster import NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job is submitted, or becomes known after it has waited for `job.age_s`. `job.remaining_s` is how long it is
    expected to run, where somebody knows. `allocation`: where it runs already, since somebody else has started it."""

    at_s: float
    job: Job
    allocation: JobAllocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A job has ended; its GPUs are free. `fault`: why it was given up; None: its work is done."""

    at_s: float
    job_id: str
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A running job broke. It waits again, and is expected to run for `remaining_s` from its next start."""

    at_s: float
    job_id: str
    remaining_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """A node is down, up again, or, by a calendar, drained. Jobs that broke with it have a `Failure` each."""

    at_s: float
    node: str
    state: NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A job was measured: it is expected to run for `remaining_s` from now, or from its start while it waits."""

    at_s: float
    job_id: str
    remaining_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarChange:
    """The calendar is known to be this from now on, in place of what was known. Its entries are in seconds on the
    backend's clock."""

    at_s: float
    entries: tuple[CalendarEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The time for which the controller asked to be woken."""

    at_s: float


Event = Arrival | Completion | Failure | NodeChange | Measurement | CalendarChange | Tick
