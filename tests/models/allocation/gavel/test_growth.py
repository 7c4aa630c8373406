"""Shares, rounds, placing and checking cost as much as there are jobs and nodes."""

import tracemalloc

import pytest

from models.allocation.gavel.instance import gavel_instance
from models.allocation.gavel.parameters import GavelObjective, GavelParameters
from models.clock import PhaseClock
from models.workload import Job, Snapshot
from tests.growth import work
from tests.models.allocation.gavel.scenes import formulation_of, table
from tests.models.placement.scenes import cluster, node, on


def busy(num_nodes: int) -> Snapshot:
    """Half of the nodes of each of two types have jobs, and three times as many jobs wait as there are nodes."""
    kinds = ("a", "b")
    members = [node(f"n{k}", 8, kinds[k % 2]) for k in range(num_nodes)]
    speeds = [table({(name, size): size * rate for name, rate in zip(kinds, (1.0, 2.5), strict=True)}) for size in (4,)]
    held = [
        Job(
            id=f"r{k}", min_gpus=4, performance=speeds[0], current=on({f"n{k}": (0, 1, 2, 3)}), remaining_iterations=9.0
        )
        for k in range(0, num_nodes, 2)
    ]
    waiting = [
        Job(id=f"w{k}", min_gpus=(1, 2, 4, 8)[k % 4], age_s=float(k), remaining_s=1000.0 + k)
        for k in range(3 * num_nodes)
    ]
    return Snapshot(cluster=cluster(*members), jobs=(*held, *waiting))


@pytest.mark.parametrize("objective", GavelObjective)
def test_a_plan_grows_with_the_size(objective: GavelObjective) -> None:
    def plan(snapshot: Snapshot) -> None:
        formulation = formulation_of(snapshot, objective=objective)
        point = formulation.warm_start
        made = formulation.extract(point, PhaseClock())
        assert formulation.violations(made, formulation.problem.value(point)) == []

    def cost(num_nodes: int) -> int:
        snapshot = busy(num_nodes)
        return work(lambda: plan(snapshot))

    # Once before, so that nothing is loaded or remembered for the first time.
    cost(20)
    assert cost(80) <= 2.3 * cost(40)


def test_jobs_of_many_sizes_take_as_much_memory_as_there_are_jobs() -> None:
    """Every job has a size of its own: a speed of every job on every size would be their product."""

    def peak(num_jobs: int) -> int:
        machines = cluster(*(node(f"n{k}", 8) for k in range(num_jobs)))
        jobs = tuple(Job(id=f"j{k}", min_gpus=k, performance=table({("a", k): 1.0})) for k in range(1, num_jobs))
        snapshot = Snapshot(cluster=machines, jobs=jobs)
        # What is found of tables stays with them, in maps that grow in steps.
        gavel_instance(snapshot, GavelParameters())
        tracemalloc.start()
        try:
            gavel_instance(snapshot, GavelParameters())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(50)
    assert peak(800) <= 2.3 * peak(400)
