"""Listing schedules, solving, placing and checking cost as much as there are jobs and nodes."""

from models.allocation.horizon.formulation import formulate_horizon
from models.allocation.horizon.parameters import HorizonParameters
from models.clock import PhaseClock
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from tests.growth import work
from tests.models.allocation.horizon.test_check import job
from tests.models.placement.scenes import cluster, node, on


def busy(num_nodes: int) -> Snapshot:
    """A job runs on every second node, and twice as many wait as there are nodes."""
    speeds = {1: 1.0, 2: 1.8, 4: 3.0, 8: 5.0}
    running = [
        job(f"r{k}", 900.0 + 7 * k, speeds, current=on({f"n{k}": tuple(range(8))})) for k in range(0, num_nodes, 2)
    ]
    waiting = [job(f"w{k}", 90.0 + 5 * k, speeds) for k in range(2 * num_nodes)]
    return Snapshot(cluster=cluster(*(node(f"n{k}", 8) for k in range(num_nodes))), jobs=(*running, *waiting))


def test_a_plan_grows_with_the_size() -> None:
    def plan(snapshot: Snapshot) -> None:
        formulation = formulate_horizon(snapshot, HorizonParameters(num_intervals=3, horizon_s=3000.0), PhaseClock())
        result = formulation.solve(SolveOptions(solver="auto", relative_gap=0.05), SolveMonitor())
        assert result.incumbent is not None
        assert result.objective is not None
        made = formulation.extract(result.incumbent, PhaseClock())
        assert formulation.violations(made, result.objective) == []

    small, large = busy(15), busy(30)
    plan(small)
    assert work(lambda: plan(large)) <= 2.3 * work(lambda: plan(small))
