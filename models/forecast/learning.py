"""From a site's history to a forecaster: learn from the first part, calibrate on the next, test on the last.

By submission, the first 80 % of the jobs are learned from, as they were seen when the test begins; the next 10 % tell
how many trees there are and are the first that calibrate; the last 10 % test. In the test every job is forecast when
it is submitted, by the model and by what had become of the jobs before it, as in use. What is kept is that very model,
with the calibration gone on to the end of the history.
"""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from models.forecast.baselines import group_quantiles, history_quantiles, last_quantiles
from models.forecast.boosting import Hazards, curves, learn
from models.forecast.calibration import Calibration, Followed
from models.forecast.curves import Curves
from models.forecast.features import FEATURES, Names, features_of, names_in, remembered
from models.forecast.forecaster import FORMAT, Forecaster
from models.forecast.history import LEAST_S, History, history_of
from models.forecast.report import FORECASTER, TRIVIAL, ForecastReport
from models.forecast.scores import PROBABILITIES, score
from stowplan import __version__
from stowplan.arrays import FloatMatrix
from stowplan.errors import InputError, Issue
from workloads.trace import Trace
from workloads.writer import csv_text

LEARNED, CALIBRATED = 0.8, 0.9
# Jobs of each part that have ended: in the test, or when it begins.
LEAST_ENDED = 10
# In the test so many jobs in a row share a calibration: it hardly changes between them.
_TOGETHER = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learned:
    """A model with the jobs that it did not learn from: `curves` and `followed` are of the jobs from `first` on, of
    which those from `tested` on test it."""

    history: History
    names: Names
    hazards: Hazards
    curves: Curves
    followed: Followed
    first: int
    tested: int

    def calibration(self, num_jobs: int, at_s: float) -> Calibration:
        """What was known at a moment, when the first so many jobs of the history had been submitted."""
        return self.followed.calibration(num_jobs - self.first, at_s)

    def tests(self) -> FloatMatrix:
        """Quantiles of the jobs from `tested` on, each when it was submitted, (jobs, probabilities); finite."""
        history, levels = self.history, np.array(PROBABILITIES)
        parts = []
        for low in range(self.tested, len(history.jobs), _TOGETHER):
            jobs = np.arange(low, min(low + _TOGETHER, len(history.jobs))) - self.first
            calibration = self.calibration(low, float(history.submit_s[low]))
            ages_s = np.full(len(jobs), LEAST_S)
            parts.append(calibration.quantiles(self.curves, jobs, ages_s, levels))
        # Where nobody knows, the longest time that the model tells of.
        found: FloatMatrix = np.minimum(np.concatenate(parts), self.curves.knots_s[-1])
        return found


def train(trace: Trace, threads: int = 1) -> Forecaster:
    """Learn how long the jobs of a site last.

    Parameters
    ----------
    threads
        As in `boosting.learn`.

    Raises
    ------
    InputError
        When the history says too little, or nothing better than its own quantiles came of it.
    ExtraMissingError
        When LightGBM is not installed.
    """
    learned = learn_from(history_of(trace), threads)
    report = report_of(learned)
    report.refuse_worse()
    return forecaster_of(learned, report, trace)


def learn_from(history: History, threads: int = 1) -> Learned:
    """Learn and calibrate, without looking at the jobs that test."""
    num_jobs = len(history.jobs)
    first, tested = int(LEARNED * num_jobs), int(CALIBRATED * num_jobs)
    names = names_in(history.jobs[:first])
    features = features_of(history, names)
    lasted_s, ended = history.lasted_until(float(history.submit_s[tested]))
    _refuse_too_few(int(ended[:first].sum()), int(ended[first:tested].sum()), int(history.ended[tested:].sum()))
    hazards = learn(features[:tested], lasted_s[:tested], ended[:tested], first, threads)
    own = curves(hazards, features[first:], threads)
    return Learned(
        history=history,
        names=names,
        hazards=hazards,
        curves=own,
        followed=Followed(history, own, first),
        first=first,
        tested=tested,
    )


def _refuse_too_few(num_learned: int, num_held_out: int, num_tested: int) -> None:
    """Refuse a history of which hardly any job of a part has ended: what it says of that part is chance."""
    counts = {"learn from": num_learned, "calibrate by": num_held_out, "test on": num_tested}
    if min(counts.values()) < LEAST_ENDED:
        said = ", ".join(f"{count} to {what}" for what, count in counts.items())
        detail = f"by submission, of the jobs that ended there are {said}; each part needs at least {LEAST_ENDED}"
        raise InputError(
            "the history cannot be learned from", [Issue(code="too_few_jobs", pointer="/jobs", detail=detail)]
        )


def report_of(learned: Learned) -> ForecastReport:
    """Test a model beside predictors that need no learning."""
    history, tested = learned.history, learned.tested
    known = history.ended[tested:]
    lasted_s = history.lasted_s[tested:][known]
    predictors = {
        FORECASTER: learned.tests(),
        TRIVIAL: history_quantiles(history, tested),
        "same group": group_quantiles(history, tested),
        "last jobs": last_quantiles(history, tested),
    }
    return ForecastReport(
        num_learned=int(history.ended[: learned.first].sum()),
        num_held_out=int(history.ended[learned.first : tested].sum()),
        num_tested=len(lasted_s),
        num_running=int((~history.ended).sum()),
        left_out=dict(history.left_out),
        scores=tuple(score(name, lasted_s, found[known]) for name, found in predictors.items()),
    )


def forecaster_of(learned: Learned, report: ForecastReport, trace: Trace) -> Forecaster:
    """The record of a model."""
    history = learned.history
    jobs = tuple(history.jobs[k] for k in remembered(history))
    return Forecaster(
        format=FORMAT,
        version=__version__,
        history=history.name,
        digest=sha256(csv_text(trace).encode()).hexdigest(),
        origin_s=trace.origin_s,
        trained_until_s=history.now_s,
        features=FEATURES,
        names=learned.names,
        hazards=learned.hazards,
        scores=learned.followed.scores(history.now_s),
        memory=csv_text(Trace(name=history.name, jobs=jobs, origin_s=trace.origin_s)),
        report=report,
    )
