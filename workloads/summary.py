"""What a trace holds, in figures."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from stowplan.arrays import FloatVector
from workloads.trace import JobState, Trace, TraceArrays, TraceJob

_S_PER_HOUR = 3600.0
# What the others say already: they are always known, or have a figure of their own.
_ALWAYS_KNOWN = ("id", "submit_s", "num_gpus", "gpu_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a figure is spread over the jobs of which it is known."""

    num_jobs: int
    mean: float
    median: float
    p95: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """The jobs of one number of GPUs. `gpu_hours`: of those whose durations are known."""

    num_gpus: int
    num_jobs: int
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """Figures of a trace.

    `span_s` is the time from the first submission to the last, `gpu_jobs_per_h` how many jobs with GPUs came in an hour
    of it (None: of a moment). `gpu_hours` counts whole GPUs, of jobs whose durations
    are known. `mean_wanted_gpus` is these over the span: the load, None where nothing is known of it.
    `most_wanted_gpus` would be busy at one moment had no job waited. `num_sharing` jobs asked for a part of their GPUs;
    `num_cut_off` ran when they were last seen, and may take longer than their durations. The counts by state, queue,
    GPU type and application begin with the largest. `missing` counts the jobs with GPUs of which the trace does not say
    something, by field.
    """

    name: str
    origin_s: float | None
    num_jobs: int
    num_gpu_jobs: int
    num_users: int
    num_sharing: int
    num_cut_off: int
    first_submit_s: float | None
    last_submit_s: float | None
    span_s: float
    gpu_jobs_per_h: float | None
    gpu_hours: float
    mean_wanted_gpus: float | None
    most_wanted_gpus: int
    sizes: tuple[SizeClass, ...]
    duration_s: Spread | None
    waited_s: Spread | None
    states: Mapping[str, int]
    queues: Mapping[str, int]
    gpu_types: Mapping[str, int]
    applications: Mapping[str, int]
    missing: Mapping[str, int]
    left_out: Mapping[str, int]


def summarise(trace: Trace) -> TraceSummary:
    """Compute the figures."""
    arrays = trace.arrays()
    with_gpus = [job for job in trace.jobs if job.num_gpus > 0]
    span_s = float(arrays.submit_s[-1] - arrays.submit_s[0]) if trace.jobs else 0.0
    gpu_s = float(arrays.gpu_s.sum())
    return TraceSummary(
        name=trace.name,
        origin_s=trace.origin_s,
        num_jobs=len(trace.jobs),
        num_gpu_jobs=len(with_gpus),
        num_users=len({job.user for job in trace.jobs} - {None}),
        num_sharing=sum(job.gpu_share < 1 for job in with_gpus),
        num_cut_off=sum(job.state is JobState.RUNNING for job in with_gpus),
        first_submit_s=float(arrays.submit_s[0]) if trace.jobs else None,
        last_submit_s=float(arrays.submit_s[-1]) if trace.jobs else None,
        span_s=span_s,
        gpu_jobs_per_h=len(with_gpus) / span_s * _S_PER_HOUR if span_s > 0 else None,
        gpu_hours=gpu_s / _S_PER_HOUR,
        mean_wanted_gpus=gpu_s / span_s if span_s > 0 and gpu_s > 0 else None,
        most_wanted_gpus=_most_wanted(arrays),
        sizes=_sizes(arrays),
        duration_s=_spread(job.duration_s for job in with_gpus),
        waited_s=_spread(job.waited_s for job in with_gpus),
        states=_counts(job.state for job in trace.jobs),
        queues=_counts(job.queue for job in trace.jobs),
        gpu_types=_counts(job.gpu_type for job in trace.jobs),
        applications=_counts(job.application for job in trace.jobs),
        missing=_missing(with_gpus),
        left_out=dict(trace.left_out),
    )


def _most_wanted(arrays: TraceArrays) -> int:
    """GPUs at the busiest moment, had every job begun when it was submitted; what ends makes room for what begins."""
    known = ~np.isnan(arrays.duration_s) & (arrays.duration_s > 0)
    begins, sizes = arrays.submit_s[known], arrays.num_gpus[known]
    if not begins.size:
        return 0
    times = np.concatenate([begins + arrays.duration_s[known], begins])
    changes = np.concatenate([-sizes, sizes])
    # Stable, and ends stand in front.
    return int(np.cumsum(changes[np.argsort(times, kind="stable")]).max())


def _sizes(arrays: TraceArrays) -> tuple[SizeClass, ...]:
    sizes, inverse, counts = np.unique(arrays.num_gpus, return_inverse=True, return_counts=True)
    hours = np.bincount(inverse, weights=arrays.gpu_s, minlength=len(sizes)) / _S_PER_HOUR
    return tuple(
        SizeClass(num_gpus=int(size), num_jobs=int(count), gpu_hours=float(used))
        for size, count, used in zip(sizes, counts, hours, strict=True)
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    known: FloatVector = np.array([value for value in values if value is not None], dtype=np.float64)
    if not known.size:
        return None
    median, p95 = np.percentile(known, (50, 95))
    return Spread(
        num_jobs=known.size, mean=float(known.mean()), median=float(median), p95=float(p95), most=float(known.max())
    )


def _counts(words: Iterable[str | None]) -> dict[str, int]:
    return {str(word): count for word, count in Counter(words).most_common() if word is not None}


def _missing(jobs: Iterable[TraceJob]) -> dict[str, int]:
    names = [fact.name for fact in fields(TraceJob) if fact.name not in _ALWAYS_KNOWN]
    jobs = list(jobs)
    counts = {name: sum(getattr(job, name) is None for job in jobs) for name in names}
    return {name: count for name, count in counts.items() if count}
