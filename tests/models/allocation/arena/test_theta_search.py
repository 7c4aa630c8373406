"""Eq. 7 by what theta may be: the same optimum as the program with theta, and bounds that hold."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from models.allocation.arena.formulation import ArenaIlpFormulation
from models.allocation.arena.parameters import ArenaMethod, ArenaObjective
from models.allocation.arena.theta_search import ThetaSearch
from solver.feasibility import violations
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import Limit, TerminationReason
from tests.models.allocation.arena.scenes import formulation_of, random_parameters, random_snapshot, solved
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
    if found.incumbent is not None:
        assert found.objective == pytest.approx(expected.objective, rel=1e-7, abs=1e-9)
        assert found.bound == pytest.approx(found.objective, rel=1e-9, abs=1e-9)
        assert violations(formulation.problem, found.incumbent) == ()


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
