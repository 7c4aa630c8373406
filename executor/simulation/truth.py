"""What is true of simulated jobs. The backend goes by it; of it a policy sees only what it is told (`expected_s`).

Work has a unit of the truth's own. A job is done when the integral of its speed over time is its work.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from models.plan import Change, JobAllocation
from stowplan.errors import InputError
from workloads.trace import Trace, TraceJob


class Truth(Protocol):
    """What is true of jobs, by id."""

    def work(self, job_id: str) -> float:
        """All work of the job."""

    def speed(self, allocation: JobAllocation) -> float:
        """Work per second of the job on an allocation, above 0."""

    def delay_s(self, job_id: str, change: Change, *, is_first: bool) -> float:
        """How long the job does no work after it was given these GPUs; `is_first`: it never had any."""

    def kept(self, job_id: str, done: float) -> float:
        """What is left of the work done when the job breaks."""

    def alone_s(self, job_id: str) -> float:
        """From submission to end had it the cluster to itself, on the allocation that is best for it."""

    def expected_s(self, job_id: str, done: float) -> float | None:
        """For how long the job is said to run yet with so much work done; None where nobody says."""


class Estimates(StrEnum):
    """What policies are told of durations. exact: what is true, but for the noise; limit: the time limit of the trace,
    where it has one; none: nothing."""

    EXACT = "exact"
    LIMIT = "limit"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedParameters:
    """start_s: how long a job that starts does no work; restart_s: one that starts again or elsewhere. checkpoint_s: a
    job that breaks goes on from a multiple of so many seconds of work (None: from its beginning). noise: standard
    deviation of the logarithm of estimates over what is true.

    Raises
    ------
    InputError
        When a value is out of its range.
    """

    start_s: float = 0.0
    restart_s: float = 0.0
    checkpoint_s: float | None = None
    estimates: Estimates = Estimates.EXACT
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name in ("start_s", "restart_s", "noise"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"{name} is {value}; must be a number from 0 on")
        if self.checkpoint_s is not None and not 0 < self.checkpoint_s < math.inf:
            raise InputError(f"checkpoint_s is {self.checkpoint_s}; must be a number above 0, or left out")


class TracedDurations:
    """Jobs of which only the size is known run as long as they did in the trace, wherever their GPUs are.

    Work is seconds on `num_gpus` GPUs.
    """

    def __init__(self, trace: Trace, parameters: TracedParameters, seed: int) -> None:
        self._jobs: Mapping[str, TraceJob] = {job.id: job for job in trace.jobs}
        self._parameters = parameters
        self._seed = seed

    def work(self, job_id: str) -> float:
        """Its duration."""
        return self._jobs[job_id].duration_s or 0.0

    def speed(self, allocation: JobAllocation) -> float:
        """A second per second on its own size, which is the only one it runs on."""
        if allocation.num_gpus != self._jobs[allocation.job_id].num_gpus:
            raise InputError(
                f"job {allocation.job_id!r} gets {allocation.num_gpus} GPUs; it is known only how long it runs on "
                f"{self._jobs[allocation.job_id].num_gpus}"
            )
        return 1.0

    def delay_s(self, job_id: str, change: Change, *, is_first: bool) -> float:  # noqa: ARG002 - the protocol
        """The same for all jobs and changes."""
        return self._parameters.start_s if is_first else self._parameters.restart_s

    def kept(self, job_id: str, done: float) -> float:  # noqa: ARG002 - the protocol
        """What the last checkpoint has."""
        every_s = self._parameters.checkpoint_s
        return 0.0 if every_s is None else done // every_s * every_s

    def alone_s(self, job_id: str) -> float:
        """It starts at once."""
        return self._parameters.start_s + self.work(job_id)

    def expected_s(self, job_id: str, done: float) -> float | None:
        """By the estimate of all its work."""
        whole_s = self._estimate_s(self._jobs[job_id])
        return None if whole_s is None else max(0.0, whole_s - done)

    def _estimate_s(self, job: TraceJob) -> float | None:
        if self._parameters.estimates is Estimates.LIMIT:
            return job.time_limit_s
        if self._parameters.estimates is Estimates.NONE or job.duration_s is None:
            return None
        return job.duration_s * math.exp(self._parameters.noise * self._normal(job.id))

    def _normal(self, job_id: str) -> float:
        """Every job has a random number of its own: other jobs leave it as it is."""
        if self._parameters.noise == 0:
            return 0.0
        name = int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:8], "big")
        return float(np.random.default_rng([self._seed, name]).standard_normal())
