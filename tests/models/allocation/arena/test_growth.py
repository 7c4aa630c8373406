"""Algorithm 1, placing and checking cost as much as there are jobs and nodes."""

import pytest

from models.allocation.arena.formulation import point_of
from models.allocation.arena.heuristic import schedule
from models.allocation.arena.parameters import ArenaObjective, ArenaParameters
from models.allocation.arena.theta_search import ThetaSearch
from models.clock import PhaseClock
from models.workload import Job, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from tests.growth import work
from tests.models.allocation.arena.scenes import formulation_of, table
from tests.models.placement.scenes import cluster, node, on


def busy(num_nodes: int) -> Snapshot:
    """Nodes of two types, half of them in use, and as many jobs wait as there are nodes; some have deadlines."""
    kinds = ("a", "b")
    members = [node(f"n{k}", 8, kinds[k % 2]) for k in range(num_nodes)]
    speeds = table({(kind, n): rate * n**0.8 for kind, rate in (("a", 1.0), ("b", 2.5)) for n in (1, 2, 4, 8)})

    def job(name: str, k: int, **fields: object) -> Job:
        return Job(
            id=name,
            min_gpus=(1, 2, 4)[k % 3],
            max_gpus=8,
            performance=speeds,
            age_s=float(k),
            remaining_iterations=10.0 + k % 7,
            deadline_s=(None, 5000.0)[k % 2],
            **fields,  # type: ignore[arg-type]  # fields of a scene
        )

    held = [job(f"r{k}", k, current=on({f"n{k}": (0, 1, 2, 3)})) for k in range(0, num_nodes, 2)]
    return Snapshot(cluster=cluster(*members), jobs=(*held, *(job(f"w{k}", k) for k in range(num_nodes))))


@pytest.mark.parametrize("objective", ArenaObjective)
def test_a_plan_grows_with_the_size(objective: ArenaObjective) -> None:
    """Without the solver, whose program grows with jobs and kinds of blocks."""

    def plan(snapshot: Snapshot) -> None:
        formulation = formulation_of(snapshot, ArenaParameters(objective=objective))
        found = schedule(formulation.instance, lambda: False)
        assert found is not None
        assert found.complete
        point = point_of(formulation.instance, found.chosen)
        made = formulation.extract(point, PhaseClock())
        assert formulation.violations(made, formulation.problem.value(point)) == []

    def cost(num_nodes: int) -> int:
        snapshot = busy(num_nodes)
        return work(lambda: plan(snapshot))

    # Once before, so that nothing is loaded or remembered for the first time.
    plan(busy(8))
    assert cost(80) <= 2.5 * cost(40)


def test_the_search_for_theta_grows_with_the_size() -> None:
    def search(num_nodes: int) -> ThetaSearch:
        formulation = formulation_of(
            busy(num_nodes), ArenaParameters(objective=ArenaObjective.FINISH_TIME_FAIRNESS, mean_weight=1.0)
        )
        options = SolveOptions(solver="auto", warm_start=formulation.warm_start)
        return ThetaSearch(formulation.instance, formulation.problem, options, SolveMonitor())

    def cost(num_nodes: int) -> int:
        whole = search(num_nodes)
        return work(lambda: whole.run())

    search(8).run()
    assert cost(160) <= 2.5 * cost(80)
