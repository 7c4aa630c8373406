"""Training, the test on the last part of the history, the record, and what it says of jobs."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from models.forecast import extra
from models.forecast.forecaster import Forecaster, Question
from models.forecast.history import history_of
from models.forecast.learning import learn_from, report_of, train
from models.forecast.report import FORECASTER, TRIVIAL
from models.forecast.scores import PROBABILITIES, class_of, score
from stowplan.errors import ExtraMissingError, InputError
from stowplan.records import from_document, to_json
from tests.growth import work
from tests.models.forecast.histories import DAY_S, job, made_history
from workloads.trace import JobState, Trace

HISTORY = made_history(1500)


@pytest.fixture(scope="module")
def trained() -> Forecaster:
    return train(HISTORY, threads=1)


def _median(forecaster: Forecaster, user: str, age_s: float = 0.0, since: Trace | None = None) -> float:
    question = Question(job=job("q", forecaster.trained_until_s + 1.0, None, user=user), age_s=age_s)
    (lasting,) = forecaster.forecast([question], since, threads=1)
    assert lasting is not None
    return lasting.quantile(0.5)


def test_the_report_is_of_the_last_tenth_beside_the_others(trained: Forecaster) -> None:
    report = trained.report
    assert (report.num_learned, report.num_held_out, report.num_tested) == (1200, 150, 150)
    own, trivial = report.of(FORECASTER), report.of(TRIVIAL)
    assert own.pinball < 0.5 * trivial.pinball
    # Who knows the user knows the time but for a factor; 150 jobs tell 0.9 but for 2 * sqrt(0.9 * 0.1 / 150) = 0.05.
    assert own.coverage_90 == pytest.approx(0.9, abs=0.05)
    # Of a lognormal of sigma 0.4: twice the mean over p of its density at the quantile, 0.4 * 0.28 or so.
    assert own.pinball < 0.15


def test_medians_are_those_of_the_users(trained: Forecaster) -> None:
    assert 90.0 < _median(trained, "anna") < 160.0
    assert 3600.0 < _median(trained, "bert") < 10800.0


def test_what_has_run_for_long_does_not_end_as_what_begins(trained: Forecaster) -> None:
    # A job of bert that has run for 3 h is one of his long ones: there is less left, but it ends later.
    left_s = _median(trained, "bert", age_s=3 * 3600.0)
    assert left_s < _median(trained, "bert") < left_s + 3 * 3600.0


def test_nobody_knows_of_what_lasts_longer_than_anything_before(trained: Forecaster) -> None:
    question = Question(job=job("q", trained.trained_until_s, None, user="anna"), age_s=30 * DAY_S)
    assert trained.forecast([question], threads=1) == (None,)
    assert trained.forecast([], threads=1) == ()


def test_it_follows_a_site_that_has_become_slower(trained: Forecaster) -> None:
    # Since it was trained everything takes four times as long.
    later = made_history(600, seed=7)
    shift_s = trained.trained_until_s
    slow = [
        replace(one, id=f"since-{one.id}", submit_s=one.submit_s + shift_s, duration_s=4.0 * (one.duration_s or 0.0))
        for one in later.jobs
    ]
    since = Trace(name="since", jobs=tuple(slow), origin_s=HISTORY.origin_s)
    assert _median(trained, "bert", since=since) > 2.0 * _median(trained, "bert")


def test_the_clock_of_what_is_told_since_must_be_the_same(trained: Forecaster) -> None:
    with pytest.raises(InputError) as refused:
        _median(trained, "anna", since=Trace(name="since", jobs=(job("a", 0.0, 5.0),)))
    assert [issue.pointer for issue in refused.value.issues] == ["/since/origin_s"]


def test_the_record_says_the_same_when_it_is_read_again(trained: Forecaster) -> None:
    again = from_document(Forecaster, json.loads(to_json(trained)), "forecaster")
    assert again == trained
    assert _median(again, "bert") == _median(trained, "bert")
    assert len(trained.digest) == 64


def test_a_record_of_another_format_is_refused(trained: Forecaster) -> None:
    document = json.loads(to_json(trained)) | {"format": 2}
    with pytest.raises(InputError, match="forecaster") as refused:
        from_document(Forecaster, document, "forecaster")
    assert [issue.pointer for issue in refused.value.issues] == ["/format"]


@pytest.mark.slow
def test_cost_grows_with_what_is_asked_and_told(trained: Forecaster) -> None:
    def asked(count: int) -> int:
        jobs = [job(f"q{k}", trained.trained_until_s + k, None, user="anna") for k in range(count)]
        new = [job(f"s{k}", trained.trained_until_s + 1.0 + k, 60.0, user="anna") for k in range(count)]
        since = Trace(name="since", jobs=tuple(new), origin_s=HISTORY.origin_s)
        return work(lambda: trained.forecast([Question(job=one) for one in jobs], since, threads=1))

    assert trained.remembered.jobs
    assert asked(1000) < 2.3 * asked(500)


@pytest.mark.slow
def test_cost_of_training_grows_with_the_history() -> None:
    small, large = (history_of(made_history(count)) for count in (2000, 4000))
    learn_from(small, 1)  # Libraries are loaded by the first that learns.
    assert work(lambda: report_of(learn_from(large, 1))) < 2.3 * work(lambda: report_of(learn_from(small, 1)))


def test_training_is_repeatable(trained: Forecaster) -> None:
    assert train(HISTORY, threads=1) == trained


def test_a_forecaster_that_is_no_better_than_the_history_is_refused() -> None:
    # Users tell how long jobs take until the test begins; then it is the other way round.
    jobs = list(made_history(600).jobs)
    swapped = {"anna": "bert", "bert": "anna"}
    late = [replace(one, user=swapped[str(one.user)]) for one in jobs[540:]]
    with pytest.raises(InputError, match="refused") as refused:
        train(replace(HISTORY, jobs=(*jobs[:540], *late)), threads=1)
    (issue,) = refused.value.issues
    assert issue.code == "forecaster_refused"
    assert "pinball loss is" in issue.detail
    assert "it is not better" in issue.detail


def test_jobs_that_run_at_the_end_are_said_and_not_tested() -> None:
    jobs = list(made_history(600).jobs)
    running = [replace(one, state=JobState.RUNNING) for one in jobs[-10:]]
    report = report_of(learn_from(history_of(replace(HISTORY, jobs=(*jobs[:-10], *running))), threads=1))
    assert (report.num_running, report.num_tested) == (10, 50)


def test_parts_of_a_history_that_have_not_ended_cannot_test_or_teach() -> None:
    jobs = made_history(1000).jobs
    running = tuple(replace(one, state=JobState.RUNNING) for one in jobs)
    for trace in ((*jobs[:899], *running[899:]), (*running[:795], *jobs[795:])):
        with pytest.raises(InputError) as refused:
            train(replace(HISTORY, jobs=trace))
        (issue,) = refused.value.issues
        assert (issue.code, issue.pointer) == ("too_few_jobs", "/jobs")
    # Of the second, 5 of the first 800 jobs have ended.
    assert "there are 5 to learn from" in issue.detail


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda _: None)
    with pytest.raises(ExtraMissingError, match=r"forecasts need lightgbm; .*\[forecast\]"):
        train(HISTORY)


def test_scores_by_hand() -> None:
    # One job of 20 min, all quantiles 10 min: e = log 2, or 10 min, times p each; the median is a class too low.
    quantiles_s = np.full((1, len(PROBABILITIES)), 600.0)
    found = score("x", np.array([1200.0]), quantiles_s)
    mean = math.fsum(PROBABILITIES) / len(PROBABILITIES)
    assert [found.pinball, found.pinball_min] == pytest.approx([mean * math.log(2), mean * 10.0])
    assert (found.coverage_90, found.rmse_classes) == (0.0, 1.0)
    assert class_of(np.array([599.0, 600.0, 4 * 3600.0, 1e6])).tolist() == [0.0, 1.0, 24.0, 24.0]
