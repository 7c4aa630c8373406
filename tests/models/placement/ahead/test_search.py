"""The search against the declared program, and both against trying everything."""

import math

import pytest
from hypothesis import given, settings

from models.placement.ahead.declaration import ahead_model
from models.placement.ahead.instance import AheadInstance, placing_cost
from models.placement.ahead.point import Layout
from models.placement.ahead.search import AheadAnswer, AheadSearch
from models.placement.arnold.budget import Budget
from solver.compilers.pyomo import compile_pyomo
from solver.feasibility import violations
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


@given(instance=instances(moving=True))
@settings(deadline=None, max_examples=150)
def test_with_moves_the_least_cost_is_between_bound_and_plan(instance: AheadInstance) -> None:
    answer, least = searched(instance), least_by_trying(instance)
    assert answer.bound <= least + 1e-6
    assert answer.cost >= least - 1e-6
    if answer.placings is not None:
        costs = [placing_cost(job, placing) for job, placing in zip(instance.jobs, answer.placings, strict=True)]
        assert answer.cost == pytest.approx(sum(costs))
        # As the declared program has it, and back.
        layout = Layout(instance)
        again = layout.placings(layout.point(answer.placings))
        least_again = sum(placing_cost(job, placing) for job, placing in zip(instance.jobs, again, strict=True))
        assert least_again <= answer.cost + 1e-9


@given(instance=instances(moving=True))
@settings(deadline=None, max_examples=60)
def test_the_declared_program_moves_as_trying_everything_does(instance: AheadInstance) -> None:
    assert declared(instance) == pytest.approx(least_by_trying(instance), abs=1e-6)


@given(instance=instances(moving=True))
@settings(deadline=None, max_examples=40)
def test_plans_of_the_search_are_points_of_the_declared_program(instance: AheadInstance) -> None:
    answer = searched(instance)
    if answer.placings is None:
        return
    problem = compile_pyomo(ahead_model(instance)).problem
    point = Layout(instance).point(answer.placings)
    assert violations(problem, point) == ()
    assert problem.value(point) == pytest.approx(answer.cost)


@pytest.mark.slow
@given(instance=instances())
@settings(deadline=None, max_examples=60)
def test_the_declared_program_says_the_same(instance: AheadInstance) -> None:
    assert declared(instance) == pytest.approx(least_by_trying(instance), abs=1e-6)
