"""What a site knows of its jobs at a moment: who began when, lasted how long, and has ended.

Jobs that never began, or whose durations nobody knows, say nothing of how long jobs take. Those that run at the end of
a history are censored: they last at least as long as they did until then, and are not among those that ended.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stowplan.arrays import FloatVector, Mask
from stowplan.errors import InputError, Issue
from workloads.trace import JobState, Trace, TraceJob

# Below it there are no 20 jobs to test on, of whom a quantile of 90 % says anything.
MIN_ENDED = 200
# Above it the oldest ones are left out: what is long ago says little, and learning takes memory for each.
MAX_JOBS = 200_000
# Times are told apart on a logarithmic scale, which needs a least one.
LEAST_S = 1.0
_NOT_OVER = (JobState.RUNNING, JobState.WAITING)


# No slots: the columns are cached in the instance.
@dataclass(frozen=True, kw_only=True)
class History:
    """Jobs that began, by submission, and the last moment of which something is known, in seconds of the trace.

    `left_out` counts the jobs that say nothing of durations, by reason.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    origin_s: float
    now_s: float
    left_out: Mapping[str, int]

    @cached_property
    def submit_s(self) -> FloatVector:
        """When each was submitted, (jobs,)."""
        return np.array([job.submit_s for job in self.jobs], dtype=np.float64)

    @cached_property
    def start_s(self) -> FloatVector:
        """When each began, (jobs,)."""
        return self.submit_s + np.array([job.waited_s or 0.0 for job in self.jobs], dtype=np.float64)

    @cached_property
    def lasted_s(self) -> FloatVector:
        """How long each lasted, or has lasted so far, (jobs,); at least a second."""
        return np.maximum([job.duration_s or 0.0 for job in self.jobs], LEAST_S)

    @cached_property
    def ended(self) -> Mask:
        """Whose end is known, (jobs,)."""
        return np.array([has_ended(job) for job in self.jobs], dtype=np.bool_)

    @cached_property
    def end_s(self) -> FloatVector:
        """When each ended, (jobs,); infinity for those that run."""
        return np.where(self.ended, self.start_s + self.lasted_s, np.inf)

    def lasted_until(self, at_s: float) -> tuple[FloatVector, Mask]:
        """How long each had lasted at a moment, and who had ended by then; jobs that came later have lasted least."""
        seen_s = np.clip(at_s - self.start_s, LEAST_S, self.lasted_s)
        return seen_s, self.end_s <= at_s


def began(job: TraceJob) -> bool:
    """Whether it says anything of how long jobs take."""
    return _why_left_out(job) is None


def has_ended(job: TraceJob) -> bool:
    """Whether it is known how long the job took."""
    return bool(job.duration_s) and job.state not in _NOT_OVER


def history_of(trace: Trace) -> History:
    """What a trace says of how long jobs take.

    Raises
    ------
    InputError
        When there is too little to learn from: too few jobs that ended, or all alike; pointers relative to the trace.
    """
    reasons = [_why_left_out(job) for job in trace.jobs]
    jobs = [job for job, reason in zip(trace.jobs, reasons, strict=True) if reason is None]
    left_out = Counter(reason for reason in reasons if reason is not None)
    if len(jobs) > MAX_JOBS:
        left_out[f"before the last {MAX_JOBS:,}"] = len(jobs) - MAX_JOBS
        jobs = jobs[-MAX_JOBS:]
    left_out.update(trace.left_out)
    num_ended = sum(map(has_ended, jobs))
    if num_ended < MIN_ENDED:
        others = "".join(f"; {count} {reason}" for reason, count in sorted(left_out.items()))
        running = f"{len(jobs) - num_ended} still run" if len(jobs) > num_ended else "none still runs"
        ended = "no job" if not num_ended else f"{num_ended} of {len(trace.jobs)} jobs"
        detail = f"{ended} ended, {running}{others}; a forecaster needs at least {MIN_ENDED} jobs that ended"
        raise _refused("too_few_jobs", detail)
    durations_s = {job.duration_s for job in jobs if has_ended(job)}
    if len(durations_s) == 1:
        detail = f"all {num_ended} jobs that ended took {durations_s.pop()} s; there is nothing to learn from them"
        raise _refused("all_alike", detail)
    return History(
        name=trace.name,
        jobs=tuple(jobs),
        origin_s=trace.origin_s or 0.0,
        now_s=last_known_s(trace),
        left_out=dict(left_out),
    )


def last_known_s(trace: Trace) -> float:
    """The last moment of which a trace says something: a submission, an end, or that a job still ran."""
    return max(
        (job.submit_s + (job.waited_s or 0.0) + (job.duration_s or 0.0) for job in trace.jobs),
        default=0.0,
    )


def _why_left_out(job: TraceJob) -> str | None:
    if job.duration_s is None:
        return "without a duration"
    return "never began" if job.duration_s == 0 or job.state is JobState.WAITING else None


def _refused(code: str, detail: str) -> InputError:
    return InputError("the history cannot be learned from", [Issue(code=code, pointer="/jobs", detail=detail)])
