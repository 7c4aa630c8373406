"""Intervals, which configurations are worth having, and what a schedule takes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from models.allocation.horizon.instance import horizon_instance
from models.allocation.horizon.intervals import growing
from models.allocation.horizon.openings_check import LaterGpus
from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.horizon.schedules import Shapes, efficient, worth_having
from models.clock import PhaseClock
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.workload import Job, Snapshot
from stowplan.errors import InputError
from tests.models.allocation.horizon.scenes import instance_of
from tests.models.placement.scenes import cluster, node, on
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import NodeState

SHAPES = Shapes(type_index=np.array([0, 0, 0, 1]), num_gpus=np.array([1, 2, 4, 1]), num_types=2)


def test_intervals_grow_by_the_same_factor_to_the_end() -> None:
    found = growing(60.0, 4, 60.0 * (1 + 3 + 9 + 27))
    np.testing.assert_allclose(found.lengths_s, [60, 180, 540, 1620])
    np.testing.assert_allclose(growing(60.0, 3, 100.0).bounds_s, [0, 60, 120, 180])
    np.testing.assert_allclose(found.shares(np.array([30.0]), np.array([330.0])), [[0.5, 1.0, 90 / 540, 0.0]])


def test_what_another_configuration_beats_is_left_out() -> None:
    seconds = np.array([[100.0, 50.0, 50.0, np.inf], [100.0, 120.0, 90.0, 10.0]])
    found = worth_having(SHAPES, seconds, np.array([2, -1]))
    # Four GPUs are no faster than two, but the first job has them.
    np.testing.assert_array_equal(found, [[True, True, True, False], [True, False, True, True]])
    # Speed 1.4 on two GPUs is below the line from 1 on one to 2.5 on four, 1.6 is above it.
    seconds = np.array([[1.0, 1 / 1.6, 1 / 2.5, np.inf], [1.0, 1 / 1.4, 1 / 2.5, 1.0]])
    np.testing.assert_array_equal(efficient(SHAPES, seconds), [[True, True, True, False], [True, False, True, True]])


def _scene(remaining: float = 400.0) -> Snapshot:
    """Two GPUs; a job that does 1 or 1.6 iterations a second, runs on one of them, and pays 10 s for a change."""
    entries = tuple(TableEntry(gpu_type="a", num_gpus=n, value=value) for n, value in ((1, 1.0), (2, 1.6)))
    job = Job(
        id="j",
        performance=ThroughputTable(entries=entries, batch_size=1),
        remaining_iterations=remaining,
        restart_cost_s=10.0,
        age_s=3600.0,
        current=on({"n": (0,)}),
    )
    return Snapshot(cluster=cluster(node("n", 2)), jobs=(job,))


def test_a_schedule_ends_when_its_work_is_done() -> None:
    parameters = HorizonParameters(
        num_intervals=2, interval_s=100.0, horizon_s=300.0, restart_price=2.0, backlog_efficiency=None
    )
    it = instance_of(_scene(), parameters)
    label = {-1: "-", **{c: int(n) for c, n in enumerate(it.sia.configurations.num_gpus)}}
    found, use = it.schedules, it.schedules.use.toarray()[0]
    ends = {
        (label[now], label[later], at): (end_s, gpus)
        for now, later, at, end_s, gpus in zip(
            found.now.tolist(),
            found.later.tolist(),
            found.at.tolist(),
            found.ends_s.tolist(),
            use.tolist(),
            strict=True,
        )
    }
    expected = {
        (1, "-", 0): (400.0, 1.0),
        (2, "-", 0): (20 + 250, 2 * 170 / 200),
        # 100 s on one, 20 s of nothing, and 300 of 400 iterations on two.
        (1, 2, 1): (100 + 20 + 187.5, 2.0),
        # 80 s on two make 128 iterations, 272 are left.
        (2, 1, 1): (100 + 20 + 272, 1.0),
        (1, "-", 1): (300 + 20 + 187.5, 0.0),
        (2, "-", 1): (300 + 20 + 170, 0.0),
        ("-", 1, 1): (100 + 20 + 400, 1.0),
        ("-", 2, 1): (100 + 20 + 250, 2.0),
        ("-", "-", 0): (300 + 20 + 250, 0.0),
    }
    assert ends == {schedule: pytest.approx(taken) for schedule, taken in expected.items()}
    np.testing.assert_allclose(it.cost, found.ends_s)


def _later(
    scene: Snapshot, entries: Sequence[CalendarEntry], planned: Snapshot | None = None, lasts_s: float = 3.0
) -> list[float]:
    """GPUs in intervals of 100 s beside a calendar, of `planned` if that is another one; the check finds the same."""
    calendar = replace(scene, calendar=tuple(entries))
    shown = planned or calendar
    it = horizon_instance(
        shown, HorizonParameters(num_intervals=3, interval_s=100.0, horizon_s=100.0 * lasts_s), PhaseClock(), calendar
    )
    bounds_s = it.intervals.bounds_s.tolist()
    audit = LaterGpus(shown, calendar, it.parameters.epsilon, it.sia.taken.pinned)
    again = [audit.mean(first_s, last_s)["a"] for first_s, last_s in pairwise(bounds_s)]
    np.testing.assert_allclose(it.open_gpus, [again])
    return again


def test_the_calendar_takes_nodes_later() -> None:
    scene = replace(_scene(), cluster=cluster(node("n", 2), node("m", 4)))
    entries = [
        CalendarEntry(name="r", kind=EntryKind.RESERVATION, from_s=150.0, until_s=250.0, nodes=("m",)),
        CalendarEntry(name="d", kind=EntryKind.DEPARTURE, from_s=200.0, nodes=("m",)),
    ]
    np.testing.assert_allclose(_later(scene, entries), [6.0, 2 + 2.0, 2.0])


def test_entries_take_nothing_from_the_jobs_that_they_are_for_or_that_may_stay() -> None:
    scene = _scene()
    (job,) = scene.jobs
    own = replace(scene, jobs=(replace(job, calendar_entry="r"),))
    both = replace(own, jobs=(*own.jobs, replace(job, id="guest", current=None)))
    hard = CalendarEntry(name="r", kind=EntryKind.RESERVATION, from_s=50.0, until_s=150.0, nodes=("n",))
    np.testing.assert_allclose(_later(own, [hard]), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(_later(both, [hard]), [1.0, 1.0, 2.0])
    soft = replace(hard, hard=False)
    np.testing.assert_allclose(_later(scene, [soft]), [2.0, 2.0, 2.0])
    rigid = replace(scene, jobs=(replace(job, preemptible=False, current=None),))
    np.testing.assert_allclose(_later(rigid, [soft]), [1.0, 1.0, 2.0])
    np.testing.assert_allclose(_later(own, [replace(soft, kind=EntryKind.MAINTENANCE)]), [1.0, 1.0, 2.0])


def test_nodes_that_are_closed_now_are_there_when_they_open() -> None:
    scene = replace(_scene(), cluster=cluster(node("n", 2), node("m", 4, in_use=(3,))))
    maintenance = CalendarEntry(name="m", kind=EntryKind.MAINTENANCE, from_s=-10.0, until_s=150.0, nodes=("m",))
    closed = replace(scene, cluster=cluster(node("n", 2), node("m", 4, in_use=(3,), state=NodeState.DRAINED)))
    np.testing.assert_allclose(_later(scene, [maintenance], closed), [2.0, 3.5, 5.0])
    # Nobody can say that the job would be off in time; of what another entry takes later the node is closed again.
    coming = replace(maintenance, from_s=90.0)
    again = replace(maintenance, name="again", from_s=250.0, until_s=None)
    np.testing.assert_allclose(_later(scene, [coming], closed), [2.0, 3.5, 5.0])
    np.testing.assert_allclose(_later(scene, [again], closed), [2.0, 2.0, 2.0])
    # What is drained by itself stays so, and what other jobs have that are planned on nodes of their own is theirs.
    np.testing.assert_allclose(_later(closed, [maintenance], closed), [2.0, 2.0, 2.0])
    (job,) = scene.jobs
    theirs = replace(scene, jobs=(job, replace(job, id="other", current=None, calendar_entry="r")))
    reserved = replace(maintenance, name="r", kind=EntryKind.RESERVATION)
    np.testing.assert_allclose(_later(theirs, [reserved], closed), [2.0, 2.0, 2.0])
    belongs = replace(closed, jobs=(replace(job, calendar_entry="s"),))
    np.testing.assert_allclose(_later(theirs, [maintenance], belongs), [2.0, 2.0, 2.0])


def test_parameters_that_cannot_be() -> None:
    with pytest.raises(InputError, match="num_intervals is 0; must be from 1 to 16"):
        HorizonParameters(num_intervals=0)
    with pytest.raises(InputError, match="that of one interval: give 1"):
        HorizonParameters(objective=HorizonObjective.GOODPUT)
    with pytest.raises(InputError, match="at least 240, 4 times interval_s"):
        HorizonParameters(horizon_s=200.0)
    with pytest.raises(
        InputError, match=r"horizon_s is 900\.0; one interval can only end at interval_s, 60: leave it out"
    ):
        HorizonParameters(num_intervals=1, horizon_s=900.0)
    HorizonParameters(num_intervals=1, horizon_s=60.0)
    for price in (-1.0, 2e6, float("nan")):
        with pytest.raises(InputError, match=r"restart_price is .*; must be from 0 to 1e\+06"):
            HorizonParameters(restart_price=price)
    HorizonParameters(restart_price=1e6)
