"""CVXPY problems equal matrices made by hand, and get their values back."""

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse

from solver.compilers.cvxpy import CvxpyCompilation, compile_cvxpy
from solver.infeasibility import conflicting_rows
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import TerminationReason
from solver.sense import Sense
from solver.solve import solve
from stowplan.errors import BackendError
from tests.solver.instances import INF
from tests.solver.test_compile_pyomo import assert_equal


def solved(compilation: CvxpyCompilation, solver: str = "highs") -> float:
    result = solve(compilation.problem, SolveOptions(solver=solver, relative_gap=0.0))
    assert result.incumbent is not None
    assert result.objective is not None
    compilation.load(result.incumbent)
    return result.objective


def test_equals_the_matrix_made_by_hand() -> None:
    x = cp.Variable(2, boolean=True, name="x")
    y = cp.Variable((2, 2), nonneg=True, name="y")
    z = cp.Variable(name="z", bounds=[-3, 5])
    k = cp.Variable(integer=True, name="k")
    constraints = [
        (x[0] + x[1] <= 1).set_label("choose"),
        (cp.sum(y, axis=0) == np.array([1, 2])).set_label("flow"),
        z + k >= -7,
    ]
    problem = cp.Problem(cp.Maximize(cp.sum(x) + 2 * cp.sum(y) - z + k + 10), constraints)
    expected = MatrixProblem(
        name="hand",
        sense=Sense.MAXIMIZE,
        objective=np.array([1, 1, 2, 2, 2, 2, -1, 1.0]),
        offset=10.0,
        # Equalities come first; y is in column-major order.
        matrix=sparse.csc_array(
            [
                [0, 0, 1, 1, 0, 0, 0, 0],
                [0, 0, 0, 0, 1, 1, 0, 0],
                [1, 1, 0, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, -1, -1.0],
            ]
        ),
        row_lower=np.array([1, 2, -INF, -INF]),
        row_upper=np.array([1, 2, 1, 7.0]),
        lower=np.array([0, 0, 0, 0, 0, 0, -3, -INF]),
        upper=np.array([1, 1, INF, INF, INF, INF, 5, INF]),
        integrality=np.array([True, True, False, False, False, False, False, True]),
        column_names=("x[0]", "x[1]", "y[0,0]", "y[1,0]", "y[0,1]", "y[1,1]", "z", "k"),
        row_names=("flow[0]", "flow[1]", "choose", "constraint2"),
    )
    assert_equal(compile_cvxpy(problem, "hand").problem, expected)


@pytest.mark.parametrize("solver", ["highs", "scip"])
def test_values_come_back(solver: str) -> None:
    # Two machines, three jobs: job lengths 3 2 2, the longer machine as short as possible is 4.
    on = cp.Variable((3, 2), boolean=True, name="on")
    length = np.array([3.0, 2.0, 2.0])
    problem = cp.Problem(cp.Minimize(cp.max(length @ on) + 1), [cp.sum(on, axis=1) == 1])
    assert solved(compile_cvxpy(problem, "makespan"), solver) == pytest.approx(5)
    assert sorted((length @ on.value).tolist()) == [3, 4]
    assert set(on.value.ravel().tolist()) == {0, 1}
    assert problem.objective.value == pytest.approx(5)


def test_auxiliary_rows_and_columns_are_called_so() -> None:
    z = cp.Variable(bounds=[-3, 5], name="z")
    problem = cp.Problem(cp.Minimize(cp.abs(z - 1)), [(z >= 2).set_label("low")])
    compilation = compile_cvxpy(problem, "abs")
    assert set(compilation.problem.row_names) == {"low", "auxiliary0", "auxiliary1"}
    assert set(compilation.problem.column_names) == {"z", "auxiliary0"}
    assert solved(compilation) == 1
    assert z.value == 2


def test_names_do_not_depend_on_what_was_declared_before() -> None:
    def build() -> MatrixProblem:
        a, b = cp.Variable(), cp.Variable(2, boolean=True)
        return compile_cvxpy(cp.Problem(cp.Minimize(a + cp.sum(b)), [a >= 1, b[0] + a >= 2]), "p").problem

    assert_equal(build(), build())
    assert build().column_names == ("variable0", "variable1[0]", "variable1[1]")
    assert build().row_names == ("constraint0", "constraint1")


def test_equal_names_are_told_apart() -> None:
    a, b = cp.Variable(name="x"), cp.Variable(name="x")
    problem = cp.Problem(cp.Minimize(a + b), [(a >= 1).set_label("c"), (b >= 1).set_label("c")])
    assert compile_cvxpy(problem, "p").problem.column_names == ("x", "x~2")
    assert compile_cvxpy(problem, "p").problem.row_names == ("c", "c~2")


def test_parameters_are_read_again_each_time() -> None:
    x = cp.Variable(3, boolean=True, name="x")
    gain = cp.Parameter(3)
    problem = cp.Problem(cp.Maximize(gain @ x), [cp.sum(x) <= 1])
    for best in range(3):
        gain.value = np.eye(3)[best] + 0.1
        assert solved(compile_cvxpy(problem, "p")) == pytest.approx(1.1)
        assert x.value.tolist() == np.eye(3)[best].tolist()


def test_a_parameter_without_value_is_refused() -> None:
    x = cp.Variable(3, boolean=True)
    gain = cp.Parameter(3, name="gain")
    with pytest.raises(BackendError, match="no value for parameter gain"):
        compile_cvxpy(cp.Problem(cp.Maximize(gain @ x)), "p")


def test_bounds_of_booleans_hold() -> None:
    x = cp.Variable(3, boolean=True, bounds=[np.array([0, 1, 0]), np.array([1, 1, 0])], name="x")
    compilation = compile_cvxpy(cp.Problem(cp.Maximize(cp.sum(x) - 3 * x[1])), "p")
    assert (compilation.problem.lower.tolist(), compilation.problem.upper.tolist()) == ([0, 1, 0], [1, 1, 0])
    assert solved(compilation) == -1


def test_variables_may_be_boolean_in_part() -> None:
    x = cp.Variable((3, 2), boolean=[(0, 1), (0, 1)], name="x")
    problem = compile_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= -5]), "p").problem
    assert problem.column_names == ("x[0,0]", "x[1,0]", "x[2,0]", "x[0,1]", "x[1,1]", "x[2,1]")
    assert problem.integrality.tolist() == [True, False, False, False, True, False]
    assert problem.lower.tolist() == [0, -INF, -INF, -INF, 0, -INF]
    assert problem.upper.tolist() == [1, INF, INF, INF, 1, INF]


def test_structured_variables_come_back() -> None:
    s = cp.Variable((2, 2), symmetric=True, name="S")
    d = cp.Variable((2, 2), diag=True, name="D")
    floor = np.array([[1.0, 3.0], [2.0, 4.0]])
    problem = cp.Problem(cp.Minimize(cp.sum(s) + cp.sum(d)), [s >= floor, d >= -1])
    assert solved(compile_cvxpy(problem, "p")) == pytest.approx(1 + 3 + 3 + 4 - 2)
    np.testing.assert_allclose(s.value, [[1, 3], [3, 4]])
    np.testing.assert_allclose(sparse.csr_array(d.value).toarray(), [[-1, 0], [0, -1]])


def test_no_constraints_and_no_objective() -> None:
    x = cp.Variable(2, boolean=True, name="x")
    assert solved(compile_cvxpy(cp.Problem(cp.Minimize(cp.sum(x) + 3)), "p")) == 3
    assert solved(compile_cvxpy(cp.Problem(cp.Minimize(0), [cp.sum(x) == 2]), "p")) == 0
    assert x.value.tolist() == [1, 1]


@pytest.mark.parametrize(("limit", "termination"), [(1, TerminationReason.OPTIMAL), (0, TerminationReason.INFEASIBLE)])
def test_no_variables(limit: float, termination: TerminationReason) -> None:
    problem = cp.Problem(cp.Maximize(cp.Constant(3)), [cp.Constant(np.array([1, 0])) <= limit])
    compilation = compile_cvxpy(problem, "constants")
    assert compilation.problem.num_columns == 0
    result = solve(compilation.problem, SolveOptions())
    assert result.termination is termination
    if result.incumbent is not None:
        assert result.objective == 3
        compilation.load(result.incumbent)


def test_conflicts_have_the_labels() -> None:
    x = cp.Variable(3, boolean=True, name="x")
    constraints = [
        (np.array([3, 4, 5]) @ x <= 8).set_label("capacity"),
        (x[1:] == 1).set_label("forced"),
        cp.sum(x) <= 3,
    ]
    problem = compile_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), constraints), "p").problem
    assert conflicting_rows(problem, 5) == ("forced[0]", "forced[1]", "capacity")


def test_a_point_of_another_shape_is_refused() -> None:
    x = cp.Variable(2)
    with pytest.raises(ValueError, match="shape"):
        compile_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0]), "p").load(np.zeros(3))


X = cp.Variable(2, name="x")


@pytest.mark.parametrize(
    "problem",
    [
        cp.Problem(cp.Minimize(cp.sum_squares(X))),
        cp.Problem(cp.Minimize(cp.norm(X)), [X >= 1]),
        cp.Problem(cp.Minimize(cp.sum(X)), [cp.exp(X) <= 1]),
        cp.Problem(cp.Maximize(cp.sum(cp.abs(X))), [X <= 1]),
    ],
    ids=["quadratic", "cone", "exponential", "not convex"],
)
def test_what_is_not_linear_is_refused(problem: cp.Problem) -> None:
    with pytest.raises(BackendError, match="cannot be compiled"):
        compile_cvxpy(problem, "p")


def test_the_efficient_form_of_a_knapsack_is_small() -> None:
    # One vector variable over pairs, sparse constants and a parameter vector: no blow-up in between.
    num_pairs, num_jobs = 6000, 200
    rng = np.random.default_rng(0)
    choose = sparse.csr_array((np.ones(num_pairs), (np.arange(num_pairs) % num_jobs, np.arange(num_pairs))))
    x = cp.Variable(num_pairs, boolean=True, name="x")
    gain = cp.Parameter(num_pairs)
    gain.value = rng.random(num_pairs)
    compilation = compile_cvxpy(cp.Problem(cp.Maximize(gain @ x), [choose @ x <= 1]), "knapsack")
    assert compilation.problem.matrix.nnz == num_pairs
    best = sum(gain.value[job::num_jobs].max() for job in range(num_jobs))
    assert solved(compilation) == pytest.approx(best)
