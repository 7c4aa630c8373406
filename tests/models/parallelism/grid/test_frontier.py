import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.grid.frontier import pareto_frontier, reduced


def test_dominated_plans_are_left_out() -> None:
    #  load
    #  4 | 0
    #  3 |   1   3        3 is dominated by 1, 5 by 4; 2 equals 4, and the first of equals stays
    #  1 |       2,4  5
    #    +-------------- bias
    bias = np.array([0.0, 1.0, 2.0, 2.0, 2.0, 3.0])
    load = np.array([4.0, 3.0, 1.0, 3.0, 1.0, 1.0])
    assert pareto_frontier(bias, load).tolist() == [0, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
@settings(deadline=None, max_examples=60)
def test_the_frontier_is_what_nothing_dominates(plans: list[tuple[int, int]]) -> None:
    bias, load = np.array(plans, dtype=np.float64).T
    frontier = pareto_frontier(bias, load)
    free = {plan for plan in plans if not any(a <= plan[0] and b <= plan[1] and (a, b) != plan for a, b in plans)}
    assert {plans[k] for k in frontier} == free
    assert len(frontier) == len(free)
    assert plans[frontier[0]] == min(plans)


def test_of_the_most_similar_pair_the_higher_load_goes() -> None:
    # By falling load: partitions 4|8, 6|6, 7|5, 2|10; 6|6 and 7|5 are the nearest, then 4|8 and 2|10.
    bounds = np.array([[0, 4, 12], [0, 6, 12], [0, 7, 12], [0, 2, 12]])
    frontier = np.arange(4)
    assert reduced(frontier, bounds, 4).tolist() == [0, 1, 2, 3]
    assert reduced(frontier, bounds, 3).tolist() == [0, 2, 3]
    # 4|8 is the proxy plan and stays; 2|10, its nearest, goes.
    assert reduced(frontier, bounds, 2).tolist() == [0, 2]
    assert reduced(frontier, bounds, 1).tolist() == [0]
