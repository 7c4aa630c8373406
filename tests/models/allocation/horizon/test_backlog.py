"""What has not ended at the horizon delays all jobs behind it: small problems by hand."""

from dataclasses import replace

import numpy as np
import pytest

from models.allocation.horizon.backlog import Backlog, together_s
from models.allocation.horizon.changes_check import together_s as checked_together_s
from models.allocation.horizon.objective_check import Worth
from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.horizon.schedules import Shapes
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.workload import Snapshot
from stowplan.errors import InputError
from tests.growth import work
from tests.models.allocation.horizon.test_check import PARAMETERS, job, solved
from tests.models.allocation.horizon.test_objective import checked, one_gpu, starts
from tests.models.placement.scenes import cluster, node


def test_work_behind_the_horizon_costs_what_it_delays() -> None:
    """`short` ends after 30 s; `long` begins after 60 s and has a tenth left after 960 s, which nobody waits for."""
    both = one_gpu(job("short", 30.0, {1: 1.0}, restart_cost_s=0.0), job("long", 1000.0, {1: 1.0}, restart_cost_s=0.0))
    plan, objective = checked(both, backlog_efficiency=1.0)
    assert starts(plan) == ["short"]
    assert objective == pytest.approx((30 + 960 + 100) / 2)
    assert checked(both, backlog_efficiency=0.5)[1] == pytest.approx((30 + 960 + 200) / 2)


def test_who_gets_the_gpu_is_decided_by_who_waits_for_whom() -> None:
    """Neither of two jobs ends before the horizon. Alone, `long` would end as much later as `longer` if it had to wait:
    it is the start of `longer` that takes so long. Behind the horizon both wait for what is left of `long`."""
    long = job("long", 2000.0, {1: 1.0}, restart_cost_s=0.0)
    longer = job("longer", 2100.0, {1: 1.0}, restart_cost_s=0.0, weight=1.04)
    assert starts(checked(one_gpu(long, longer))[0]) == ["longer"]
    plan, objective = checked(one_gpu(long, longer), backlog_efficiency=1.0)
    assert starts(plan) == ["long"]
    # Until 960 s both are there; then 1,040 s of the one, for which both wait, and all of the other.
    assert objective == pytest.approx(960 + 1040 + 2100 * 1.04 / 2.04)


def test_two_gpu_types_work_together() -> None:
    """A job that is three times as fast on the one: both together do it in a quarter of the time on the slower."""
    nodes = (node("slow", 1, "a"), node("fast", 1, "b"))
    entries = tuple(TableEntry(gpu_type=name, num_gpus=1, value=value) for name, value in (("a", 1.0), ("b", 3.0)))
    it = replace(job("x", 4000.0, {}), performance=ThroughputTable(entries=entries, batch_size=1))
    formulation, plan, objective = solved(
        Snapshot(cluster=cluster(*nodes), jobs=(it,)), replace(PARAMETERS, backlog_efficiency=1.0)
    )
    assert formulation.violations(plan, objective) == []
    # 950 s on the faster one after a start of 10.
    assert objective == pytest.approx(960 + (4000 - 950 * 3) / 4)


def test_who_is_fast_on_slow_gpus_takes_little_of_the_cluster() -> None:
    """One GPU of each of two types; `even` is as fast on both, `keen` three times as fast on b. So a GPU of type a is
    worth (1 + 1/3) / 2, one of type b 1, both 5/3: 300 s of `even` on a are 120 s of all, of `keen` on b 180."""
    shapes = Shapes(type_index=np.array([0, 1]), num_gpus=np.array([1, 1]), num_types=2)
    seconds = np.array([[300.0, 300.0], [900.0, 300.0], [np.inf, np.inf]])
    found = together_s(seconds, shapes, np.array([1.0, 1.0]), 1.0)
    assert found == pytest.approx([120.0, 180.0, 0.0])
    # Without GPUs of type a all are worth the same.
    assert together_s(seconds, shapes, np.array([0.0, 2.0]), 0.5) == pytest.approx([300.0, 300.0, 0.0])
    assert together_s(seconds[2:], shapes, np.array([1.0, 1.0]), 1.0).tolist() == [0.0]
    checks = {"even": {("a", 1, 1, 1.0): 300.0, ("b", 1, 1, 1.0): 300.0}, "none": {}}
    checks["keen"] = {("a", 1, 1, 1.0): 900.0, ("b", 1, 1, 1.0): 300.0}
    assert checked_together_s(checks, {"a": 1, "b": 1}) == pytest.approx({"even": 120.0, "keen": 180.0, "none": 0.0})


@pytest.mark.parametrize("weights", [(1.0, 3.0, 0.7), (1.1, 0.3, 7.0), (1.0, 1.0, 1.0)])
def test_jobs_of_which_the_same_is_guessed_wait_for_each_other(weights: tuple[float, ...]) -> None:
    """In proportion to their weights, which is rounded in many ways."""
    unknown = [
        replace(job(f"j{k}", 1.0, {1: 1.0, 2: 1.7}), remaining_iterations=None, weight=weight)
        for k, weight in enumerate(weights)
    ]
    snapshot = Snapshot(cluster=cluster(node("n", 2)), jobs=(*unknown, job("known", 4000.0, {1: 1.0, 2: 1.7})))
    checked(snapshot, backlog_efficiency=0.4)


def test_equal_jobs_wait_for_each_other_and_jobs_without_weight_for_nobody() -> None:
    backlog = Backlog(begins_s=60.0, left=np.zeros(0), together_s=np.array([10.0, 10.0, 30.0, 5.0, 0.0]))
    lost_s = backlog.lost_s(np.array([1.0, 1.0, 2.0, 0.0, 1.0]))
    assert lost_s.tolist() == [40.0, 40.0, 60.0, 0.0, 0.0]


def test_a_job_that_is_far_heavier_takes_nothing_from_those_behind_it() -> None:
    """It goes first, and what the others lose by one another is still theirs."""
    backlog = Backlog(begins_s=60.0, left=np.zeros(0), together_s=np.array([1e-4, 1e8, 1e15]))
    lost_s = backlog.lost_s(np.array([1e12, 1e-6, 1.0]))
    assert lost_s == pytest.approx([1e12 * 1e-4, 1e8 * (1 + 1e-6), 1e15], rel=1e-9)


def test_the_check_of_a_backlog_grows_with_the_jobs() -> None:
    def check(num_jobs: int) -> int:
        jobs = tuple(job(f"j{k}", 100.0 + k, {1: 1.0}) for k in range(num_jobs))
        parameters = replace(PARAMETERS, backlog_efficiency=0.4)
        alone_s = {item.id: 100.0 for item in jobs}
        return work(lambda: Worth(one_gpu(*jobs), parameters, alone_s, alone_s, 960.0))

    assert check(400) <= 2.3 * check(200)


@pytest.mark.parametrize("efficiency", [0.0, 1.5, float("nan")])
def test_an_efficiency_out_of_range_is_refused(efficiency: float) -> None:
    with pytest.raises(InputError, match=r"backlog_efficiency is .*; must be from 0.01 to 1"):
        HorizonParameters(horizon_s=1800.0, backlog_efficiency=efficiency)


def test_sias_objective_has_no_backlog() -> None:
    """What is said of it changes nothing."""
    both = one_gpu(job("short", 30.0, {1: 1.0}), job("long", 1000.0, {1: 1.0}))
    asked = HorizonParameters(objective=HorizonObjective.GOODPUT, num_intervals=1)
    _, plan, objective = solved(both, asked)
    for efficiency in (None, 0.05):
        _, same, value = solved(both, replace(asked, backlog_efficiency=efficiency))
        assert (same, value) == (plan, objective)
