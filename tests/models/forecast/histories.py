"""Made-up histories: who submits tells how long a job takes."""

import random

from workloads.trace import JobState, Trace, TraceJob, sorted_trace

DAY_S = 86400.0


def made_history(num_jobs: int = 600, seed: int = 0, name: str = "made") -> Trace:
    """Every minute a job: those of anna take about 2 minutes, those of bert about 2 hours."""
    rng = random.Random(seed)  # noqa: S311 - made-up jobs
    jobs = []
    for k in range(num_jobs):
        user, scale_s = rng.choice((("anna", 120.0), ("bert", 7200.0)))
        jobs.append(
            TraceJob(
                id=f"j{k}",
                submit_s=60.0 * k,
                num_gpus=rng.choice((1, 8)),
                duration_s=round(scale_s * rng.lognormvariate(0.0, 0.4), 1),
                user=user,
                state=JobState.COMPLETED,
            )
        )
    return sorted_trace(name, jobs, origin_s=20_000 * DAY_S)


def job(id_: str, submit_s: float, duration_s: float | None, **others: object) -> TraceJob:
    """A job of one GPU."""
    return TraceJob(id=id_, submit_s=submit_s, num_gpus=1, duration_s=duration_s, **others)  # type: ignore[arg-type]
