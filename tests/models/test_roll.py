"""Which jobs say something is known of all of them together."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from models.performance.goodput.spec import BatchRange, GoodputObservations, GradientStatistics
from models.roll import has_model, has_observations, is_preemptible, reserves, rows_that_say, say, some_say
from models.workload import Adaptivity, Job, Reservation, Snapshot
from tests.models.placement.scenes import cluster, node

_OBSERVED = GoodputObservations(
    batch=BatchRange(initial=8, maximum=512),
    gradient=GradientStatistics(squared_norm=1.0, variance=50.0),
    observations=(),
    shared_with="m",
)


def scene(*jobs: Job) -> Snapshot:
    return Snapshot(cluster=cluster(node("n0")), jobs=jobs)


def test_jobs_that_say_nothing_say_none_of_their_fields() -> None:
    snapshot = scene(Job(id="j0"), Job(id="j1"))
    for field in fields(Job)[1:]:
        assert not some_say(snapshot, field.name)
        assert not say(snapshot, field.name).any()
        assert rows_that_say(snapshot, field.name) == []
    assert is_preemptible(snapshot).all()
    assert not has_observations(snapshot)
    with pytest.raises(ValueError, match="read-only"):
        say(snapshot, "weight")[0] = True


@pytest.mark.parametrize(
    "said",
    [
        {"min_gpus": 2},
        {"adaptivity": Adaptivity.RIGID},
        {"preemptible": False},
        {"reservation": Reservation(gpu_type="a", num_gpus=1)},
        {"remaining_s": 0.0},
        {"latest_start_s": 3.0},
        {"running_s": 7.0},
    ],
)
def test_what_a_job_says_is_told_of_it_alone(said: dict[str, Any]) -> None:
    (name,) = said
    snapshot = scene(Job(id="j0"), Job(id="j1", **said))
    # Nobody else says that, and a round later somebody else does.
    later = scene(snapshot.jobs[0], Job(id="j2", **said), Job(id="j1"))
    for now, rows in ((snapshot, [1]), (later, [1]), (replace(later, jobs=later.jobs[::2]), [])):
        assert rows_that_say(now, name) == np.flatnonzero(say(now, name)).tolist() == rows
        assert some_say(now, "deadline_s", name) == bool(rows)
        assert not some_say(now, "deadline_s", "user")
        assert np.flatnonzero(reserves(now)).tolist() == (rows if name == "reservation" else [])
        assert np.flatnonzero(~is_preemptible(now)).tolist() == (rows if name == "preemptible" else [])
        assert not has_model(now).any()


def test_observations_are_told_from_other_performance() -> None:
    assert has_observations(scene(Job(id="j0"), Job(id="j1", performance=_OBSERVED)))
