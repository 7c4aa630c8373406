"""Among plans of equal value the one that changes least is taken."""

from itertools import permutations

import numpy as np
import pytest

from models.allocation.sia.formulation import formulate_sia
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.sia.ties import objective_step
from models.clock import PhaseClock
from models.plan import Change
from models.workload import Job, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import TerminationReason
from tests.models.allocation.sia.instances import table
from tests.models.placement.scenes import cluster, node, on

COSTS = SiaParameters(objective=SiaObjective.GIVEN_COSTS)


@pytest.mark.parametrize(
    ("values", "step"),
    [((3.0, -4.0), 1.0), ((0.3, 0.7), 0.1), ((0.25, 1.1), 0.01), ((0.125,), 0.001), ((1 / 3,), None), ((), 1.0)],
)
def test_the_step_of_the_objective(values: tuple[float, ...], step: float | None) -> None:
    assert objective_step(np.array(values)) == step


@pytest.mark.parametrize("solver", ["decomposition", "highs", "scip"])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_jobs_stay_where_they_are_when_nothing_is_gained(solver: str, order: tuple[int, ...]) -> None:
    """Three jobs, one GPU each, on types a, b, c with one GPU each, and every cost is 0.25: all six plans cost 0.75."""
    nodes = [node(f"n{kind}", 1, kind) for kind in "abc"]
    costs = table({(kind, 1): 0.25 for kind in "abc"})
    jobs = tuple(
        Job(id=f"j{k}", performance=costs, current=on({f"n{'abc'[place]}": (0,)})) for k, place in enumerate(order)
    )
    formulation = formulate_sia(Snapshot(cluster=cluster(*nodes), jobs=jobs), COSTS, PhaseClock())
    result = formulation.solve(SolveOptions(solver=solver, relative_gap=0.0), SolveMonitor())
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective == pytest.approx(0.75)
    assert result.bound == pytest.approx(0.75)
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert {allocation.change for allocation in plan.allocations} == {Change.KEPT}
    assert formulation.violations(plan, 0.75) == []


def test_a_gain_of_one_step_is_worth_every_move() -> None:
    """j0 sits on type a at 0.26; moving it to b (0.25) means that j1 moves to a (0.25 as on b)."""
    nodes = [node(f"n{kind}", 1, kind) for kind in "ab"]
    jobs = (
        Job(id="j0", performance=table({("a", 1): 0.26, ("b", 1): 0.25}), current=on({"na": (0,)})),
        Job(id="j1", performance=table({("a", 1): 0.25, ("b", 1): 0.25}), current=on({"nb": (0,)})),
    )
    formulation = formulate_sia(Snapshot(cluster=cluster(*nodes), jobs=jobs), COSTS, PhaseClock())
    result = formulation.solve(SolveOptions(solver="decomposition", relative_gap=0.0), SolveMonitor())
    assert result.objective == pytest.approx(0.5)
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert {allocation.change for allocation in plan.allocations} == {Change.RETYPED}
