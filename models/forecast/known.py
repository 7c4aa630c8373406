"""What a snapshot says of its jobs to a forecaster, and what that says of them. Light: loads nothing that forecasts."""

from collections.abc import Iterator
from dataclasses import dataclass

from models.forecast.lasting import Lasting
from models.workload import Job, Snapshot
from topology.cluster import NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """A job of which nobody says how long it lasts. `num_gpus`: those that it runs on, else those that it waits for.

    `age_s`: since its submission; `running_s`: for how long it has run, 0 of one that waits, None of one that runs and
    does not say.
    """

    id: str
    num_gpus: int
    age_s: float
    running_s: float | None
    user: str | None = None
    queue: str | None = None
    application: str | None = None
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForecast:
    """How much longer a job lasts; without `lasting` it is not known, for want of the field `lacks`, or (None) because
    it lasts longer than anything that the forecaster has seen."""

    lasting: Lasting | None
    lacks: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotForecasts:
    """What a forecaster says of the jobs of a snapshot, by their ids. `history` is what it was trained on, until
    `trained_until_s`; `at_s` is the moment of the snapshot: seconds since 1970, None where its history does not know
    its time of day."""

    history: str
    trained_until_s: float | None
    at_s: float
    jobs: dict[str, JobForecast]


def unforeseen_jobs(snapshot: Snapshot) -> Iterator[KnownJob]:
    """The jobs of which neither the snapshot says how long they last, nor planning ahead finds it out."""
    down = {node.id for node in snapshot.cluster.nodes if node.state is NodeState.DOWN}
    for job in snapshot.jobs:
        # What is said to run on a node that is down waits.
        runs = bool(job.current) and not any(part.node in down for part in job.current or ())
        if job.lasting is None and job.remaining_s is None and not (_is_computed(job) and not runs):
            yield _known(job, runs=runs)


def _is_computed(job: Job) -> bool:
    """Whether planning ahead computes how long the job lasts, by its plan and what it trains."""
    is_ahead = job.parallelism is not None or job.latest_start_s is not None
    return is_ahead and job.transformer is not None and job.remaining_iterations is not None


def _known(job: Job, *, runs: bool) -> KnownJob:
    num_gpus = job.min_gpus if job.parallelism is None else job.parallelism.num_gpus
    running_s: float | None = 0.0
    if runs:
        num_gpus = sum(len(part.gpus) for part in job.current or ())
        running_s = job.running_s
        if running_s is None and job.attained_gpu_s > 0:
            running_s = job.attained_gpu_s / num_gpus
    return KnownJob(
        id=job.id,
        num_gpus=num_gpus,
        age_s=job.age_s,
        running_s=running_s,
        user=_name(job.user),
        queue=_name(job.queue),
        application=_name(job.application),
        time_limit_s=job.time_limit_s,
    )


def _name(text: str | None) -> str | None:
    """A name as histories have it: without space around."""
    return (text or "").strip() or None
