"""How much is left of jobs that do not say: by how long they last, and else a guess."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from models.allocation.horizon.validation import policy_issues
from models.forecast.lasting import Lasting
from models.workload import Job, Reservation, Snapshot
from tests.models.allocation.horizon.scenes import instance_of, random_parameters, timed_snapshot
from tests.models.allocation.horizon.test_check import PARAMETERS, job
from tests.models.allocation.horizon.test_plans import planned
from tests.models.placement.scenes import SEEDS, cluster, dice, node, on

# Half end after 100 s, another four of ten from then to 300 s, and who is left after 600 s on average.
LASTING = Lasting(probabilities=(0.5, 0.9), seconds=(100.0, 300.0))
MEAN_S = 0.5 * 100 + 0.4 * 200 + 0.1 * 600


def left_s(*jobs: Job) -> list[list[float]]:
    """Seconds of each job on 1, 2 and 4 GPUs."""
    it = instance_of(Snapshot(cluster=cluster(node("n", 8)), jobs=jobs), PARAMETERS)
    assert it.sia.configurations.num_gpus.tolist() == [1, 2, 4, 8]
    found: list[list[float]] = it.work.seconds[:, :3].tolist()
    return found


def silent(name: str, **said: object) -> Job:
    return replace(job(name, 0.0, {1: 1.0, 2: 1.6, 4: 2.0}, **said), remaining_iterations=None)


def test_what_is_left_is_done_in_the_mean_of_how_long_it_lasts() -> None:
    """As the job runs, and while it waits where it is slowest; the distribution before the point."""
    runs = silent("runs", current=on({"n": (0, 1)}), lasting=LASTING, remaining_s=7.0)
    waits, short = silent("waits", lasting=LASTING), silent("short", remaining_s=40.0)
    told = replace(short, id="told", remaining_iterations=20.0)
    found = left_s(runs, waits, short, told)
    assert found[0] == pytest.approx([1.6 * MEAN_S, MEAN_S, 1.6 * MEAN_S / 2])
    assert found[1] == pytest.approx([MEAN_S, MEAN_S / 1.6, MEAN_S / 2])
    assert found[2] == pytest.approx([40.0, 25.0, 20.0])
    assert found[3] == pytest.approx([20.0, 12.5, 10.0])


def test_a_job_in_no_configuration_does_as_much_as_its_gpus() -> None:
    (found,) = left_s(silent("odd", current=on({"n": (0, 1, 2)}), lasting=LASTING))
    assert found == pytest.approx([3 * MEAN_S, 3 * MEAN_S / 1.6, 3 * MEAN_S / 2])


def test_a_job_with_a_reservation_lasts_as_long_on_what_it_reserves() -> None:
    own = silent("own", remaining_s=40.0, reservation=Reservation(gpu_type="a", num_gpus=4))
    (found,) = left_s(own)
    assert found[2] == pytest.approx(40.0)


def test_a_life_of_nothing_is_none() -> None:
    over = Lasting(probabilities=(1.0,), seconds=(0.0,))
    found = left_s(silent("known", remaining_s=40.0), silent("over", lasting=over))
    assert [each[0] for each in found] == pytest.approx([40.0, 40.0])


def test_who_is_overdue_or_silent_has_what_others_have() -> None:
    known = silent("known", remaining_s=40.0)
    found = left_s(known, silent("silent"), silent("overdue", remaining_s=0.0), silent("had", attained_gpu_s=90.0))
    assert [each[0] for each in found] == pytest.approx([40.0, 40.0, 40.0, 90.0])


def test_jobs_are_asked_for_what_is_left_that_say_nothing_of_it() -> None:
    jobs = silent("a", remaining_s=40.0), silent("b"), silent("c", lasting=LASTING)
    issues = policy_issues(Snapshot(cluster=cluster(node("n", 8)), jobs=jobs), PARAMETERS)
    assert [(issue.code, issue.pointer) for issue in issues] == [("remaining_unknown", "/jobs/1/remaining_iterations")]
    assert issues[0].detail.endswith("or how long they last (lasting, remaining_s)")


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_plans_by_how_long_jobs_last_are_checked_and_optimal(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = timed_snapshot(rng), random_parameters(rng)
    lasts = [
        replace(
            one,
            remaining_iterations=rng.choice((None, one.remaining_iterations)),
            lasting=rng.choice((None, LASTING)),
            remaining_s=rng.choice((None, 0.0, 80.0)),
        )
        for one in snapshot.jobs
    ]
    snapshot = replace(snapshot, jobs=tuple(lasts))
    result, _ = planned(snapshot, parameters)
    whole, _ = planned(snapshot, parameters, "highs")
    assert result.termination is whole.termination
    if whole.objective is not None:
        assert result.objective == pytest.approx(whole.objective, rel=1e-6)
