"""Deciding, placing and checking cost as much as there is to decide, place and check."""

from dataclasses import replace
from typing import Any

import pytest

from models.allocation.gang.formulation import formulate_gang
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.clock import PhaseClock
from models.workload import Job, Snapshot
from tests.growth import work
from tests.models.allocation.gang.scenes import cluster, queue, running
from topology.calendar import CalendarEntry, EntryKind


def busy(num_nodes: int) -> Snapshot:
    """Three of four nodes have jobs of several sizes, and as many jobs wait as there are nodes; one needs a third."""
    sizes = (8, 3, 5, 0)
    seats: dict[int, Any] = {k: {f"a{k}": range(sizes[k % 4])} for k in range(num_nodes) if sizes[k % 4]}
    held = tuple(running(f"r{k}", float(k % 7), also={"priority": 3}, **seat) for k, seat in seats.items())
    big = Job(id="big", min_gpus=8 * (num_nodes // 3) + 4, age_s=600.0, remaining_s=9.0)
    waiting = tuple(
        Job(id=f"w{k}", min_gpus=(1, 2, 4, 12)[k % 4], age_s=1000.0 - k, remaining_s=float(k % 9), priority=1 + k % 3)
        for k in range(num_nodes)
    )
    return Snapshot(cluster=cluster(*[8] * num_nodes, per_rack=4), jobs=(*held, *waiting, big))


@pytest.mark.parametrize(
    "parameters",
    [
        GangParameters(),
        GangParameters(nearness_s=1e6),
        GangParameters(order=QueueOrder.PRIORITY, preemption=True, promotion_after_s=300.0),
        GangParameters(order=QueueOrder.SRTF, preemption=True),
        GangParameters(order=QueueOrder.LAS, preemption=True),
    ],
    ids=["fifo", "nearness", "preemption", "srtf", "las"],
)
def test_a_plan_grows_with_the_size(parameters: GangParameters) -> None:
    """Without the solver, whose program grows with neither."""

    def plan(snapshot: Snapshot) -> None:
        formulation = formulate_gang(snapshot, parameters, PhaseClock())
        point = formulation.warm_start
        made = formulation.extract(point, PhaseClock())
        assert formulation.violations(made, formulation.problem.value(point)) == []

    def cost(num_nodes: int) -> int:
        snapshot = busy(num_nodes)
        return work(lambda: plan(snapshot))

    # Once before, so that nothing is loaded or remembered for the first time.
    cost(40)
    assert cost(160) <= 2.3 * cost(80)


def test_the_program_grows_with_kinds_of_jobs_alone() -> None:
    """Two sizes, in time or late, behind a job that needs all nodes."""

    def shape(num_nodes: int) -> tuple[int, ...]:
        kinds = [(f"j{k}", 1 + k % 2, 5.0 if k % 4 < 2 else 99.0) for k in range(4 * num_nodes)]
        jobs = (running("r", 60.0, a0=range(4)), *queue(("big", 8 * num_nodes, 9.0), *kinds))
        snapshot = Snapshot(cluster=cluster(*[8] * num_nodes), jobs=jobs)
        formulation = formulate_gang(snapshot, GangParameters(), PhaseClock())
        assert len(formulation.instance.classes) == 4
        return formulation.problem.matrix.shape

    assert shape(40) == shape(10)


def test_a_calendar_costs_as_much_as_there_is() -> None:
    """Half of the nodes are kept from then on, and no two jobs last equally long."""

    def cost(num_nodes: int) -> int:
        scene = busy(num_nodes)
        jobs = tuple(replace(job, remaining_s=1.0 + k / 100) for k, job in enumerate(scene.jobs))
        entries = tuple(
            CalendarEntry(name=f"e{k}", kind=EntryKind.RESERVATION, from_s=2.0 + k, nodes=nodes)
            for k, nodes in enumerate(zip(*[(f"a{n}" for n in range(num_nodes // 2))] * (num_nodes // 8), strict=True))
        )
        snapshot = replace(scene, jobs=jobs, calendar=entries)

        def plan() -> None:
            formulation = formulate_gang(snapshot, GangParameters(), PhaseClock())
            made = formulation.extract(formulation.warm_start, PhaseClock())
            assert formulation.violations(made, formulation.problem.value(formulation.warm_start)) == []

        return work(plan)

    cost(40)
    assert cost(160) <= 2.3 * cost(80)
