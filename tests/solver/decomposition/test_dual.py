from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from solver.decomposition.dual import maximise_dual, reduced_costs
from solver.decomposition.structure import find_structure
from solver.problem import MatrixProblem
from solver.sense import Sense
from tests.solver.decomposition.choices import choice_problem
from tests.solver.instances import INF, problem


def linear_bound(whole: MatrixProblem) -> float:
    """Optimum of the linear relaxation: what the Lagrangian dual of a choice problem equals."""
    dense = whole.matrix.toarray()
    equal = whole.row_lower == whole.row_upper
    found = linprog(
        whole.sense.sign * whole.objective,
        A_ub=dense[~equal],
        b_ub=whole.row_upper[~equal],
        A_eq=dense[equal] if equal.any() else None,
        b_eq=whole.row_upper[equal] if equal.any() else None,
        bounds=(0, 1),
    )
    assert found.status == 0
    assert found.fun is not None
    return float(found.fun) + whole.sense.sign * whole.offset


def test_one_knapsack_by_hand() -> None:
    """Two jobs want 2 of 3 GPUs for 6 and 4: price 2 a GPU; L(2) = -(6-4) - (4-4) - 3*2 = -8."""
    found = find_structure(problem([[2, 2]], [-INF], [3], [-6, -4]))
    assert found is not None
    priced = reduced_costs(found, np.array([2.0]))
    assert priced.bound == -8.0
    assert priced.columns.tolist() == [0.0, 0.0]
    assert priced.nothing.tolist() == [2.0, 0.0]
    assert maximise_dual(found).bound == pytest.approx(-8.0, abs=1e-3)


@pytest.mark.parametrize(("num_gpus", "has_refuted"), [(9.0, True), (10.0 - 5e-5, False), (10.0, False)])
def test_prices_refute_what_lacks_more_than_the_tolerance(num_gpus: float, has_refuted: bool) -> None:
    """Ten jobs must choose one GPU for 1 or two for 3: no choice costs more than 30. At u a GPU, L(u) = 10 + u (10 -
    the GPUs that there are), which is beyond 30 from u = 20 on where one is missing."""
    rows = [[1.0 if j // 2 == k else 0.0 for j in range(20)] for k in range(10)]
    whole = problem([*rows, [1, 2] * 10], [*[1] * 10, -INF], [*[1] * 10, num_gpus], [1, 3] * 10)
    found = find_structure(whole)
    assert found is not None
    assert found.highest == 30.0
    dual = maximise_dual(found)
    assert found.refutes(dual.multipliers, dual.bound) is has_refuted
    # Prices that are higher yet make a lot of very little.
    highest = np.array([1e6])
    assert found.refutes(highest, reduced_costs(found, highest).bound) is has_refuted


@pytest.mark.parametrize(("seed", "exponent"), [(15, -15), (27, -14), (40, -14)])
def test_prices_of_nothing_refute_nothing(seed: int, exponent: int) -> None:
    """Where all options of a block cost the same, a choice costs the most there is; bounds beyond it are rounded."""
    numbers = np.random.default_rng(seed)
    uses, costs = np.round(5 * numbers.random((2, 600)), 1), np.repeat(np.round(100 * numbers.random(200), 3), 3)
    blocks = np.kron(np.eye(200), np.ones(3))
    kept = uses[:, 3 * np.arange(200) + numbers.integers(0, 3, 200)].sum(axis=1)
    whole = problem([*blocks, *uses], [1.0] * 200 + [-INF] * 2, [1.0] * 200 + kept.tolist(), costs)
    found = find_structure(whole)
    assert found is not None
    prices = numbers.random(2) * 10.0**exponent
    assert not found.refutes(prices, reduced_costs(found, prices).bound)


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    num_resources=st.integers(1, 4),
    num_clones=st.sampled_from([1, 3]),
    tightness=st.sampled_from([0.2, 0.6, 2.0]),
    sense=st.sampled_from(Sense),
)
@settings(max_examples=20, deadline=None)
def test_the_dual_is_a_bound_and_nearly_the_linear_one(
    seed: int, num_resources: int, num_clones: int, tightness: float, sense: Sense
) -> None:
    whole = choice_problem(
        seed, num_blocks=12, num_resources=num_resources, num_clones=num_clones, tightness=tightness, sense=sense
    )
    found = find_structure(whole)
    assert found is not None
    linear = linear_bound(whole)
    dual = maximise_dual(found)
    assert dual.bound <= linear + 1e-7
    assert dual.bound >= linear - 1e-4 * abs(linear)
    assert reduced_costs(found, dual.multipliers).bound == pytest.approx(dual.bound)


def test_a_step_into_the_flat_is_walked_back() -> None:
    """Found by the property above: Newton steps overshot by half the optimum, and shortening them led nowhere."""
    whole = choice_problem(8421, num_blocks=12, num_resources=3, tightness=0.2)
    found = find_structure(whole)
    assert found is not None
    assert maximise_dual(found).bound == pytest.approx(linear_bound(whole), rel=1e-4)


def test_a_good_start_costs_less() -> None:
    found = find_structure(choice_problem(5, num_blocks=200, num_resources=4))
    assert found is not None
    cold = maximise_dual(found)
    warm = maximise_dual(found, cold.multipliers)
    assert warm.bound == pytest.approx(cold.bound, rel=1e-4)
    assert warm.num_evaluations < cold.num_evaluations


def test_it_stops_when_told() -> None:
    found = find_structure(choice_problem(5, num_blocks=200))
    assert found is not None
    told = maximise_dual(found, stop=lambda: True)
    assert told.num_evaluations < maximise_dual(found).num_evaluations
    assert told.bound <= maximise_dual(found).bound


def test_rows_that_are_nearly_the_same() -> None:
    """The second row is the first one over all but one column: clipped Newton steps stayed far from the optimum."""
    whole = choice_problem(3, num_blocks=200, num_options=5, num_resources=4)
    capacity = whole.matrix.tocsr()[-4:]
    nearly = capacity.copy()
    nearly.data[nearly.indptr[:-1]] = 0.0
    twice = replace(
        whole,
        matrix=sparse.csc_array(sparse.vstack([whole.matrix, nearly])),
        row_lower=np.concatenate([whole.row_lower, np.full(4, -INF)]),
        row_upper=np.concatenate([whole.row_upper, whole.row_upper[-4:] - 2]),
    )
    found = find_structure(twice)
    assert found is not None
    assert maximise_dual(found).bound == pytest.approx(linear_bound(twice), rel=1e-5)
