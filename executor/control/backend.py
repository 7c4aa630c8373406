"""What the controller asks of a cluster, real or simulated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from executor.control.actions import Action
from executor.control.events import Event
from models.performance.goodput.spec import Performance
from models.performance.iteration.coefficients import Calibration
from models.plan import JobAllocation
from models.workload import Job
from topology.calendar import CalendarEntry
from topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A job that has not ended: `job` as it was submitted at `submitted_s`; `allocation` where it runs, if it does.

    remaining_s: how long it is expected to run, from `since_s` on where it runs, else from its next start (None: not
    known). num_starts: how often it got GPUs, or others. attained_gpu_s: GPUs x seconds that it had until `since_s`;
    attained_s: seconds by GPU type.
    """

    job: Job
    submitted_s: float
    since_s: float
    remaining_s: float | None
    num_starts: int = 0
    attained_gpu_s: float = 0.0
    attained_s: Mapping[str, float] = field(default_factory=dict)
    allocation: JobAllocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Nodes with their states, the jobs that have not ended by submission, and the calendar on the backend's clock."""

    cluster: Cluster
    jobs: tuple[JobFacts, ...]
    calendar: tuple[CalendarEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What is known of a job that was not when it came; None: nothing else than then. iterations_left: above 0.
    calibration: coefficients of its model. restart_cost_s: what it loses when it gets other GPUs. is_starting: it has
    GPUs and does not work yet."""

    iterations_left: float | None = None
    performance: Performance | None = None
    calibration: Calibration | None = None
    max_gpus: int | None = None
    restart_cost_s: float | None = None
    is_starting: bool = False


class ClusterBackend(Protocol):
    """A cluster."""

    @property
    def now_s(self) -> float:
        """Its clock: the instant up to which events were told. It stands still while a decision is made."""

    def facts(self) -> Facts:
        """What runs where now, for a controller that takes over."""

    def measured(self, job_id: str) -> Measured:
        """What is known by now of a job that came with its performance, or with what it trains."""

    def next_events(self) -> Sequence[Event]:
        """Wait for what happens next: all that has happened until an instant, which is `now_s` then. Empty: nothing
        ever will, or nobody is to wait for it any more."""

    def wake_at(self, at_s: float) -> None:
        """Ask for a `Tick`, in place of one that was asked for before."""

    def act(self, actions: Sequence[Action], late_s: float = 0.0) -> None:
        """Carry out what was decided on, all of it at once: what one job gives back another may get. Returns before
        all is done where that takes time; what cannot be done is an event later: a `Failure` where the job may be
        placed again, else a `Completion` with its fault. Under a virtual clock the decision took `late_s`, for which
        whoever is placed does no work."""
