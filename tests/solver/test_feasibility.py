"""The independent check."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.feasibility import FEASIBILITY_TOLERANCE, Violation, ViolationKind, violations
from tests.solver.instances import INF, problem

# x0 + 2 x1 in [1, 3], x1 - x2 <= 0; x0 and x1 integer.
PROBLEM = problem([[1, 2, 0], [0, 1, -1]], [1, -INF], [3, 0], [1, 1, 1], upper=[1, 1, 5], integer=[True, True, False])


def test_a_feasible_point_has_no_violation() -> None:
    assert violations(PROBLEM, np.array([1.0, 1.0, 1.5])) == ()


def test_every_kind_is_named_worst_first() -> None:
    found = violations(PROBLEM, np.array([2.0, 1.25, 0.0]))
    assert [(violation.kind, violation.name, violation.amount) for violation in found] == [
        # The limit 3 of r0 makes its excess of 1.5 a relative 0.5.
        (ViolationKind.ROW, "r1", 1.25),
        (ViolationKind.BOUND, "x0", 1.0),
        (ViolationKind.ROW, "r0", 1.5),
        (ViolationKind.BOUND, "x1", 0.25),
        (ViolationKind.INTEGRALITY, "x1", 0.25),
    ]
    assert str(found[0]) == "row r1 is violated by 1.25"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_point_that_is_not_finite_is_never_feasible(value: float, column: int) -> None:
    free = problem([[1, 1, 1]], [-INF], [INF], [0, 0, 0], lower=-INF, upper=INF, integer=[True, False, False])
    point = np.zeros(3)
    point[column] = value
    assert violations(free, point)
    assert violations(PROBLEM, point)


def test_unnamed_problems_count() -> None:
    unnamed = problem([[1, 1]], [-INF], [1], [0, 0], named=False)
    assert violations(unnamed, np.array([1.0, 1.0])) == (Violation(kind=ViolationKind.ROW, name="row 0", amount=1.0),)


def test_tolerance_is_relative_to_large_limits_only() -> None:
    large = problem([[1e6]], [-INF], [1e6], [0], upper=INF, integer=False)
    assert not violations(large, np.array([1 + FEASIBILITY_TOLERANCE / 2]))
    assert violations(large, np.array([1 + FEASIBILITY_TOLERANCE * 2]))


@given(st.lists(st.sampled_from([0.0, 1.0, 0.5, 2.0, -1.0]), min_size=3, max_size=3))
def test_equals_the_definition(values: list[float]) -> None:
    x0, x1, x2 = values
    feasible = (
        1 <= x0 + 2 * x1 <= 3
        and x1 - x2 <= 0
        and all(value == round(value) and 0 <= value <= 1 for value in (x0, x1))
        and 0 <= x2 <= 5
    )
    assert (violations(PROBLEM, np.array(values)) == ()) == feasible
