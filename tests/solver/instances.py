"""Tiny problems whose answer is proved by hand, and a market-split problem that nobody solves in a second."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from solver.problem import MatrixProblem
from solver.result import TerminationReason
from solver.sense import Sense

INF = np.inf


def problem(
    matrix: Sequence[Sequence[float]] | np.ndarray,
    row_lower: Sequence[float] | np.ndarray,
    row_upper: Sequence[float] | np.ndarray,
    objective: Sequence[float] | np.ndarray,
    *,
    lower: Sequence[float] | float = 0.0,
    upper: Sequence[float] | float = 1.0,
    integer: Sequence[bool] | bool = True,
    sense: Sense = Sense.MINIMIZE,
    offset: float = 0.0,
    named: bool = True,
) -> MatrixProblem:
    """Build a problem; columns are x0, x1, ..., rows r0, r1, ..."""
    n, m = len(objective), len(row_lower)
    return MatrixProblem(
        name="tiny",
        sense=sense,
        objective=np.array(objective, dtype=np.float64),
        offset=offset,
        matrix=sparse.csc_array(np.array(matrix, dtype=np.float64).reshape(m, n)),
        row_lower=np.array(row_lower, dtype=np.float64),
        row_upper=np.array(row_upper, dtype=np.float64),
        lower=np.array(np.broadcast_to(lower, n), dtype=np.float64),
        upper=np.array(np.broadcast_to(upper, n), dtype=np.float64),
        integrality=np.array(np.broadcast_to(integer, n), dtype=np.bool_),
        column_names=tuple(f"x{j}" for j in range(n)) if named else (),
        row_names=tuple(f"r{i}" for i in range(m)) if named else (),
    )


def market_split(seed: int = 0, num_rows: int = 6, num_columns: int = 60) -> MatrixProblem:
    """Equality knapsacks whose right-hand sides are half of what is there (Cornuejols and Dawande)."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 100, (num_rows, num_columns))
    half = matrix.sum(axis=1) // 2
    return problem(matrix, half, half, rng.integers(1, 50, num_columns))


def slow_knapsack(seed: int = 0, num_rows: int = 20, num_columns: int = 200) -> MatrixProblem:
    """Multidimensional knapsacks: incumbents at once, a proof not within many seconds."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(10, 1000, (num_rows, num_columns))
    value = matrix.sum(axis=0) + rng.integers(0, 500, num_columns)
    return problem(matrix, [-INF] * num_rows, matrix.sum(axis=1) / 2, value, sense=Sense.MAXIMIZE)


@dataclass(frozen=True, kw_only=True)
class Golden:
    """A problem and its proved answer; `objective` None where there is none."""

    name: str
    problem: MatrixProblem
    termination: TerminationReason
    objective: float | None = None


GOLDEN = (
    # 3 x0 + 4 x1 + 5 x2 <= 8 of values 4, 5, 7: {0, 2} weighs 8 and is worth 11; {1} + any other weighs > 8.
    Golden(
        name="knapsack",
        problem=problem([[3, 4, 5]], [-INF], [8], [4, 5, 7], sense=Sense.MAXIMIZE),
        termination=TerminationReason.OPTIMAL,
        objective=11,
    ),
    Golden(
        name="maximise with offset",
        problem=problem([[3, 4, 5]], [-INF], [8], [4, 5, 7], sense=Sense.MAXIMIZE, offset=-100.5),
        termination=TerminationReason.OPTIMAL,
        objective=-89.5,
    ),
    # Each of two jobs on one of two nodes: costs 1 2 / 4 3, the diagonal costs 4 and the other 6.
    Golden(
        name="assignment with equality rows",
        problem=problem(
            [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]], [1, 1, 1, 1], [1, 1, 1, 1], [1, 2, 4, 3]
        ),
        termination=TerminationReason.OPTIMAL,
        objective=4,
    ),
    # 2 <= x0 + x1 + x2 <= 2.5 with integers: exactly two, the cheapest two of 3, 1, 2.
    Golden(
        name="ranged row",
        problem=problem([[1, 1, 1]], [2], [2.5], [3, 1, 2]),
        termination=TerminationReason.OPTIMAL,
        objective=3,
    ),
    # Rows 0 and 2 are empty and hold; the cover costs min(2, 1).
    Golden(
        name="empty rows",
        problem=problem([[0, 0], [1, 1], [0, 0]], [-1, 1, 0], [0, INF, INF], [2, 1]),
        termination=TerminationReason.OPTIMAL,
        objective=1,
    ),
    Golden(
        name="empty row that does not hold",
        problem=problem([[0, 0], [1, 1]], [1, 1], [2, INF], [2, 1]),
        termination=TerminationReason.INFEASIBLE,
    ),
    # x0 free integer, x1 free continuous: x0 >= -2.5 -> -2; x1 >= x0 - 0.5 -> -2.5; 3 x0 + x1 = -8.5.
    Golden(
        name="free variables",
        problem=problem(
            [[1, 0], [-1, 1]], [-2.5, -0.5], [INF, INF], [3, 1], lower=-INF, upper=INF, integer=[True, False]
        ),
        termination=TerminationReason.OPTIMAL,
        objective=-8.5,
    ),
    # y <= 1.5 x0, maximise y - 0.2 x0: x0 = 1 opens y = 1.5.
    Golden(
        name="mixed",
        problem=problem(
            [[-1.5, 1]], [-INF], [0], [-0.2, 1], upper=[1, INF], integer=[True, False], sense=Sense.MAXIMIZE
        ),
        termination=TerminationReason.OPTIMAL,
        objective=1.3,
    ),
    # Corner of x + y <= 4, x + 3 y <= 6: (3, 1) with 3 + 2 = 5.
    Golden(
        name="linear program",
        problem=problem([[1, 1], [1, 3]], [-INF, -INF], [4, 6], [1, 2], upper=INF, integer=False, sense=Sense.MAXIMIZE),
        termination=TerminationReason.OPTIMAL,
        objective=5,
    ),
    Golden(
        name="bounds alone",
        problem=problem([], [], [], [1, -2, 0], lower=[-1.5, -3, 5], upper=[4, 2.5, 9]),
        termination=TerminationReason.OPTIMAL,
        objective=-5,
    ),
    Golden(
        name="nothing at all",
        problem=problem([], [], [], [], offset=7),
        termination=TerminationReason.OPTIMAL,
        objective=7,
    ),
    Golden(
        name="infeasible",
        problem=problem([[1, 1], [1, 1]], [2, -INF], [INF, 1], [1, 1]),
        termination=TerminationReason.INFEASIBLE,
    ),
    # 2 x + 2 y = 1 has the solution (1/2, 0), but no integer one.
    Golden(
        name="integer infeasible, relaxation feasible",
        problem=problem([[2, 2]], [1], [1], [1, 1]),
        termination=TerminationReason.INFEASIBLE,
    ),
    Golden(
        name="no integer between the bounds",
        problem=problem([[1, 1]], [0], [2], [1, 1], lower=[0.3, 0], upper=[0.7, 1]),
        termination=TerminationReason.INFEASIBLE,
    ),
    Golden(
        name="bounds exclude each other",
        problem=problem([[1, 1]], [0], [2], [1, 1], lower=[2, 0], upper=[1, 1]),
        termination=TerminationReason.INFEASIBLE,
    ),
    Golden(
        name="limits of a row exclude each other",
        problem=problem([[1, 1]], [2], [1], [1, 1]),
        termination=TerminationReason.INFEASIBLE,
    ),
    Golden(
        name="unbounded without rows",
        problem=problem([], [], [], [-1], upper=INF),
        termination=TerminationReason.UNBOUNDED,
    ),
)
