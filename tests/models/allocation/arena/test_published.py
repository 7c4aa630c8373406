"""A busy moment of the Philly trace on the 1,280-GPU cluster of Arena's simulation."""

import pytest

from benchmarks.workloads.published.arena import active_jobs, data_are_there, simulated_cluster
from models.clock import PhaseClock
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import TerminationReason
from tests.models.allocation.arena.scenes import HEURISTIC, ILP, formulation_of

pytestmark = pytest.mark.skipif(not data_are_there(), reason="the published data (shared/data/arena) are not there")


def test_200_jobs_of_a_burst_go_through_both_methods() -> None:
    snapshot = Snapshot(cluster=simulated_cluster(), jobs=active_jobs("philly", 670 * 300.0))
    assert len(snapshot.jobs) == 203
    objectives = []
    for parameters in (ILP, HEURISTIC):
        formulation = formulation_of(snapshot, parameters)
        result = formulation.solve(SolveOptions(solver="auto"), SolveMonitor())
        assert result.incumbent is not None
        assert result.objective is not None
        assert result.bound is not None
        plan = formulation.extract(result.incumbent, PhaseClock())
        assert formulation.violations(plan, result.objective) == []
        objectives.append((result.termination, result.objective, result.bound))
    (termination, exact, _), (_, greedy, bound) = objectives
    assert termination is TerminationReason.OPTIMAL
    assert 0.9 * exact <= greedy <= exact * (1 + 1e-4)
    assert bound >= exact * (1 - 1e-9)
