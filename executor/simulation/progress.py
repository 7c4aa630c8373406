"""What has become of the jobs of a simulation, and what it takes to go on with one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from executor.simulation.truth import Seen
from models.plan import JobAllocation
from models.workload import Job, NodeGpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job as it is submitted."""

    at_s: float
    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time for which a job had these GPUs."""

    start_s: float
    end_s: float
    gpus: tuple[NodeGpus, ...]

    @property
    def num_gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(len(part.gpus) for part in self.gpus)


@dataclass(slots=True, kw_only=True)
class Progress:
    """What has become of a job.

    done: work that counts; lost: that was done, and lost when the job broke. restarts: how often it got GPUs again, or
    others, by `Change` (started: it had none). gpu_s, held_s: GPU seconds and seconds for which it had GPUs. allocation
    (None: it waits or has ended) since `since_s`; works from `works_s` on (before, its speed is 0) at `speed` with a
    global `batch` until so much is done, which is at `ends_s` unless something comes between; then it ends, or goes on
    at another speed. seen: what it has measured. expected_s: how long it is said to run from `since_s`, or from its
    next start. spans: what it had before `since_s`.
    """

    job_id: str
    submitted_s: float
    done: float = 0.0
    lost: float = 0.0
    gpu_s: float = 0.0
    held_s: float = 0.0
    expected_s: float | None = None
    num_starts: int = 0
    restarts: Mapping[str, int] = field(default_factory=dict)
    num_failures: int = 0
    started_s: float | None = None
    ended_s: float | None = None
    allocation: JobAllocation | None = None
    since_s: float = 0.0
    works_s: float = 0.0
    speed: float = 0.0
    until: float | None = None
    ends_s: float = 0.0
    batch: int | None = None
    seen: tuple[Seen, ...] = ()
    spans: tuple[Span, ...] = ()

    def done_at(self, now_s: float) -> float:
        """Work that is done, what is not yet credited included."""
        if self.allocation is None:
            return self.done
        return self.done + self.speed * max(0.0, now_s - max(self.since_s, self.works_s))

    def account(self, now_s: float) -> None:
        """Credit what was done since the last time."""
        if self.allocation is not None:
            self.done = self.done_at(now_s)
            self.gpu_s += self.allocation.num_gpus * (now_s - self.since_s)
            self.held_s += now_s - self.since_s
            if now_s > self.since_s:
                span = Span(start_s=self.since_s, end_s=now_s, gpus=self.allocation.gpus)
                self.spans = (*self.spans, span)
            if self.expected_s is not None:
                self.expected_s = max(0.0, self.expected_s - (now_s - self.since_s))
            self.since_s = now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationState:
    """A simulation at a moment between two events: how far it is in the submissions and changes, and every job
    that was submitted."""

    now_s: float
    num_submitted: int
    num_changes: int
    wake_s: float | None
    has_changed: bool
    jobs: tuple[Progress, ...]
