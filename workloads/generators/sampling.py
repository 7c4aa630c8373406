"""Parts of a trace: its busiest time, and a share of its jobs for a smaller cluster."""

from dataclasses import replace
from enum import StrEnum

import numpy as np

from stowplan.errors import InputError
from workloads.trace import Trace


class Busiest(StrEnum):
    """What makes a time busy: how many jobs are submitted in it, or how much GPU time they need."""

    SUBMISSIONS = "submissions"
    GPU_TIME = "gpu_time"


def busiest_window(trace: Trace, length_s: float, by: Busiest = Busiest.SUBMISSIONS) -> Trace:
    """The busiest stretch of this length, with time zero at its first job; of equally busy ones the first.

    Raises
    ------
    InputError
        When the trace is empty or the length is none.
    """
    if not trace.jobs or not length_s > 0:
        raise InputError(f"there is no busiest time of {length_s} s in a trace of {len(trace.jobs)} jobs")
    arrays = trace.arrays()
    weights = np.ones(len(trace.jobs)) if by is Busiest.SUBMISSIONS else arrays.gpu_s
    until = np.searchsorted(arrays.submit_s, arrays.submit_s + length_s, side="left")
    before = np.concatenate([[0.0], np.cumsum(weights)])
    start_s = float(arrays.submit_s[np.argmax(before[until] - before[:-1])])
    return trace.window(start_s, start_s + length_s)


def down_sampled(trace: Trace, share: float, rng: np.random.Generator) -> Trace:
    """A share of the jobs, each as likely as any other, at least one.

    Raises
    ------
    InputError
        When the trace is empty or the share is none.
    """
    if not trace.jobs or not 0 < share <= 1:
        raise InputError(f"there is no share {share} of {len(trace.jobs)} jobs; must be above 0 and at most 1")
    num_jobs = max(1, round(share * len(trace.jobs)))
    chosen = np.sort(rng.choice(len(trace.jobs), size=num_jobs, replace=False))
    return replace(trace, jobs=tuple(trace.jobs[k] for k in chosen.tolist()))
