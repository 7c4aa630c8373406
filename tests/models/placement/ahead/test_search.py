"""The search against the declared program, and both against trying everything."""

import math

import pytest
from hypothesis import given, settings

from models.placement.ahead.declaration import ahead_model
from models.placement.ahead.instance import AheadInstance, placing_cost
from models.placement.ahead.search import AheadAnswer, AheadSearch
from models.placement.arnold.budget import Budget
from solver.compilers.pyomo import compile_pyomo
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.solve import solve
from tests.models.placement.ahead.instances import instances, least_by_trying


def searched(instance: AheadInstance) -> AheadAnswer:
    options = SolveOptions(time_limit_s=60.0, relative_gap=0.0)
    return AheadSearch(instance, Budget(options=options, monitor=SolveMonitor())).run()


def declared(instance: AheadInstance) -> float:
    """What the program says is least; infinity: nothing is possible."""
    result = solve(compile_pyomo(ahead_model(instance)).problem, SolveOptions(relative_gap=0.0), SolveMonitor())
    return math.inf if result.objective is None else result.objective


@given(instance=instances(most_jobs=1))
@settings(deadline=None, max_examples=150)
def test_one_job_is_placed_exactly(instance: AheadInstance) -> None:
    answer, least = searched(instance), least_by_trying(instance)
    assert answer.cost == pytest.approx(least)
    assert answer.bound <= answer.cost


@given(instance=instances())
@settings(deadline=None, max_examples=150)
def test_jobs_beside_each_other_are_bounded_from_both_sides(instance: AheadInstance) -> None:
    answer, least = searched(instance), least_by_trying(instance)
    assert answer.bound <= least + 1e-6
    assert answer.cost >= least - 1e-6
    if answer.placings is not None:
        costs = [placing_cost(job, placing) for job, placing in zip(instance.jobs, answer.placings, strict=True)]
        assert answer.cost == pytest.approx(sum(costs))


@pytest.mark.slow
@given(instance=instances())
@settings(deadline=None, max_examples=60)
def test_the_declared_program_says_the_same(instance: AheadInstance) -> None:
    assert declared(instance) == pytest.approx(least_by_trying(instance), abs=1e-6)
