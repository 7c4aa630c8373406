"""Eq. 7 by what theta may be: the same optimum as the program with theta, and bounds that hold."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from models.allocation.arena.formulation import ArenaIlpFormulation, point_of
from models.allocation.arena.heuristic import schedule
from models.allocation.arena.parameters import ArenaMethod, ArenaObjective, ArenaParameters
from models.allocation.arena.theta_search import ThetaSearch
from solver.feasibility import violations
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import Limit, TerminationReason
from solver.solve import solve
from tests.models.allocation.arena.scenes import formulation_of, random_parameters, random_snapshot, solved
from tests.models.allocation.arena.test_growth import busy
from tests.models.placement.scenes import SEEDS, dice


def fair_formulation(seed: int, num_jobs: int = 6) -> ArenaIlpFormulation:
    rng = dice(seed)
    parameters = replace(random_parameters(rng, ArenaMethod.ILP), objective=ArenaObjective.FINISH_TIME_FAIRNESS)
    return formulation_of(random_snapshot(rng, num_nodes=4, num_jobs=num_jobs), parameters)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_the_optimum_is_that_of_the_program_with_theta(seed: int) -> None:
    formulation = fair_formulation(seed)
    if not formulation.instance.pair_jobs.size:
        return
    options = SolveOptions(solver="auto", relative_gap=0.0, warm_start=formulation.warm_start)
    found = ThetaSearch(formulation.instance, formulation.problem, options, SolveMonitor()).run()
    expected = solved(formulation, "highs")
    if found is None:
        # Some job has no option at all.
        assert expected.termination is TerminationReason.INFEASIBLE
        return
    assert found.termination is expected.termination
    if found.prices is not None:
        assert (found.prices >= 0).all()
        assert not found.prices[-int(formulation.instance.counted.sum()) :].any()
    if found.incumbent is not None:
        assert found.objective == pytest.approx(expected.objective, rel=1e-7, abs=1e-9)
        assert found.bound == pytest.approx(found.objective, rel=1e-9, abs=1e-9)
        assert violations(formulation.problem, found.incumbent) == ()


@pytest.mark.parametrize(("num_nodes", "copies"), [(75, 1), (75, 3)], ids=["few columns", "priced"])
def test_prices_say_where_plans_begin(num_nodes: int, copies: int) -> None:
    """More jobs wait than there is room for, so that small thetas have no plan: prices of few refute all of them. The
    optimum is proven by the program of every theta up to the best one having none, or costing more."""
    scene = busy(num_nodes)
    held = [job for job in scene.jobs if job.current is not None]
    crowd = [
        replace(job, id=f"{job.id}-{copy}", weight=1 + 0.37 * copy + 0.01 * k)
        for copy in range(copies)
        for k, job in enumerate(job for job in scene.jobs if job.current is None)
    ]
    formulation = formulation_of(
        replace(scene, jobs=(*held, *crowd)), ArenaParameters(objective=ArenaObjective.FINISH_TIME_FAIRNESS)
    )
    options = SolveOptions(solver="decomposition", relative_gap=1e-6, warm_start=formulation.warm_start)
    found = ThetaSearch(formulation.instance, formulation.problem, options, SolveMonitor()).run()
    assert found is not None
    assert found.termination is TerminationReason.OPTIMAL
    # By bisection alone it would be 9 and 11.
    assert int(found.message.split()[0]) <= 7


def test_without_time_there_is_the_start_and_a_bound_that_holds() -> None:
    formulation = next(
        f for f in map(fair_formulation, range(100)) if f.warm_start is not None and f.instance.counted.sum() > 4
    )
    options = SolveOptions(solver="auto", time_limit_s=1e-9, warm_start=formulation.warm_start)
    found = ThetaSearch(formulation.instance, formulation.problem, options, SolveMonitor()).run()
    best = solved(formulation, "highs").objective
    assert found is not None
    assert (found.termination, found.limit) == (TerminationReason.FEASIBLE, Limit.TIME)
    assert found.bound is not None
    assert best is not None
    assert 0 < found.bound <= best * (1 + 1e-9)


def test_many_jobs_are_priced_by_the_solver() -> None:
    """112 jobs on 75 nodes: their choices are priced by the decomposition, and few thetas are enough."""
    formulation = formulation_of(busy(75), ArenaParameters(objective=ArenaObjective.FINISH_TIME_FAIRNESS))
    options = SolveOptions(solver="decomposition", relative_gap=1e-6, warm_start=formulation.warm_start)
    found = ThetaSearch(formulation.instance, formulation.problem, options, SolveMonitor()).run()
    assert found is not None
    assert found.termination is TerminationReason.OPTIMAL
    assert int(found.message.split()[0]) <= 6
    assert found.objective is not None
    assert found.bound is not None
    # HiGHS takes long for the program with theta; its relaxation says less than what is proven here.
    problem = formulation.problem
    relaxed = solve(replace(problem, integrality=np.zeros(problem.num_columns, dtype=np.bool_)), SolveOptions())
    assert relaxed.objective is not None
    assert relaxed.objective <= found.bound <= found.objective
    launched = schedule(formulation.instance, lambda: False)
    assert launched is not None
    assert found.objective <= problem.value(point_of(formulation.instance, launched.chosen))
    assert any(name.startswith("capacity") for name in formulation.prices(found))
