"""Admission, scaling, the program, placing and checking cost as much as there are jobs and nodes."""

from models.clock import PhaseClock
from models.workload import Snapshot
from tests.growth import work
from tests.models.allocation.elasticflow.scenes import formulation_of, job
from tests.models.placement.scenes import cluster, node, on


def busy(num_nodes: int) -> Snapshot:
    """Half of the nodes have jobs, and three jobs wait for each node, with deadlines that are all different."""
    where = cluster(*(node(f"n{k}", 8) for k in range(num_nodes)))
    held = [job(f"r{k}", 400, 300.0 + k, current=on({f"n{k}": (0, 1, 2, 3)})) for k in range(0, num_nodes, 2)]
    waiting = [job(f"w{k}", 200 + k % 7, 500.0 + k if k % 4 else None) for k in range(3 * num_nodes)]
    return Snapshot(cluster=where, jobs=(*held, *waiting))


def test_a_plan_grows_with_the_size() -> None:
    def plan(snapshot: Snapshot) -> None:
        formulation = formulation_of(snapshot, max_slots=5, slot_s=100.0)
        point = formulation.warm_start
        made = formulation.extract(point, PhaseClock())
        assert formulation.violations(made, formulation.problem.value(point)) == []

    def cost(num_nodes: int) -> int:
        snapshot = busy(num_nodes)
        return work(lambda: plan(snapshot))

    # Once before, so that nothing is loaded or remembered for the first time.
    cost(10)
    assert cost(40) <= 2.3 * cost(20)


def test_the_program_has_no_more_slots_for_more_jobs() -> None:
    small, large = (formulation_of(busy(n), max_slots=5, slot_s=100.0) for n in (10, 20))
    assert small.instance.ends.size == large.instance.ends.size == 5
    assert large.program.num_columns <= 2.3 * small.program.num_columns
