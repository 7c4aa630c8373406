"""What is known of a job when it is submitted: itself, and what became of the jobs before it.

A job sees only what had happened by then: of the jobs that had ended, how long the last ones took; of those that ran,
how many there were and for how long they had. It sees this of two groups: the jobs of its owner (user, or queue where
users have no names), and those alike in user, queue, application and number of GPUs.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from models.forecast.history import LEAST_S, History
from workloads.trace import TraceJob

# Of a group, so many of the jobs that ended last; and of those, the last ones again.
LAST, LATEST = 100, 10
NAMED = ("queue", "user", "application")
# Names that occur more rarely than the first so many are one: others.
_MAX_NAMES = 50
_OWN = (*NAMED, "num_gpus", "time_limit", "hour", "weekday")
_OF_GROUP = ("latest_mean", "mean", "spread", "running", "running_for")
_GROUPS = ("owner", "alike")
FEATURES = (*_OWN, *(f"{group}_{what}" for group in _GROUPS for what in _OF_GROUP))
# What LightGBM takes; half of the memory that examples would need.
FeatureMatrix = npt.NDArray[np.float32]
_S_PER_HOUR, _S_PER_DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names that a forecaster tells apart, by what they are of; a name's place is its code."""

    queue: tuple[str, ...]
    user: tuple[str, ...]
    application: tuple[str, ...]


@dataclass(slots=True)
class _Group:
    """What became of the jobs of a group: logarithms of durations, and when those that run began."""

    last: deque[float] = field(default_factory=lambda: deque(maxlen=LAST))
    num_running: int = 0
    starts_s: float = 0.0

    def told(self, at_s: float) -> tuple[float, ...]:
        """As `_OF_GROUP`; NaN for what nobody knows."""
        last = list(self.last)
        ended = (math.nan,) * 3
        if last:
            mean = math.fsum(last) / len(last)
            spread = math.sqrt(math.fsum((value - mean) ** 2 for value in last) / len(last))
            ended = math.fsum(last[-LATEST:]) / len(last[-LATEST:]), mean, spread
        if not self.num_running:
            return *ended, 0, math.nan
        return *ended, self.num_running, math.log(max(LEAST_S, at_s - self.starts_s / self.num_running))


def names_in(jobs: Sequence[TraceJob]) -> Names:
    """The most frequent names of jobs."""
    return Names(**{name: _frequent(getattr(job, name) for job in jobs) for name in NAMED})


def features_of(history: History, names: Names) -> FeatureMatrix:
    """What was known of each job, (jobs, features) in the order of `FEATURES`; NaN: not known.

    One pass over submissions, starts and ends in the order of time.
    """
    codes = {name: {word: k for k, word in enumerate(getattr(names, name))} for name in NAMED}
    groups: dict[Hashable, _Group] = {}
    rows = np.full((len(history.jobs), len(FEATURES)), np.nan, dtype=np.float32)
    starts_s, ends_s, lasted_s = history.start_s.tolist(), history.end_s.tolist(), history.lasted_s.tolist()
    keys = [_keys(job) for job in history.jobs]
    # (when, whether it ends, which job)
    coming: list[tuple[float, bool, int]] = []
    for k, job in enumerate(history.jobs):
        while coming and coming[0][0] <= job.submit_s:
            _, ends, other = heapq.heappop(coming)
            for key in keys[other]:
                group = groups[key]
                group.num_running += -1 if ends else 1
                group.starts_s += -starts_s[other] if ends else starts_s[other]
                if ends:
                    group.last.append(math.log(lasted_s[other]))
        own = [groups.setdefault(key, _Group()) for key in keys[k]]
        told = (value for group in own for value in group.told(job.submit_s))
        rows[k] = (*_own(job, codes, history.origin_s), *told)
        heapq.heappush(coming, (starts_s[k], False, k))
        if ends_s[k] < math.inf:
            heapq.heappush(coming, (ends_s[k], True, k))
    return rows


def remembered(history: History) -> list[int]:
    """The jobs that later ones still see: of every group those that ended last, and those that run."""
    by_end = sorted(np.flatnonzero(history.ended).tolist(), key=history.end_s.tolist().__getitem__, reverse=True)
    seen: Counter[Hashable] = Counter()
    kept = set(np.flatnonzero(~history.ended).tolist())
    for k in by_end:
        keys = _keys(history.jobs[k])
        if any(seen[key] < LAST for key in keys):
            kept.add(k)
        seen.update(keys)
    return sorted(kept)


def alike(job: TraceJob) -> Hashable:
    """What jobs share that are alike."""
    return job.user, job.queue, job.application, job.num_gpus


def owner(job: TraceJob) -> Hashable:
    """Whose job it is, as far as is known."""
    return job.user or job.queue


def _keys(job: TraceJob) -> tuple[Hashable, ...]:
    return ("owner", owner(job)), ("alike", alike(job))


def _own(job: TraceJob, codes: Mapping[str, Mapping[str, int]], origin_s: float) -> Iterator[float]:
    """As `_OWN`; days are those of UTC, or count from the trace's zero where nobody knows when that was."""
    for name in NAMED:
        yield codes[name].get(getattr(job, name), math.nan)
    yield job.num_gpus * job.gpu_share
    yield math.log(job.time_limit_s) if job.time_limit_s else math.nan
    at_s = origin_s + job.submit_s
    yield at_s % _S_PER_DAY / _S_PER_HOUR
    yield at_s // _S_PER_DAY % 7


def _frequent(words: Iterator[str | None]) -> tuple[str, ...]:
    counts = Counter(word for word in words if word is not None)
    return tuple(word for word, _ in counts.most_common(_MAX_NAMES))
