"""What is true of simulated jobs. The backend goes by it; of it a policy sees only what it is told.

Work has a unit of the truth's own. A job is done when the integral of its speed over time is its work.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from executor.control.backend import Measured
from models.plan import JobAllocation
from models.workload import Job
from stowplan.errors import InputError
from workloads.trace import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A step that a job measures: on GPUs of a type, so many on each node, with a local batch.

    bandwidth_fraction: share of the inter-node bandwidth that the nodes have between them.
    """

    gpu_type: str
    gpus: tuple[int, ...]
    local_batch: int
    bandwidth_fraction: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Work at one speed, above 0, until so much is done (None: to the end of the job); with a global batch, where that
    changes. seen: what is measured in it, and was not known before."""

    speed: float
    until: float | None = None
    batch: int | None = None
    seen: Seen | None = None


class Truth(Protocol):
    """What is true of jobs, by id."""

    def covers(self, job: TraceJob) -> bool:
        """Whether anything is known of a job of the trace; others are left out."""

    def told(self, job_id: str) -> Job:
        """The job as it is submitted: what policies know of it."""

    def work(self, job_id: str) -> float:
        """All work of the job."""

    def segment(self, allocation: JobAllocation, done: float, batch: int | None) -> Segment:
        """How the job goes on from so much work done on an allocation; `batch`: of its last segment."""

    def learn(self, job_id: str, seen: Seen) -> None:
        """The job measures what its segment says."""

    def delay_s(self, allocation: JobAllocation, *, is_first: bool) -> float:
        """How long the job does no work after it was given these GPUs; `is_first`: it never had any."""

    def kept(self, job_id: str, done: float) -> float:
        """What is left of the work done when the job breaks."""

    def alone(self, job_id: str) -> tuple[float, int]:
        """Seconds from submission to end had it the cluster to itself, and the GPUs on which it ends first."""

    def expected_s(self, job_id: str, done: float) -> float | None:
        """For how long the job is said to run yet with so much work done; None where nobody says."""

    def measured(self, job_id: str, done: float, batch: int | None) -> Measured:
        """What is known of the job now beyond what it was submitted with."""


class Estimates(StrEnum):
    """What policies are told of durations. exact: what is true, but for the noise; limit: the time limit of the trace,
    where it has one; none: nothing."""

    EXACT = "exact"
    LIMIT = "limit"
    NONE = "none"


class Profiling(StrEnum):
    """What policies are told of applications that were measured. one_gpu: steps on one GPU of each type, from the start
    (Sia section 3.2). released: as in the released simulator of Sia, all GPU types look alike until a job has run, and
    its batch is said to stay below the one it was submitted with, which it does not."""

    ONE_GPU = "one_gpu"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthParameters:
    """start_s: how long a job that starts does no work; restart_s: one that starts again or elsewhere; delay_per_gpu_s:
    a job of few GPUs only so long for each of them. checkpoint_s: a job that breaks goes on from a multiple of so many
    seconds of work (None: from its beginning). elasticity: how many times fewer or more GPUs a job may get than it
    asked for, where its throughput is known. noise: standard deviation of the logarithm of estimates over what is true:
    of durations, or of throughputs where these are known. misjudged: what is told of the iterations that a job has left
    is so many times too many or too few, for every job one of the two. profiling: see `Profiling`. shared_models: jobs
    of one application share what they measure. tells_models: of models of the catalogue policies that go by throughputs
    are told the model, too, if they plan it.

    Raises
    ------
    InputError
        When a value is out of its range.
    """

    start_s: float = 0.0
    restart_s: float = 0.0
    delay_per_gpu_s: float | None = None
    checkpoint_s: float | None = None
    elasticity: float = 4.0
    estimates: Estimates = Estimates.EXACT
    noise: float = 0.0
    misjudged: float = 1.0
    profiling: Profiling = Profiling.ONE_GPU
    shared_models: bool = False
    tells_models: bool = False

    def __post_init__(self) -> None:
        for name in ("start_s", "restart_s", "noise"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"{name} is {value}; must be a number from 0 on")
        for name in ("elasticity", "misjudged"):
            value = getattr(self, name)
            if not 1 <= value < math.inf:
                raise InputError(f"{name} is {value}; must be a number from 1 on")
        for name in ("checkpoint_s", "delay_per_gpu_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} is {value}; must be a number above 0, or left out")

    def estimate_s(self, job: TraceJob, seed: int, true_s: Callable[[], float]) -> float | None:
        """What is said of how long a job runs yet that runs for `true_s()`; None where nobody says."""
        if self.estimates is Estimates.NONE:
            return None
        if self.estimates is Estimates.LIMIT:
            return job.time_limit_s
        return true_s() * noise_factor(self.noise, seed, job.id)

    def told_left(self, left: float, seed: int, job_id: str) -> float:
        """What is told of the iterations that a job has left."""
        if self.misjudged == 1.0:
            return left
        is_more = noise_factor(1.0, seed, "iterations", job_id) > 1.0
        return left * self.misjudged if is_more else left / self.misjudged

    def delay_s(self, num_gpus: int, *, is_first: bool) -> float:
        """How long a job does no work after it was given so many GPUs."""
        whole_s = self.start_s if is_first else self.restart_s
        return whole_s if self.delay_per_gpu_s is None else min(whole_s, self.delay_per_gpu_s * num_gpus)


def noise_factor(noise: float, seed: int, *names: str) -> float:
    """Estimate over what is true, of one thing: other things leave it as it is."""
    if noise == 0:
        return 1.0
    number = int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "big")
    return math.exp(noise * float(np.random.default_rng([seed, number]).standard_normal()))
