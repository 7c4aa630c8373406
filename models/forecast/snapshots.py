"""What a forecaster says of the jobs of a snapshot."""

from collections.abc import Sequence

from models.forecast.features import Names
from models.forecast.forecaster import Forecaster, Question
from models.forecast.known import JobForecast, KnownJob, SnapshotForecasts
from workloads.trace import TraceJob


def forecast_jobs(forecaster: Forecaster, jobs: Sequence[KnownJob], at_s: float) -> SnapshotForecasts:
    """Say how much longer jobs last from `at_s` on, seconds since 1970.

    What ended since the forecaster was trained is not known to it. Where its history does not know its time of day, the
    snapshot is one of its last moment. All features but age follow from whose a job is (`features.owner`): of one that
    does not say nothing is forecast.
    """
    origin_s, until_s = forecaster.origin_s, forecaster.trained_until_s
    now_s = until_s if origin_s is None else max(0.0, at_s - origin_s)
    lacking = {job.id: lacks for job in jobs if (lacks := _lacking(job, forecaster.names)) is not None}
    asked = [job for job in jobs if job.id not in lacking]
    found = forecaster.forecast([_question(job, now_s) for job in asked], at_s=now_s) if asked else ()
    return SnapshotForecasts(
        history=forecaster.history,
        trained_until_s=None if origin_s is None else origin_s + until_s,
        at_s=at_s,
        jobs={
            **{id_: JobForecast(lasting=None, lacks=lacks) for id_, lacks in lacking.items()},
            **{job.id: JobForecast(lasting=lasting) for job, lasting in zip(asked, found, strict=True)},
        },
    )


def _lacking(job: KnownJob, names: Names) -> str | None:
    """The field without which nothing can be said of the job."""
    owner = "user" if names.user else "queue" if names.queue else None
    if owner is not None and not getattr(job, owner):
        return owner
    return "running_s" if job.running_s is None else None


def _question(job: KnownJob, now_s: float) -> Question:
    running_s = job.running_s or 0.0
    submitted = TraceJob(
        # Names of histories have no space around them.
        id=job.id.strip() or "-",
        submit_s=max(0.0, now_s - max(job.age_s, running_s)),
        num_gpus=job.num_gpus,
        user=job.user,
        queue=job.queue,
        application=job.application,
        time_limit_s=job.time_limit_s,
    )
    return Question(job=submitted, age_s=running_s)
