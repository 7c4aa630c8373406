"""Predictors that need no learning, which a forecaster is compared with. Each gives the quantiles of jobs.

history        of all jobs that had ended when the test began: the trivial predictor
same group     of those alike in user, queue, application and number of GPUs; of the same owner, or all, where there
               are fewer than `LEAST`
last jobs      of the last `LAST_JOBS` of those that had ended when a job was submitted; the same way out
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from models.forecast.features import alike, owner
from models.forecast.history import History
from models.forecast.scores import PROBABILITIES
from stowplan.arrays import FloatMatrix, FloatVector
from workloads.trace import TraceJob

LEAST = 20
LAST_JOBS = 100
_ALL = "all"


def history_quantiles(history: History, first: int) -> FloatMatrix:
    """The same for all jobs from `first` on, (jobs, probabilities)."""
    return np.tile(_quantiles(_ended_before(history, first)), (len(history.jobs) - first, 1))


def group_quantiles(history: History, first: int) -> FloatMatrix:
    """By group, (jobs, probabilities)."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    at_s = history.submit_s[first]
    for job, lasted_s, end_s in zip(history.jobs[:first], history.lasted_s, history.end_s, strict=False):
        if end_s <= at_s:
            for key in _keys(job):
                groups[key].append(float(lasted_s))
    known = {key: _quantiles(values) for key, values in groups.items() if len(values) >= LEAST or key == _ALL}
    return np.array([next(known[key] for key in _keys(job) if key in known) for job in history.jobs[first:]])


def last_quantiles(history: History, first: int) -> FloatMatrix:
    """By what ended last, (jobs, probabilities)."""
    last: dict[Hashable, deque[float]] = defaultdict(lambda: deque(maxlen=LAST_JOBS))
    coming: list[tuple[float, int]] = []
    rows = []
    ends_s, lasted_s = history.end_s.tolist(), history.lasted_s.tolist()
    for k, job in enumerate(history.jobs):
        while coming and coming[0][0] <= job.submit_s:
            other = heapq.heappop(coming)[1]
            for key in _keys(history.jobs[other]):
                last[key].append(lasted_s[other])
        if k >= first:
            rows.append(_quantiles(next(last[key] for key in _keys(job) if len(last[key]) >= LEAST or key == _ALL)))
        if history.ended[k]:
            heapq.heappush(coming, (ends_s[k], k))
    return np.array(rows)


def _keys(job: TraceJob) -> Iterator[Hashable]:
    yield from (("alike", alike(job)), ("owner", owner(job)), _ALL)


def _ended_before(history: History, first: int) -> FloatVector:
    """How long the jobs took that had ended when a job was submitted."""
    known: FloatVector = history.lasted_s[:first][history.end_s[:first] <= history.submit_s[first]]
    return known


def _quantiles(values: FloatVector | Sequence[float]) -> FloatVector:
    found: FloatVector = np.quantile(np.asarray(values), PROBABILITIES)
    return found
