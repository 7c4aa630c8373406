"""Replays as clients see them: their life, how far they are, and what came out."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.base import Document
from api.schemas.plan import FailureDoc


class ReplayStatus(StrEnum):
    """Life of a replay, and of all that were asked for together: queued, running, and then one of the final states.

    succeeded: to the end, or the horizon. timed_out: its limit of wall-clock time struck; the figures count until where
    it was. canceled: by a client; interrupted: the service stopped meanwhile; both keep the figures that there are.
    failed: see `failure`. All together have failed when one has, and timed out when one has.
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (ReplayStatus.QUEUED, ReplayStatus.RUNNING)


class DistributionDoc(Document):
    """Of a figure over jobs or decisions; all 0 where there are none."""

    mean: float
    median: float
    p95: float
    p99: float
    most: float


class DecisionFiguresDoc(Document):
    """How often the policy was asked, and not asked because no plan could have changed anything or no round was due."""

    num_planned: int
    num_skipped: int
    total_cpu_s: float
    cpu_s: DistributionDoc
    """CPU seconds of planning."""


class ReplayFiguresDoc(Document):
    """What a policy made of a trace. All jobs that were submitted count, those that did not end until the horizon."""

    trace: str
    policy: str
    parameters: dict[str, str]
    """Those of the policy that are not as usual."""
    seed: int
    num_gpus: int
    horizon_s: float | None
    num_jobs: int
    num_finished: int
    num_left_out: int
    """Jobs of the trace of which it is not known how long they run."""
    completion_s: DistributionDoc
    """From submission to end (JCT)."""
    weighted_completion_s: float
    """Its mean by GPUs asked for."""
    floor_completion_s: float
    """Mean of the jobs each alone on the cluster: no policy can be below."""
    waited_s: DistributionDoc
    makespan_s: float
    """From the first submission to the last end."""
    utilisation: float
    """Share of GPU time in which a GPU had a job, until then."""
    gpu_hours: float
    restarts: dict[str, float]
    """Of a job on average: started (again), moved, rescaled, retyped."""
    failures: int
    num_deadlines: int
    num_deadlines_met: int
    most_unfair: float
    """Largest finish-time fairness of a job (Themis): above 1 it would have fared better with a share of its own."""
    unfair_share: float
    """How many jobs are above 1."""
    decisions: DecisionFiguresDoc
    other_cpu_s: float
    """CPU time of the replay beside planning."""
    stopped_s: float | None = None
    """When, on the virtual clock, it was stopped before its end, which counts as the horizon then."""


class ReplayGpusDoc(Document):
    """GPUs of one node."""

    node: str
    gpus: tuple[int, ...]


class ReplaySpanDoc(Document):
    """A time for which a job had these GPUs."""

    start_s: float
    end_s: float
    gpus: tuple[ReplayGpusDoc, ...]


class ReplayedJobDoc(Document):
    """What became of a job, with times of the replay."""

    id: str
    num_gpus: int
    """What it asked for."""
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    """Null: it had not ended."""
    completion_s: float
    """From submission to end or horizon, `waited_s` of which it had no GPUs."""
    waited_s: float
    restarts: dict[str, int]
    num_failures: int
    gpu_s: float
    """GPU seconds of it."""
    alone_s: float
    """From submission to end with the cluster to itself."""
    met_deadline: bool | None
    """Null where it has none."""
    unfairness: float
    """Finish-time fairness."""
    spans: tuple[ReplaySpanDoc, ...]


class ReplayResultDoc(ReplayFiguresDoc):
    """Figures of a replay, and all its jobs."""

    jobs: tuple[ReplayedJobDoc, ...]


class ReplayReportDoc(Document):
    """What `stowplan replay --json` gives: every replay that has figures, by policy and then by seed."""

    replays: tuple[ReplayResultDoc, ...]


class ReplayRunDoc(Document):
    """One replay: how far it is, and its figures when it has ended, or was stopped."""

    policy: str
    parameters: dict[str, str]
    """Those of the policy that are not as usual."""
    seed: int
    status: ReplayStatus = ReplayStatus.QUEUED
    num_ended: int = 0
    """Jobs, of `num_jobs`."""
    now_s: float = 0.0
    """Its virtual clock."""
    elapsed_s: float = 0.0
    """Wall-clock time that it took so far."""
    figures: ReplayFiguresDoc | None = None
    """Null, too, where a decision went on long after the limit and was killed: with it all before it is lost."""
    failure: FailureDoc | None = None


class ReplayProgressDoc(Document):
    """How far all replays are together."""

    num_jobs: int
    """Of all replays."""
    num_ended: int
    num_replays: int
    num_done: int


class ReplayTimesDoc(Document):
    """When each state was reached (UTC); null: not reached."""

    queued: datetime
    running: datetime | None = None
    finished: datetime | None = None


class ReplayLinksDoc(Document):
    """Where to go from here (paths)."""

    self: str
    events: str
    report: str
    figure: str | None = None
    """Null while there is nothing to draw."""
    figure_png: str | None = None


class ReplaySummary(Document):
    """One line of the list of replays."""

    id: str
    status: ReplayStatus
    trace: str
    """Name of the trace."""
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    times: ReplayTimesDoc
    links: ReplayLinksDoc


class ReplayDoc(ReplaySummary):
    """Replays of a trace that were asked for together."""

    num_gpus: int
    num_jobs: int
    """Jobs that each replay has; of modelled jobs at most, until a replay has ended."""
    num_left_out: int
    """Jobs of the trace of which it is not known how long they run; the others are `num_jobs`."""
    time_limit_s: float
    """Of each replay."""
    longest_s: float
    """They end at the latest this many seconds after the first began to run."""
    input_hash: str = Field(examples=["sha256:9f2c"])
    """SHA-256 of the input with defaults filled in."""
    version: str
    """Version of Stowplan that replayed."""
    progress: ReplayProgressDoc
    replays: tuple[ReplayRunDoc, ...]
    """By policy, then by seed, in the order asked for."""
    failure: FailureDoc | None = None


class ReplayStateEventDoc(Document):
    """Data of the event `state`: of a replay, by its place in `replays`, or of all (null)."""

    status: ReplayStatus
    replay: int | None


class ReplayProgressEventDoc(Document):
    """Data of the event `progress`: how far a replay is."""

    replay: int
    num_ended: int
    num_jobs: int
    now_s: float
    """Its virtual clock."""
    elapsed_s: float


REPLAY_EVENT_DATA = (ReplayStateEventDoc, ReplayProgressEventDoc)


class ReplayPageQuery(BaseModel):
    """Query parameters of the list of replays. Not strict: what stands in a URL is text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """Replays per page."""
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """Cursor of the next page; see `next`."""


class ReplayList(Document):
    """A page of replays, newest first."""

    replays: tuple[ReplaySummary, ...]
    next: str | None
    """Path of the next page; null on the last one."""
