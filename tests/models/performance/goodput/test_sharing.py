"""Jobs of one application share what they have observed."""

from dataclasses import replace

import pytest

from models.allocation.sia.parameters import SiaParameters
from models.allocation.sia.validation import policy_issues
from models.performance.goodput.fit import fit_models
from models.performance.goodput.sharing import with_shared_observations
from models.performance.goodput.spec import BatchRange, GoodputObservations, GradientStatistics
from models.plan import PlanRequest
from models.planning import plan
from models.workload import Job, Reservation, Snapshot
from tests.growth import work
from tests.models.performance.goodput.test_fit import TRUE, measured
from tests.models.placement.scenes import cluster, node

SIA = SiaParameters()
SEEN = measured(TRUE, gpu_type="a")
NEW = GoodputObservations(
    batch=BatchRange(initial=8, maximum=512),
    gradient=GradientStatistics(squared_norm=1.0, variance=50.0),
    observations=(),
    shared_with="m",
)
OLD = replace(NEW, observations=SEEN, max_local_batch={"a": 64})


def job(name: str, performance: GoodputObservations) -> Job:
    return Job(id=name, performance=performance)


def test_each_point_counts_once_and_what_is_a_jobs_own_stays_so() -> None:
    own = replace(OLD, observations=SEEN[:2], max_local_batch={"a": 32}, gpus_per_replica={"b": 2})
    alone = replace(OLD, shared_with=None, observations=SEEN[:1])
    jobs = [job("x", own), job("y", OLD), job("z", NEW), job("alone", alone), Job(id="none")]
    shared = [known.performance for known in with_shared_observations(jobs)]
    for performance, batch in zip(shared[:3], (32, 64, 32), strict=True):
        assert isinstance(performance, GoodputObservations)
        assert set(performance.observations) == set(SEEN)
        assert len(performance.observations) == len(SEEN)
        assert performance.max_local_batch == {"a": batch}
        assert performance.gpus_per_replica == {"b": 2}
    assert shared[3:] == [alone, None]


def test_a_job_that_never_ran_is_planned_by_the_model_of_its_kind() -> None:
    """As if the observations were its own."""
    machines = cluster(node("n0"), node("n1"))
    outcomes = [
        plan(PlanRequest(snapshot=Snapshot(cluster=machines, jobs=jobs), parameters=SiaParameters()))
        for jobs in (
            (job("old", OLD), job("new", NEW)),
            (job("old", replace(OLD, shared_with=None)), job("new", replace(OLD, shared_with=None))),
        )
    ]
    plans = [outcome.plan for outcome in outcomes]
    assert plans[0] is not None
    assert plans[1] is not None
    assert plans[0].allocations == plans[1].allocations
    assert {item.job_id for item in plans[0].allocations} == {"old", "new"}


def test_an_application_that_nobody_observed_is_refused() -> None:
    machines = cluster(node("n0"))
    found = policy_issues(
        Snapshot(cluster=machines, jobs=(job("x", OLD), job("y", replace(NEW, shared_with="n")))), SIA
    )
    assert [(issue.code, issue.pointer) for issue in found] == [
        ("nothing_observed", "/jobs/1/performance/observations")
    ]
    assert "no job here that shares with 'n' has observations" in found[0].detail
    alone = policy_issues(Snapshot(cluster=machines, jobs=(job("x", replace(NEW, shared_with=None)),)), SIA)
    assert [issue.code for issue in alone] == ["empty"]


@pytest.mark.parametrize(("gpu_type", "codes"), [("a", []), ("b", ["reservation_cannot_run"])])
def test_what_is_shared_counts_for_reservations(gpu_type: str, codes: list[str]) -> None:
    reserving = replace(job("new", NEW), reservation=Reservation(gpu_type=gpu_type, num_gpus=4))
    snapshot = Snapshot(cluster=cluster(node("n0"), node("n1", 4, "b")), jobs=(job("old", OLD), reserving))
    assert [issue.code for issue in policy_issues(snapshot, SIA)] == codes


def test_twice_as_many_jobs_that_share_as_many_points_cost_twice_as_much() -> None:
    def cost(num_jobs: int) -> int:
        jobs = [job("old", OLD), *(job(f"j{k}", NEW) for k in range(num_jobs))]

        def fit() -> None:
            shared = with_shared_observations(jobs)
            fit_models([known.performance for known in shared if isinstance(known.performance, GoodputObservations)])

        return work(fit)

    cost(1)
    base = cost(1)
    assert cost(200) - base <= 2.2 * (cost(100) - base)
