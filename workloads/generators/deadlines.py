"""Deadlines as ElasticFlow (ASPLOS'23) gives them to traces that have none: tightness x duration after the submission.

The tightness is uniform from 0.5 to 1.5. That of Arena's Philly trace is, too: its deadlines over the durations that
Microsoft ITP has for the same 1,938 jobs are 0.500 to 1.500, median 0.983. Arena's simulation loosens them by 5. With a
tightness below 1 only more GPUs than the traced ones meet the deadline. A share of the jobs may go without.
"""

from dataclasses import dataclass, replace

import numpy as np

from stowplan.errors import InputError
from workloads.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineParameters:
    """Tightness is uniform from `tightest` to `loosest`, times `loosening`; `share` of the jobs have deadlines."""

    tightest: float = 0.5
    loosest: float = 1.5
    loosening: float = 1.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.tightest <= self.loosest or not self.loosening > 0:
            raise InputError(f"a tightness from {self.tightest} to {self.loosest} x {self.loosening} is none")
        if not 0 <= self.share <= 1:
            raise InputError(f"share is {self.share}; must be from 0 to 1")


ELASTICFLOW = DeadlineParameters()
# Deadlines as Arena's simulation has them.
ARENA = DeadlineParameters(loosening=5.0)


def with_deadlines(trace: Trace, seed: int, parameters: DeadlineParameters = ELASTICFLOW) -> Trace:
    """The trace with deadlines, in place of those that it had.

    Jobs that are added behind do not change the deadlines of those in front.

    Raises
    ------
    InputError
        When a job has no duration above 0.
    """
    without = [job.id for job in trace.jobs if not job.duration_s]
    if without:
        raise InputError(f"{len(without)} jobs have no duration, {without[0]!r} the first; deadlines follow from it")
    # A row per job, so that a longer trace begins as a shorter one.
    drawn = np.random.default_rng(seed).random((len(trace.jobs), 2))
    tightness = parameters.loosening * (parameters.tightest + (parameters.loosest - parameters.tightest) * drawn[:, 0])
    has_deadline = drawn[:, 1] < parameters.share
    return replace(
        trace,
        jobs=tuple(
            replace(job, deadline_s=factor * (job.duration_s or 0.0) if has else None)
            for job, factor, has in zip(trace.jobs, tightness.tolist(), has_deadline.tolist(), strict=True)
        ),
    )
