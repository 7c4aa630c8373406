"""What is kept free for jobs that are still to come."""

from dataclasses import replace

import numpy as np
import pytest

from models.allocation.horizon.arrivals import expected_gpus
from models.allocation.horizon.arrivals_check import Arrivals
from models.allocation.horizon.formulation import HorizonFormulation, formulate_horizon
from models.allocation.horizon.intervals import Intervals, growing
from models.allocation.horizon.schedules import Shapes
from models.around_formulation import AroundFormulation
from models.clock import PhaseClock
from models.workload import Snapshot
from tests.models.allocation.horizon.test_check import PARAMETERS, job, solved
from tests.models.placement.scenes import cluster, dice, node
from topology.calendar import CalendarEntry, EntryKind

SHAPES = Shapes(type_index=np.array([0, 0, 1]), num_gpus=np.array([1, 2, 1]), num_types=2)


def expected(seconds: list[list[float]], had: list[float], rate_per_s: float, most: tuple[float, float]) -> np.ndarray:
    intervals = Intervals(bounds_s=np.array([0.0, 50.0, 100.0, 300.0]))
    there = np.repeat(np.array(most)[:, None], 3, axis=1)
    return expected_gpus(rate_per_s, intervals, SHAPES, np.array(seconds), np.array(had), np.array(most), there)


def test_demand_rises_until_as_many_leave_as_come() -> None:
    """Jobs of 100 GPU seconds, that take 100 s on one GPU and 60 s on two; one comes every 200 s, and 9 of 10 go to the
    first type."""
    found = expected([[100.0, 60.0, np.inf]], [0.0], 1 / 200, (90.0, 10.0))
    # The second type is for nobody. From 0 to 60 s the demand rises to 100 / 200 GPUs.
    assert found[1].tolist() == [0, 0, 0]
    rising = (60**2 - 50**2) / (2 * 60) + 40
    np.testing.assert_allclose(found[0], [0, 0.5 * rising / 50, 0.5])


def test_a_whole_job_has_had_what_it_had_and_the_median_counts() -> None:
    """The jobs there have 100, 200 and 9,000 GPU seconds in all; of the second one half is done."""
    seconds = [[100.0, np.inf, np.inf], [100.0, np.inf, np.inf], [9000.0, np.inf, np.inf]]
    found = expected(seconds, [0.0, 100.0, 0.0], 0.01, (10.0, 0.0))
    assert found[0, 2] == pytest.approx(0.01 * 200 * ((200**2 - 100**2) / (2 * 200) + 100) / 200)


def test_those_who_are_there_keep_half() -> None:
    found = expected([[100.0, 60.0, 80.0]], [0.0], 10.0, (4.0, 2.0))
    assert found[:, 1:].tolist() == [[2, 2], [1, 1]]


@pytest.mark.parametrize("seed", range(5))
def test_the_check_comes_to_the_same(seed: int) -> None:
    rng = dice(seed)
    intervals = growing(60.0, 4, 2000.0)
    seconds = np.array([[rng.choice([np.inf, rng.uniform(1, 3000)]) for _ in range(3)] for _ in range(5)])
    had, most = [rng.choice([0.0, 500.0]) for _ in range(5)], np.array([rng.randint(0, 9), rng.randint(1, 9)])
    there = np.repeat(most[:, None] * 0.75, 4, axis=1)
    found = expected_gpus(20 / 3600, intervals, SHAPES, seconds, np.array(had), most, there)
    names = [("a", 1, 1, 1.0), ("a", 1, 2, 1.0), ("b", 1, 1, 1.0)]
    jobs = [
        ({name: value for name, value in zip(names, row, strict=True) if np.isfinite(value)}, gpu_s)
        for row, gpu_s in zip(seconds.tolist(), had, strict=True)
    ]
    by = Arrivals(20.0, jobs, {"a": int(most[0]), "b": int(most[1])})
    for k in range(1, 4):
        first_s, last_s = intervals.bounds_s[k : k + 2].tolist()
        for t, name in enumerate("ab"):
            assert by.mean(name, first_s, last_s, float(there[t, k])) == pytest.approx(found[t, k])


def test_jobs_come_to_each_part_of_a_calendar_once() -> None:
    """A job every five minutes, to 16 GPUs, half of which are reserved for one of the jobs."""
    jobs = (job("x", 600.0, {1: 1.0}), job("y", 600.0, {1: 1.0}, calendar_entry="r"))
    entry = CalendarEntry(name="r", kind=EntryKind.RESERVATION, from_s=0.0, until_s=7200.0, nodes=("m",))
    nodes = cluster(node("n", 8), node("m", 8))
    parameters = replace(PARAMETERS, arrivals_per_h=12.0)
    split = formulate_horizon(Snapshot(cluster=nodes, jobs=jobs, calendar=(entry,)), parameters, PhaseClock())
    assert isinstance(split, AroundFormulation)
    parts = [inner.instance.open_gpus for inner in split._inners if isinstance(inner, HorizonFormulation)]
    whole, _, _ = solved(Snapshot(cluster=nodes, jobs=(jobs[0], replace(jobs[1], calendar_entry=None))), parameters)
    assert len(parts) == 2
    np.testing.assert_allclose(sum(parts), whole.instance.open_gpus)


def test_a_plan_leaves_room_for_who_comes() -> None:
    """Two GPUs and two jobs for an hour, which both have one now. Where a job comes every minute, half of what there is
    later is kept: no plan has more, and the check knows."""
    snapshot = Snapshot(
        cluster=cluster(node("n", 2)),
        jobs=tuple(job(name, 600.0, {1: 1.0}, restart_cost_s=0.0) for name in ("x", "y")),
    )
    parameters = replace(PARAMETERS, arrivals_per_h=60.0)
    formulation, plan, objective = solved(snapshot, parameters)
    assert formulation.violations(plan, objective) == []
    assert formulation.outlook.open_gpus["a"] == pytest.approx([2, 1, 1])
    free, free_plan, free_objective = solved(snapshot)
    assert free_objective == pytest.approx(600)
    assert objective > free_objective
    # The plan without room is none where room is to be left.
    formulation.outlook = free.outlook
    codes = {issue.code for issue in formulation.violations(free_plan, free_objective)}
    assert codes == {"over_capacity_later"}
