"""The exact algorithm of Eqs. 4-10 against brute force, against the paper's MIP, and by hand."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.placement.arnold.exact.search import solve_exactly
from models.placement.arnold.instance import ArnoldInstance
from models.placement.arnold.labels import max_spread, num_used
from models.placement.arnold.paper.formulation import arnold_model
from models.placement.arnold.search_answer import SearchAnswer
from solver.compilers.pyomo import compile_pyomo
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.solve import solve
from stowplan.arrays import IntMatrix
from tests.models.placement.arnold.exact.scenes import ALPHAS, assert_legal, best_eq4, budget, dirichlet, ignore, seeded
from tests.models.placement.arnold.scenes import instance


def exact(data: ArnoldInstance) -> SearchAnswer:
    answer = solve_exactly(data, budget(), ignore)
    if answer.solution is not None:
        assert_legal(data, answer.solution)
        assert answer.objective == pytest.approx(data.objective(answer.solution))
    return answer


def random_instance(rng: np.random.Generator) -> ArnoldInstance:
    """Up to 4 groups of 8 on 6 minipods, often smaller than a group and nearly full."""
    size, num_groups = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    most = int(rng.choice([(size + 1) // 2, size, size + 2, 2 * size]))
    free = rng.integers(0, most + 1, rng.integers(1, 7)).tolist()
    return instance(num_groups, size, free, float(rng.choice(ALPHAS)))


@pytest.mark.slow
def test_hundreds_of_small_instances_reach_the_optimum() -> None:
    solved = three = searched = 0
    for rng in seeded(2, 600):
        data = random_instance(rng)
        if not data.has_room or data.free_nodes.sum() > 2 * data.num_nodes + 6:
            continue
        answer = exact(data)
        assert answer.proven, data
        assert answer.objective == pytest.approx(best_eq4(data)), data
        assert answer.bound == pytest.approx(answer.objective)
        solved += 1
        three += answer.solution is not None and max_spread(answer.solution) >= 3
        searched += any(argument in answer.certificate for argument in ("(search)", "rounded)"))
    assert solved > 200
    assert three >= 3
    assert searched > 0


@given(
    num_groups=st.integers(2, 6),
    size=st.integers(2, 8),
    free=st.lists(st.integers(0, 14), min_size=2, max_size=6),
    alpha=st.sampled_from(ALPHAS),
)
@settings(max_examples=25, deadline=None)
def test_it_equals_the_papers_mip(num_groups: int, size: int, free: list[int], alpha: float) -> None:
    data = instance(num_groups, size, free, alpha)
    problem = compile_pyomo(arnold_model(data, strengthen=True)).problem
    result = solve(problem, SolveOptions(relative_gap=0.0, time_limit_s=2))
    answer = exact(data)
    assert answer.proven
    if result.termination is TerminationReason.INFEASIBLE:
        assert answer.solution is None
        return
    assert answer.objective is not None
    assert result.bound is not None
    assert answer.objective >= result.bound - 1e-6
    if result.termination is TerminationReason.OPTIMAL:
        assert answer.objective == pytest.approx(result.objective, abs=1e-6)


def test_relabelling_minipods_changes_no_optimum() -> None:
    free = dirichlet(9, 130, 3)
    values = {
        round(float(exact(instance(10, 12, rng.permutation(free).tolist(), 0.3)).objective or 0), 9)
        for rng in seeded(5, 10)
    }
    assert len(values) == 1


# The five hard settings on which the paper's MIP takes from seconds to minutes: groups, size, minipods, fill.
HARD = ((100, 12, 16, 0.9), (100, 12, 60, 0.9), (100, 12, 32, 0.95), (100, 16, 16, 0.97), (30, 4, 8, 0.97))


@pytest.mark.parametrize(("num_groups", "size", "num_minipods", "fill"), HARD)
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.3, 1.0])
def test_the_hard_cases_close_without_any_model(
    num_groups: int, size: int, num_minipods: int, fill: float, alpha: float
) -> None:
    free = dirichlet(num_minipods, round(num_groups * size / fill), 0)
    data = instance(num_groups, size, free, alpha)
    answer = solve_exactly(data, budget(may_solve=False), ignore)
    assert answer.proven
    assert answer.solution is not None
    assert_legal(data, answer.solution)
    whole = np.cumsum(sorted((nodes // size for nodes in free), reverse=True))
    enough = np.cumsum(sorted(free, reverse=True))
    one = int(np.searchsorted(whole, num_groups)) + 1 if whole[-1] >= num_groups else np.inf
    two = int(np.searchsorted(enough, num_groups * size)) + 1
    values = [alpha * two + (1 - alpha) * 2, *([alpha * one + (1 - alpha)] if one < np.inf else [])]
    assert answer.objective == pytest.approx(min(values))


def test_groups_that_need_three_minipods() -> None:
    """One group of 5 on three minipods of 2: all three. Twice that on six: five, as the groups share one."""
    answer = exact(instance(1, 5, (2, 2, 2), 0.3))
    assert answer.objective == pytest.approx(0.3 * 3 + 0.7 * 3)
    answer = exact(instance(2, 5, (2, 2, 2, 2, 2, 2), 0.3))
    assert answer.objective == pytest.approx(0.3 * 5 + 0.7 * 3)


def test_minipods_smaller_than_a_group() -> None:
    """Groups of 8 on 5, 5, 3, 3: each pairs a 5 with a 3. On 5, 5, 3, 2, 1 one has to reach into three."""
    paired = exact(instance(2, 8, (5, 3, 5, 3), 0.1))
    assert paired.objective == pytest.approx(0.1 * 4 + 0.9 * 2)
    reaching = exact(instance(2, 8, (5, 5, 3, 2, 1), 0.1))
    assert reaching.objective == pytest.approx(0.1 * 5 + 0.9 * 3)
    assert "T = 2: impossible" in reaching.certificate


def test_with_alpha_0_minipods_are_still_saved() -> None:
    answer = exact(instance(4, 2, (2, 2, 4, 4), 0.0))
    assert answer.solution is not None
    assert (max_spread(answer.solution), num_used(answer.solution)) == (1, 2)


def test_with_alpha_1_groups_are_still_kept_together() -> None:
    answer = exact(instance(3, 4, (8, 8, 8), 1.0))
    assert answer.solution is not None
    assert (max_spread(answer.solution), num_used(answer.solution)) == (1, 2)


def test_too_few_nodes_are_a_proof() -> None:
    answer = exact(instance(3, 2, (3, 2), 0.3))
    assert (answer.solution, answer.objective, answer.bound, answer.proven) == (None, None, None, True)
    assert answer.certificate == "5 of 6 nodes are free"


# Fourteen groups of 9 on leaves of 4 to 8 nodes: the construction misses the fewest, the flow finds it.
LEAVES = instance(14, 9, (8, 8, 7, 7, 7, 7, 6, 6, 6, 6, 6, 5, 5, 5, 5, 5, 5, 4, 4, 4, 4, 4, 4), 0.5)


@cache
def open_instance() -> ArnoldInstance:
    """Groups large against minipods, nearly full: an instance that is left open where nothing may be solved."""
    for rng in seeded(32, 2):
        free = rng.integers(0, 69, 40)
        data = instance(int(0.99 * free.sum()) // 58, 58, free.tolist(), 0.3)
        if not solve_exactly(data, budget(may_solve=False), ignore).proven:
            return data
    raise AssertionError("no instance is left open")


def test_without_the_model_the_bound_is_honest() -> None:
    data = open_instance()
    optimum = exact(data)
    assert optimum.proven
    assert optimum.objective is not None
    for limited in (budget(may_solve=False), budget(canceled=True), budget(1e-9)):
        answer = solve_exactly(data, limited, ignore)
        assert not answer.proven
        assert answer.objective is not None
        assert answer.bound is not None
        assert answer.bound <= optimum.objective <= answer.objective
        assert answer.bound < answer.objective


def test_every_solution_is_reported_with_a_bound() -> None:
    told: list[tuple[float, float]] = []
    data = open_instance()

    def report(labels: IntMatrix, bound: float) -> None:
        assert_legal(data, labels)
        told.append((data.objective(labels), bound))

    answer = solve_exactly(data, budget(), report)
    assert answer.objective is not None
    values = [value for value, _ in told]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(answer.objective)
    assert all(bound <= answer.objective + 1e-9 for _, bound in told)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_leaves_of_different_sizes_close(alpha: float) -> None:
    data = instance(LEAVES.num_groups, LEAVES.group_size, LEAVES.free_nodes.tolist(), alpha)
    assert exact(data).proven


def large_groups(rng: np.random.Generator, most: int, num_minipods: int) -> ArnoldInstance:
    """Groups of 1 to as many nodes as the largest of uneven minipods has, mostly large, on nearly all free nodes."""
    free = rng.integers(0, most + 1, num_minipods)
    size = int(rng.integers(max(1, free.max() // 2), free.max() + 1)) if free.any() else 1
    num_groups = max(1, int(rng.uniform(0.8, 1) * free.sum()) // size)
    return instance(num_groups, size, free.tolist(), float(rng.uniform()))


def assert_as_good_as_highs(data: ArnoldInstance) -> bool:
    """Whether HiGHS has proven it on the declared program, too; its bound and its answer never contradict ours."""
    problem = compile_pyomo(arnold_model(data, strengthen=True)).problem
    result = solve(problem, SolveOptions(relative_gap=0.0, time_limit_s=5))
    answer = exact(data)
    assert answer.proven
    if answer.objective is None:
        assert result.termination is TerminationReason.INFEASIBLE
        return True
    assert result.bound is not None
    assert answer.objective >= result.bound - 1e-6
    if result.objective is not None:
        assert answer.objective <= result.objective + 1e-6
    return result.termination is TerminationReason.OPTIMAL


def test_groups_large_against_minipods_equal_the_papers_mip() -> None:
    for rng in seeded(21, 15):
        assert assert_as_good_as_highs(large_groups(rng, 9, 5))


@pytest.mark.slow
def test_many_groups_large_against_minipods_equal_the_papers_mip() -> None:
    proven = [assert_as_good_as_highs(large_groups(rng, 20, int(rng.integers(4, 9)))) for rng in seeded(22, 80)]
    assert np.mean(proven) > 0.8


@pytest.mark.slow
def test_fabrics_of_every_shape_are_proven_at_bounds_that_hold() -> None:
    """On 8 to 100 minipods all proofs are complete; what they say is held against HiGHS on smaller ones."""
    straddling = 0
    for rng in seeded(23, 150):
        data = large_groups(rng, 68, round(float(np.exp(rng.uniform(np.log(8), np.log(100))))))
        answer = exact(data)
        assert answer.proven, data
        straddling += any(way in answer.certificate for way in ("rounded", "(search)", "flow over bins"))
    assert straddling > 0
