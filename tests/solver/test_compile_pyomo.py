"""Pyomo models equal matrices made by hand, and get their values back."""

import numpy as np
import pyomo.environ as pyo
import pytest
from scipy import sparse

from solver.compilers.pyomo import PyomoCompilation, compile_pyomo
from solver.infeasibility import conflicting_rows
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import TerminationReason
from solver.sense import Sense
from solver.solve import solve
from stowplan.errors import BackendError
from tests.solver.instances import INF


def assert_equal(actual: MatrixProblem, expected: MatrixProblem) -> None:
    assert (actual.name, actual.sense, actual.offset) == (expected.name, expected.sense, expected.offset)
    assert (actual.column_names, actual.row_names) == (expected.column_names, expected.row_names)
    np.testing.assert_array_equal(actual.matrix.toarray(), expected.matrix.toarray())
    for name in ("objective", "row_lower", "row_upper", "lower", "upper", "integrality"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name), err_msg=name)


def everything() -> pyo.ConcreteModel:
    """One model with all that may happen in a linear one."""
    m = pyo.ConcreteModel(name="everything")
    m.x = pyo.Var(["a", "b"], domain=pyo.Binary)
    m.y = pyo.Var(bounds=(-2, 7.5))
    m.n = pyo.Var(domain=pyo.NonNegativeIntegers)
    m.fixed = pyo.Var(initialize=3)
    m.fixed.fix()
    m.unused = pyo.Var(bounds=(1, 2))
    m.only_in_objective = pyo.Var(domain=pyo.Integers, bounds=(-4, 4))
    m.inactive = pyo.Constraint(expr=m.x["a"] == 1)
    m.inactive.deactivate()
    m.ranged = pyo.Constraint(expr=(-1, m.x["a"] + 2 * m.y - m.fixed, 5))
    m.equal = pyo.Constraint(expr=m.n == 2 * m.x["b"] + 1)
    m.at_least = pyo.Constraint(expr=m.y + m.y + 1 >= m.n)
    m.constant = pyo.Constraint(expr=m.fixed <= 4)
    m.block = pyo.Block()
    m.block.z = pyo.Var(domain=pyo.Reals)
    m.block.limit = pyo.Constraint([1, 2], rule=lambda b, k: b.z <= 10 * k + m.fixed)
    m.goal = pyo.Objective(
        expr=3 * m.x["a"] - m.y + m.only_in_objective + 2 * m.fixed + 0.5 - m.block.z, sense=pyo.maximize
    )
    return m


EVERYTHING = MatrixProblem(
    name="everything",
    sense=Sense.MAXIMIZE,
    #                   a  b   y  n  unused  only  z
    objective=np.array([3, 0, -1, 0, 0, 1, -1.0]),
    offset=6.5,
    matrix=sparse.csc_array(
        [
            [1, 0, 2, 0, 0, 0, 0],
            [0, -2, 0, 1, 0, 0, 0],
            [0, 0, -2, 1, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0, 1.0],
        ]
    ),
    row_lower=np.array([2, 1, -INF, -INF, -INF]),
    row_upper=np.array([8, 1, 1, 13, 23.0]),
    lower=np.array([0, 0, -2, 0, 1, -4, -INF]),
    upper=np.array([1, 1, 7.5, INF, 2, 4, INF]),
    integrality=np.array([True, True, False, True, False, True, False]),
    column_names=("x[a]", "x[b]", "y", "n", "unused", "only_in_objective", "block.z"),
    row_names=("ranged", "equal", "at_least", "block.limit[1]", "block.limit[2]"),
)


def solved(compilation: PyomoCompilation, solver: str = "highs") -> float:
    result = solve(compilation.problem, SolveOptions(solver=solver, relative_gap=0.0))
    assert result.incumbent is not None
    assert result.objective is not None
    compilation.load(result.incumbent)
    return result.objective


def test_equals_the_matrix_made_by_hand() -> None:
    assert_equal(compile_pyomo(everything()).problem, EVERYTHING)


def test_compiling_does_not_change_the_model() -> None:
    model = everything()
    first = compile_pyomo(model).problem
    assert_equal(compile_pyomo(model).problem, first)


@pytest.mark.parametrize("solver", ["highs", "scip"])
def test_values_come_back(solver: str) -> None:
    model = everything()
    model.block.z.setlb(-1)
    objective = solved(compile_pyomo(model), solver)
    # y >= (n - 1) / 2 = x[b], so n = 1, x[b] = 0; y = 0.5 when x[a] = 1 keeps the range: 3 - 0.5 + 4 + 6.5 + 1.
    assert objective == pytest.approx(14.0)
    assert pyo.value(model.goal) == pytest.approx(objective)
    assert [model.x["a"].value, model.x["b"].value, model.n.value, model.only_in_objective.value] == [1, 0, 1, 4]
    assert all(isinstance(model.x[key].value, int) for key in model.x)
    assert model.fixed.value == 3
    assert 1 <= model.unused.value <= 2
    assert not model.y.stale


def test_integers_are_loaded_exactly() -> None:
    compilation = compile_pyomo(everything())
    compilation.load(np.array([0.9999999, 0, 0.5, 2.0000001, 1, 0, 0]))
    assert [v.value for v in compilation.variables[:4]] == [1, 0, 0.5, 2]


def test_a_point_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        compile_pyomo(everything()).load(np.zeros(2))


def test_empty_model() -> None:
    problem = compile_pyomo(pyo.ConcreteModel(name="empty")).problem
    assert (problem.num_columns, problem.num_rows, problem.offset) == (0, 0, 0)
    result = solve(problem, SolveOptions())
    assert (result.termination, result.objective) == (TerminationReason.OPTIMAL, 0)


def test_no_constraints() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var([0, 1], bounds=(-1, 2))
    m.o = pyo.Objective(expr=m.x[0] - m.x[1] + 5)
    assert solved(compile_pyomo(m)) == 2
    assert (m.x[0].value, m.x[1].value) == (-1, 2)


def test_no_objective_finds_a_point() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var(domain=pyo.Integers, bounds=(0, 9))
    m.c = pyo.Constraint(expr=3 * m.x == 12)
    assert solved(compile_pyomo(m)) == 0
    assert m.x.value == 4


def test_constant_objective() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var(bounds=(0, 1))
    m.o = pyo.Objective(expr=7.0)
    assert solved(compile_pyomo(m)) == 7


def test_all_variables_fixed() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var(initialize=2)
    m.x.fix()
    m.c = pyo.Constraint(expr=m.x <= 2)
    m.o = pyo.Objective(expr=3 * m.x)
    assert solved(compile_pyomo(m)) == 6


def test_constants_that_do_not_hold_are_infeasible_and_named() -> None:
    # Pyomo raises at the first of these.
    m = pyo.ConcreteModel()
    m.x = pyo.Var([0, 1], domain=pyo.Binary)
    m.x[0].fix(1)
    m.capacity = pyo.Constraint([0, 1], rule=lambda m, k: 5 * m.x[0] <= 4 + k)
    m.both = pyo.Constraint(expr=m.x[0] + m.x[1] <= 2)
    m.never = pyo.Constraint(expr=(2, 3 * m.x[0], 2.5))
    compilation = compile_pyomo(m)
    assert compilation.problem.row_names == ("both", "capacity[0]", "never")
    assert solve(compilation.problem, SolveOptions()).termination is TerminationReason.INFEASIBLE
    assert conflicting_rows(compilation.problem, 5) == ("capacity[0]",)
    assert m.capacity[0].active


def test_variables_of_inactive_blocks_count_where_they_are_used() -> None:
    m = pyo.ConcreteModel()
    m.b = pyo.Block()
    m.b.x = pyo.Var(bounds=(0, 3))
    m.b.deactivate()
    m.c = pyo.Constraint(expr=m.b.x >= 1)
    assert compile_pyomo(m).problem.column_names == ("b.x",)


def test_deterministic_order() -> None:
    def build() -> MatrixProblem:
        m = pyo.ConcreteModel()
        m.s = pyo.Set(initialize=["n10", "n2", "n1"])
        m.x = pyo.Var(m.s, m.s, domain=pyo.Binary)
        m.c = pyo.Constraint(m.s, rule=lambda m, i: sum(m.x[i, j] for j in m.s) == 1)
        m.o = pyo.Objective(expr=sum(k * v for k, v in enumerate(m.x.values())))
        return compile_pyomo(m).problem

    assert_equal(build(), build())
    assert build().column_names[:3] == ("x[n10,n10]", "x[n10,n2]", "x[n10,n1]")


def nonlinear_objective(m: pyo.ConcreteModel) -> None:
    m.o = pyo.Objective(expr=m.x**2)


def nonlinear_constraint(m: pyo.ConcreteModel) -> None:
    m.c = pyo.Constraint(expr=m.x * m.y <= 1)


def two_objectives(m: pyo.ConcreteModel) -> None:
    m.o = pyo.Objective(expr=m.x)
    m.p = pyo.Objective(expr=m.y)


def special_ordered_set(m: pyo.ConcreteModel) -> None:
    m.z = pyo.Var([0, 1], bounds=(0, 1))
    m.s = pyo.SOSConstraint(var=m.z, sos=1)


def odd_domain(m: pyo.ConcreteModel) -> None:
    m.z = pyo.Var(domain=pyo.Set(initialize=[1, 3, 8]))


def fixed_at_nothing(m: pyo.ConcreteModel) -> None:
    m.z = pyo.Var()
    m.z.fix()
    m.c = pyo.Constraint(expr=m.x + m.z <= 1)


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (nonlinear_objective, "nonlinear"),
        (nonlinear_constraint, "nonlinear"),
        (two_objectives, "2 active objectives"),
        (special_ordered_set, "SOSConstraint"),
        (odd_domain, "variable z: domain"),
        (fixed_at_nothing, "'z' evaluated to a nonnumeric value"),
    ],
)
def test_what_a_matrix_cannot_say_is_refused(spoil: object, word: str) -> None:
    m = pyo.ConcreteModel(name="odd")
    m.x = pyo.Var(bounds=(0, 1))
    m.y = pyo.Var(bounds=(0, 1))
    assert callable(spoil)
    spoil(m)
    with pytest.raises(BackendError, match=word):
        compile_pyomo(m)
