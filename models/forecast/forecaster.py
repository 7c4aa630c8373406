"""A forecaster: what was learned of a site, and how long its jobs last by it. A JSON record, no pickle.

It is as fresh as the history that it is told: with the jobs since it was trained it knows what ended of late, and how
far the site has drifted (`calibration`), without learning anew.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from models.forecast.boosting import Hazards, curves
from models.forecast.calibration import Calibration, Followed, Scores
from models.forecast.features import FEATURES, FeatureMatrix, Names, features_of
from models.forecast.history import LEAST_S, History, began, has_ended
from models.forecast.lasting import Lasting
from models.forecast.report import ForecastReport
from models.forecast.scores import PROBABILITIES
from stowplan.errors import Issue, raise_for_errors
from workloads.readers.csv import read_csv
from workloads.trace import JobState, Trace, TraceJob

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A job of which is asked how long it takes; `age_s`: how long it has run, 0 of one that has not begun.

    What the job took (`duration_s`, `state`, `waited_s`) is not looked at.
    """

    job: TraceJob
    age_s: float = 0.0


# No slots: what its memory says is cached in the instance.
@dataclass(frozen=True, kw_only=True)
class Forecaster:
    """What was learned. `digest`: SHA-256 of the history as CSV; `trained_until_s`: the last moment of which it said
    something, in seconds of the trace, of which zero is at `origin_s` (None where nobody knows).

    `features` are those that the model was trained on, in order; `memory` the jobs of the history that later ones still
    see, as CSV; `scores` those of held-out jobs.
    """

    format: int
    version: str
    history: str
    digest: str
    origin_s: float | None
    trained_until_s: float
    features: tuple[str, ...]
    names: Names
    hazards: Hazards
    scores: Scores
    memory: str
    report: ForecastReport

    def __post_init__(self) -> None:
        if self.format != FORMAT or self.features != FEATURES:
            detail = f"is {self.format}, written by Stowplan {self.version}; this one reads {FORMAT}: train it again"
            raise_for_errors([Issue(code="unknown_format", pointer="/format", detail=detail)], "forecaster")

    @cached_property
    def remembered(self) -> Trace:
        """The jobs of its memory."""
        return read_csv(self.memory, "memory of the forecaster", self.history)

    def forecast(
        self,
        questions: Sequence[Question],
        since: Trace | None = None,
        threads: int = 1,
        at_s: float | None = None,
    ) -> tuple[Lasting | None, ...]:
        """How much longer jobs last; None: longer than was ever seen.

        Parameters
        ----------
        questions
            Their submissions are in seconds of the forecaster's trace.
        since
            Jobs since it was trained. Those submitted before say what became of jobs that ran then.
        at_s
            The questions are all jobs that run at this moment, in seconds of the forecaster's trace: what ran when it
            was trained, and is not among them, is over, nobody knows after how long. None: the last moment of which it
            knows, at which others run.

        Raises
        ------
        InputError
            When the jobs since do not count from the same time.
        """
        told = () if since is None else _shifted(since, self.origin_s)
        now_s = max([self.trained_until_s, *(_seen_until_s(job) for job in told)])
        asked = [_as_running(question, now_s if at_s is None else at_s) for question in questions]
        newer = [job for job in told if job.submit_s > self.trained_until_s]
        others = (job for job in (*self._before(told), *newer) if at_s is None or has_ended(job))
        known = {job.id: job for job in (*others, *asked)}
        jobs = sorted(known.values(), key=attrgetter("submit_s"))
        place = {job.id: k for k, job in enumerate(jobs)}
        rows = features_of(self._history(jobs, now_s), self.names)
        own = curves(self.hazards, rows[[place[job.id] for job in asked]], threads)
        calibration = self._calibration(newer, rows[[place[job.id] for job in newer]], now_s, threads)
        ages_s = np.array([question.age_s for question in questions], dtype=np.float64)
        found = calibration.quantiles(own, np.arange(len(asked)), np.maximum(ages_s, LEAST_S), np.array(PROBABILITIES))
        return tuple(_lasting(row, age_s) for row, age_s in zip(found.tolist(), ages_s.tolist(), strict=True))

    def _before(self, told: Sequence[TraceJob]) -> Iterator[TraceJob]:
        """The jobs of the memory, with what has become of them since."""
        newer = {job.id: job for job in told if job.submit_s <= self.trained_until_s}
        return (newer.get(job.id, job) for job in self.remembered.jobs)

    def _calibration(self, newer: Sequence[TraceJob], rows: FeatureMatrix, now_s: float, threads: int) -> Calibration:
        """By the held-out jobs of the history, and those that came since."""
        own = curves(self.hazards, rows, threads)
        followed = Followed(self._history(newer, now_s), own, 0, self.scores)
        return followed.calibration(len(newer), now_s)

    def _history(self, jobs: Sequence[TraceJob], now_s: float) -> History:
        return History(name=self.history, jobs=tuple(jobs), origin_s=self.origin_s or 0.0, now_s=now_s, left_out={})


def _shifted(since: Trace, origin_s: float | None) -> tuple[TraceJob, ...]:
    """Jobs that began, in seconds of another trace."""
    if (since.origin_s is None) != (origin_s is None):
        known = "counts from a known time of day" if origin_s is not None else "does not know its time of day"
        detail = f"is {since.origin_s}; the history of the forecaster {known}: give jobs since in the same way"
        raise_for_errors(
            [Issue(code="other_clock", pointer="/since/origin_s", detail=detail)], "question to a forecaster"
        )
    shift_s = (since.origin_s or 0.0) - (origin_s or 0.0)
    jobs = [job for job in since.jobs if began(job)]
    return tuple(replace(job, submit_s=job.submit_s + shift_s) for job in jobs if job.submit_s + shift_s >= 0)


def _as_running(question: Question, now_s: float) -> TraceJob:
    """A job as others see it: it runs, or waits for now."""
    job = question.job
    waited_s = max(0.0, now_s - question.age_s - job.submit_s)
    return replace(job, duration_s=max(question.age_s, LEAST_S), state=JobState.RUNNING, waited_s=waited_s)


def _seen_until_s(job: TraceJob) -> float:
    return job.submit_s + (job.waited_s or 0.0) + (job.duration_s or 0.0)


def _lasting(quantiles_s: Sequence[float], age_s: float) -> Lasting | None:
    """How much longer, by the quantiles of the whole duration that are known."""
    known = [
        (p, max(0.0, value - age_s)) for p, value in zip(PROBABILITIES, quantiles_s, strict=True) if value < math.inf
    ]
    if not known:
        return None
    return Lasting(
        probabilities=tuple(probability for probability, _ in known), seconds=tuple(value for _, value in known)
    )
