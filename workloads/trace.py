"""Jobs over time: what was submitted when, how large it was, how long it ran. A `Trace` in hand is legal."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from stowplan.arrays import FloatVector, IntVector
from stowplan.errors import InputError, Issue, raise_for_errors


class JobState(StrEnum):
    """How a job ended, or where it was when it was last seen."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMED_OUT = "timed_out"
    NODE_FAILED = "node_failed"
    PREEMPTED = "preempted"
    RUNNING = "running"
    WAITING = "waiting"


class Adaptivity(StrEnum):
    """What a scheduler may change (Sia section 3.4, with the words of its workloads).

    adaptive: number and type of GPUs and batch size; scale-gpus: number and type; rigid: type only.
    """

    ADAPTIVE = "adaptive"
    SCALE_GPUS = "scale-gpus"
    RIGID = "rigid"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job. None stands for what the trace does not say; times are in seconds.

    `submit_s` counts from the trace's time zero, `deadline_s` from the submission. `num_gpus` is 0 for work without
    GPUs; `gpu_share` is the part of each of its GPUs that the job asked for. `gpu_type` may name alternatives,
    separated by `|`. `duration_s` is how long it ran on these GPUs; of a job that was running when it was last seen,
    until then. `waited_s` is how long it waited where the trace was taken, `time_limit_s` what its user gave it at
    most. `application` is the model or program, jobs of one application being alike; `iterations` are those it needs
    in all. `priority`: 1 is launched first. `queue`: virtual cluster, partition or class of service.
    """

    id: str
    submit_s: float
    num_gpus: int
    duration_s: float | None = None
    gpu_type: str | None = None
    application: str | None = None
    global_batch: int | None = None
    iterations: float | None = None
    deadline_s: float | None = None
    priority: int | None = None
    user: str | None = None
    queue: str | None = None
    state: JobState | None = None
    num_nodes: int | None = None
    adaptivity: Adaptivity | None = None
    waited_s: float | None = None
    time_limit_s: float | None = None
    gpu_share: float = 1.0

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            value = getattr(self, name)
            if value is not None and not rule.holds(value):
                raise_for_errors(_job_issues(self), f"job {self.id!r} of the trace")

    @property
    def gpu_s(self) -> float | None:
        """Time of its GPUs, whole ones, that it took."""
        return None if self.duration_s is None else self.num_gpus * self.duration_s


class _Rule(NamedTuple):
    """What a value must be where there is one."""

    holds: Callable[[Any], bool]
    wanted: str


_NAME = _Rule(
    lambda text: bool(text) and not text[0].isspace() and not text[-1].isspace(), "a text without space around"
)
_NOT_NEGATIVE = _Rule(lambda value: 0 <= value < math.inf, "a number from 0 on")
_POSITIVE = _Rule(lambda value: 0 < value < math.inf, "a number above 0")
_COUNT = _Rule(lambda value: isinstance(value, int) and value >= 0, "a whole number from 0 on")
_NUMBER = _Rule(lambda value: isinstance(value, int) and value >= 1, "a whole number above 0")
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("id", "gpu_type", "application", "user", "queue"), _NAME),
    **dict.fromkeys(("submit_s", "duration_s", "waited_s"), _NOT_NEGATIVE),
    **dict.fromkeys(("iterations", "deadline_s", "time_limit_s"), _POSITIVE),
    **dict.fromkeys(("global_batch", "priority", "num_nodes"), _NUMBER),
    "num_gpus": _COUNT,
    "gpu_share": _Rule(lambda value: 0 < value <= 1, "a number above 0, at most 1"),
}


def _job_issues(job: TraceJob) -> list[Issue]:
    """Everything that is wrong; pointers relative to the job."""
    values = {name: getattr(job, name) for name in _RULES}
    return [
        _issue(name, f"is {value!r}; must be {_RULES[name].wanted}")
        for name, value in values.items()
        if value is not None and not _RULES[name].holds(value)
    ]


def _issue(name: str, detail: str) -> Issue:
    return Issue(code="invalid_entry", pointer=f"/{name}", detail=detail)


def jobs_from_columns(columns: Mapping[str, Sequence[Any]]) -> list[TraceJob]:
    """Jobs of equally long columns that are called as their fields; fields without a column have their defaults.

    Built column by column, which takes a tenth of the time that as many calls of `TraceJob` take.

    Raises
    ------
    InputError
        When a job would be illegal.
    """
    num_jobs = len(columns["id"])
    if any(len(column) != num_jobs for column in columns.values()):
        raise ValueError("the columns are not equally long")
    for name, rule in _RULES.items():
        if not all(value is None or rule.holds(value) for value in columns.get(name, ())):
            rows = zip(*columns.values(), strict=True)
            return [TraceJob(**dict(zip(columns, row, strict=True))) for row in rows]
    jobs = list(map(object.__new__, repeat(TraceJob, num_jobs)))
    for fact in fields(TraceJob):
        # The slot itself: the class forbids setting its fields.
        put = TraceJob.__dict__[fact.name].__set__
        column = columns[fact.name] if fact.name in columns else repeat(fact.default, num_jobs)
        deque(map(put, jobs, column), maxlen=0)
    return jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArrays:
    """Columns of a trace, each of shape (jobs,); `duration_s` is NaN where it is not known."""

    submit_s: FloatVector
    num_gpus: IntVector
    duration_s: FloatVector

    @property
    def gpu_s(self) -> FloatVector:
        """GPU seconds that each job took; 0 where it is not known."""
        return np.nan_to_num(self.num_gpus * self.duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Jobs by submission.

    `origin_s` is time zero in seconds since 1970 (UTC), where it is known. `left_out` counts what a reader did not take
    as jobs, by reason.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the trace (`/jobs/2/id`).
    """

    name: str
    jobs: tuple[TraceJob, ...]
    origin_s: float | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        raise_for_errors(list(self._faults()), f"trace {self.name!r}")

    def window(self, start_s: float, end_s: float) -> "Trace":
        """Jobs submitted from `start_s` on and before `end_s`, with time zero at `start_s`.

        Raises
        ------
        InputError
            When the window is none.
        """
        if not 0 <= start_s < end_s:
            raise InputError(
                f"the window from {start_s} to {end_s} s is none; must begin at 0 or later, before it ends"
            )
        jobs = (job for job in self.jobs if start_s <= job.submit_s < end_s)
        return replace(
            self,
            jobs=tuple(replace(job, submit_s=job.submit_s - start_s) for job in jobs),
            origin_s=None if self.origin_s is None else self.origin_s + start_s,
        )

    def where(self, keep: Callable[[TraceJob], bool]) -> "Trace":
        """The jobs that are to be kept, at the same times."""
        return replace(self, jobs=tuple(job for job in self.jobs if keep(job)))

    def gpu_only(self) -> "Trace":
        """The jobs with GPUs."""
        return self.where(lambda job: job.num_gpus > 0)

    def in_queues(self, *queues: str) -> "Trace":
        """The jobs of these queues.

        Raises
        ------
        InputError
            When the trace has no such queue.
        """
        known = {job.queue for job in self.jobs if job.queue is not None}
        if unknown := sorted(set(queues) - known):
            raise InputError(f"trace {self.name!r} has no queue {unknown[0]!r}; it has {sorted(known)}")
        return self.where(lambda job: job.queue in queues)

    def arrays(self) -> TraceArrays:
        """The columns that figures are computed from."""
        return TraceArrays(
            submit_s=np.array([job.submit_s for job in self.jobs], dtype=np.float64),
            num_gpus=np.array([job.num_gpus for job in self.jobs], dtype=np.int64),
            duration_s=np.array(
                [math.nan if job.duration_s is None else job.duration_s for job in self.jobs], dtype=np.float64
            ),
        )

    def _faults(self) -> Iterable[Issue]:
        if not self.name:
            yield _issue("name", "is empty; must have at least one character")
        if self.origin_s is not None and not math.isfinite(self.origin_s):
            yield _issue("origin_s", f"is {self.origin_s}; must be a finite number of seconds since 1970")
        last_s = 0.0
        for k, job in enumerate(self.jobs):
            if job.submit_s < last_s:
                yield _issue(f"jobs/{k}/submit_s", f"is {job.submit_s}, before the job in front; sort by submission")
            last_s = job.submit_s
        if len({job.id for job in self.jobs}) < len(self.jobs):
            counts = Counter(job.id for job in self.jobs)
            for k, job in enumerate(self.jobs):
                if counts[job.id] > 1:
                    yield _issue(f"jobs/{k}/id", f"{job.id!r} occurs {counts[job.id]} times; job ids must be unique")


def sorted_trace(
    name: str,
    jobs: Iterable[TraceJob],
    *,
    origin_s: float | None = None,
    left_out: Mapping[str, int] | None = None,
) -> Trace:
    """The trace of these jobs; those submitted at the same time keep their order."""
    by_submission = tuple(sorted(jobs, key=attrgetter("submit_s")))
    return Trace(name=name, jobs=by_submission, origin_s=origin_s, left_out=left_out or {})
