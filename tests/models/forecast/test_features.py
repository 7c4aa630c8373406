"""What a job sees of the jobs before it: only what had happened when it was submitted."""

import math
from dataclasses import replace

import numpy as np
import pytest

from models.forecast.features import FEATURES, FeatureMatrix, features_of, names_in, remembered
from models.forecast.history import History
from tests.growth import work
from tests.models.forecast.histories import job, made_history
from workloads.trace import TraceJob


def _history(jobs: list[TraceJob]) -> History:
    return History(name="h", jobs=tuple(jobs), origin_s=0.0, now_s=1e9, left_out={})


def _seen(rows: FeatureMatrix, k: int, name: str) -> float:
    return float(rows[k, FEATURES.index(name)])


def test_a_job_sees_what_had_ended_and_what_ran() -> None:
    #   a |----| 0-10     b |--------------| 0-100     c at 50: a has ended, b has run for 50 s     d waits 20 s
    jobs = [
        job("a", 0.0, 10.0, user="u"),
        job("b", 0.0, 100.0, user="u"),
        job("d", 45.0, 10.0, user="u", waited_s=20.0),
        job("c", 50.0, 10.0, user="u"),
        job("other", 60.0, 10.0, user="v"),
    ]
    rows = features_of(_history(jobs), names_in(jobs))
    assert math.isnan(_seen(rows, 0, "owner_mean"))
    assert _seen(rows, 3, "owner_mean") == pytest.approx(math.log(10.0))
    running = [_seen(rows, 3, "owner_running"), _seen(rows, 3, "owner_running_for")]
    assert running == pytest.approx([1, math.log(50.0)])
    assert (_seen(rows, 4, "owner_running"), _seen(rows, 4, "user")) == (0, 1)


def test_what_happens_later_changes_nothing_for_earlier_jobs() -> None:
    # No leakage: whatever becomes of the jobs that had not ended at the submission of job 100, it sees the same.
    jobs = list(made_history(200).jobs)
    at_s = jobs[100].submit_s
    changed = [replace(one, duration_s=5e5) if one.submit_s + (one.duration_s or 0.0) > at_s else one for one in jobs]
    names = names_in(jobs)
    before, after = (features_of(_history(those), names)[:101] for those in (jobs, changed))
    np.testing.assert_array_equal(before, after)
    assert changed != jobs


def test_names_that_nobody_knew_are_not_known() -> None:
    jobs = [job("a", 0.0, 1.0, queue="q"), job("b", 1.0, 1.0, queue="new")]
    rows = features_of(_history(jobs), names_in(jobs[:1]))
    assert (_seen(rows, 0, "queue"), math.isnan(_seen(rows, 1, "queue"))) == (0, True)


def test_later_jobs_see_the_same_of_what_is_remembered_as_of_all() -> None:
    jobs = list(made_history(1500).jobs)
    # All of them have ended when the next one comes.
    new = [job("new-a", 1e6, None, user="anna"), job("new-b", 1e6, None, user="bert")]
    names = names_in(jobs)
    kept = [jobs[k] for k in remembered(_history(jobs))]
    assert len(kept) < len(jobs) / 2
    of_all, of_kept = (features_of(_history([*those, *new]), names)[-2:] for those in (jobs, kept))
    np.testing.assert_array_equal(of_all, of_kept)


@pytest.mark.slow
def test_cost_grows_with_the_number_of_jobs() -> None:
    small, large = (_history(list(made_history(size).jobs)) for size in (2000, 4000))
    names = names_in(small.jobs)
    assert work(lambda: features_of(large, names)) < 2.3 * work(lambda: features_of(small, names))
