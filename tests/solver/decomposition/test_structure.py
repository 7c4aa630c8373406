from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from solver.decomposition.structure import find_structure
from solver.feasibility import violations
from solver.options import SolveOptions
from solver.solve import solve
from tests.solver.decomposition.choices import choice_problem
from tests.solver.instances import INF, problem


def test_two_jobs_over_one_resource() -> None:
    """x0, x1 belong to one block, x2 (no choice row) to another; x3 is fixed at 0; 2 x0 + x1 + 3 x2 <= 4 couples."""
    found = find_structure(
        problem([[1, 1, 0, 1], [2, 1, 3, 1]], [-INF, -INF], [1, 4], [-5, -4, -3, -9], upper=[1, 1, 1, 0])
    )
    assert found is not None
    assert found.cost.tolist() == [-5, -4, -3]
    assert found.start.tolist() == [0, 2, 3]
    assert found.copies.tolist() == [1, 1]
    assert found.required.tolist() == [False, False]
    assert found.coupling.toarray().tolist() == [[2], [1], [3]]
    assert found.limit.tolist() == [4]
    assert found.expand(np.array([0, 1, 1]), 4).tolist() == [0, 1, 1, 0]


def test_a_column_fixed_at_one_settles_its_block() -> None:
    found = find_structure(
        problem([[1, 1, 0], [2, 1, 3]], [-INF, -INF], [1, 4], [-5, -4, -3], lower=[0, 1, 0], upper=[1, 1, 1])
    )
    assert found is not None
    assert found.cost.tolist() == [-4, -3]
    assert found.required.tolist() == [True, False]


def test_lower_limits_become_upper_limits() -> None:
    found = find_structure(problem([[1, 1], [2, 3]], [1, 2], [1, INF], [1, 2]))
    assert found is not None
    assert found.required.tolist() == [True]
    assert found.coupling.toarray().tolist() == [[-2], [-3]]
    assert found.limit.tolist() == [-2]


@pytest.mark.parametrize("num_clones", [1, 3])
def test_equal_blocks_become_copies(num_clones: int) -> None:
    whole = choice_problem(1, num_blocks=5, num_clones=num_clones)
    found = find_structure(whole)
    assert found is not None
    assert found.copies.tolist() == [num_clones] * 5
    # Every copy takes the first option of its class: each original block has exactly one column at 1.
    counts = np.zeros(found.cost.size, dtype=np.int64)
    counts[found.start[:-1]] = num_clones
    x = found.expand(counts, whole.num_columns)
    assert x.reshape(-1, 3).tolist() == [[1, 0, 0]] * (5 * num_clones)
    assert whole.value(x) == pytest.approx(float(found.cost @ counts) + found.offset)


def test_blocks_that_differ_in_one_coefficient_stay_apart() -> None:
    found = find_structure(
        problem([[1, 1, 0, 0], [0, 0, 1, 1], [2, 1, 2, 1]], [-INF] * 3, [1, 1, 3], [-5, -4, -5, -4.5])
    )
    assert found is not None
    assert found.copies.tolist() == [1, 1]


def test_blocks_that_differ_by_rounding_are_classes_of_their_own_and_others_are_merged() -> None:
    """Beside a million, what the second column costs is lost in sums of costs."""
    nearly = float(np.nextafter(-1.0, 0.0))
    rows = [*np.repeat(np.eye(4), 2, axis=1).tolist(), [2, 1] * 4]
    found = find_structure(problem(rows, [-INF] * 5, [1] * 4 + [3], [-1e6, -1, -1e6, nearly, -1e6, nearly, -1e6, -1]))
    assert found is not None
    assert found.copies.tolist() == [2, 2]
    assert found.cost.tolist() == [-1e6, -1, -1e6, nearly]


@pytest.mark.parametrize(
    "changes",
    [
        {"integrality": np.zeros(18, dtype=np.bool_)},
        {"upper": np.full(18, 2.0)},
        {"lower": np.full(18, -1.0)},
        {"upper": np.zeros(18)},
        {"lower": np.ones(18)},
    ],
    ids=["continuous", "integer", "negative", "all-zero", "two-in-one-block"],
)
def test_other_shapes_are_left_alone(changes: dict[str, Any]) -> None:
    assert find_structure(replace(choice_problem(0), **changes)) is None


def test_of_overlapping_choice_rows_the_first_chooses() -> None:
    found = find_structure(problem([[1, 1, 0], [0, 1, 1]], [-INF, -INF], [1, 1], [-1, -2, -3]))
    assert found is not None
    assert found.start.tolist() == [0, 2, 3]
    assert found.coupling.toarray().tolist() == [[0], [1], [1]]


def test_many_coupling_rows_are_left_alone() -> None:
    whole = choice_problem(0)
    extra = sparse.csc_array(np.full((65, whole.num_columns), 2.0))
    many = replace(
        whole,
        matrix=sparse.csc_array(sparse.vstack([whole.matrix, extra])),
        row_lower=np.concatenate([whole.row_lower, np.full(65, -INF)]),
        row_upper=np.concatenate([whole.row_upper, np.full(65, 9.0)]),
    )
    assert find_structure(many) is None


def test_expanded_points_respect_choice_rows() -> None:
    whole = choice_problem(3, num_clones=4)
    found = find_structure(whole)
    assert found is not None
    counts = np.zeros(found.cost.size, dtype=np.int64)
    counts[found.start[:-1]] = 1
    counts[found.start[:-1] + 1] = 2
    x = found.expand(counts, whole.num_columns)
    relaxed = replace(whole, row_upper=np.concatenate([whole.row_upper[:-2], [INF, INF]]))
    assert violations(relaxed, x) == ()
    assert x.sum() == 3 * 6
    assert (found.counts_of(x) == counts).all()


def test_columns_of_blocks_need_not_stand_together() -> None:
    whole = choice_problem(3, num_blocks=5, num_clones=2)
    order = np.arange(whole.num_columns).reshape(10, 3).T.ravel()
    mixed = replace(whole, objective=whole.objective[order], matrix=whole.matrix[:, order])
    found, straight = find_structure(mixed), find_structure(whole)
    assert found is not None
    assert straight is not None
    assert (found.copies == 2).all()
    assert (straight.copies == 2).all()
    best = solve(whole, SolveOptions(solver="highs", relative_gap=0.0)).objective
    assert solve(mixed, SolveOptions(relative_gap=0.0)).objective == pytest.approx(best)


def test_what_is_told_of_another_problem_is_not_believed() -> None:
    whole = choice_problem(1, num_blocks=5, num_clones=3)
    found = find_structure(whole)
    part = find_structure(replace(whole, upper=np.append(np.zeros(9), whole.upper[9:])))
    assert found is not None
    assert part is not None
    dearer = found.cost.copy()
    dearer[0] += 1.0
    scarcer = found.coupling * 2.0
    others = [
        replace(found, cost=dearer),
        replace(found, coupling=scarcer),
        replace(found, limit=found.limit - 1.0),
        replace(found, offset=found.offset + 1.0),
        part,
    ]
    for told in (found, *others):
        problem = replace(whole)
        problem.tell(told)
        assert told.is_of(problem) is (told is found)
        assert (find_structure(problem) is told) is (told is found)
        # What is made of the problem may be another one.
        assert replace(problem).choice is None


def test_problems_that_differ_in_costs_alone_have_each_its_own_structure() -> None:
    """Which columns are of use and which blocks are equal depends on costs; what rows and bounds say is found once."""
    whole = choice_problem(1, num_blocks=5, num_clones=2)
    rng = np.random.default_rng(0)
    dear = np.where(rng.random(whole.num_columns) < 0.3, 1.0, whole.objective)
    num_classes = []
    for costs in (whole.objective, rng.uniform(-9.0, -1.0, whole.num_columns), dear, whole.objective):
        here = replace(whole, objective=costs)
        found, alone = find_structure(here), find_structure(replace(here, matrix=here.matrix.copy()))
        assert found is not None
        assert alone is not None
        np.testing.assert_array_equal(found.coupling.toarray(), alone.coupling.toarray())
        for field in fields(found):
            if field.init and field.name != "coupling":
                np.testing.assert_array_equal(getattr(found, field.name), getattr(alone, field.name), field.name)
        num_classes.append(found.copies.size)
    assert num_classes[0] == num_classes[3] == 5
    assert num_classes[1] == 10
    scarce = find_structure(replace(whole, row_upper=np.minimum(whole.row_upper, 3.0)))
    assert scarce is not None
    assert scarce.limit.tolist() == [3.0, 3.0]


def test_what_few_columns_use_is_read_off_the_coupling_rows() -> None:
    found = find_structure(choice_problem(2, num_blocks=7, num_clones=3))
    assert found is not None
    dense, columns = found.coupling.toarray(), np.array([1, 4, 5, 11])
    assert found.usage_of(columns).tolist() == dense[columns].tolist()
    assert found.usage_of(columns[:0]).shape == (0, 2)
    counts = np.zeros(found.cost.size, dtype=np.int64)
    assert found.used_by(counts).tolist() == [0.0, 0.0]
    counts[columns] = [2, 1, 3, 1]
    assert found.used_by(counts).tolist() == (counts @ dense).tolist()


def test_blocks_whose_best_columns_cost_the_same_are_not_equal_for_that() -> None:
    found = find_structure(problem([[1, 1, 0, 0], [0, 0, 1, 1], [2, 1, 2, 1]], [-INF] * 3, [1, 1, 3], [-5, -4, -5, -3]))
    assert found is not None
    assert found.copies.tolist() == [1, 1]
    assert not found.has_copies


def test_with_other_costs_all_else_is_the_very_same() -> None:
    for num_clones in (1, 3):
        found = find_structure(choice_problem(1, num_blocks=5, num_clones=num_clones, required_share=0.5))
        assert found is not None
        assert found.has_copies == (num_clones > 1)
        assert found.num_blocks == 5 * num_clones
        assert found.nothing.tolist() == [np.inf if required else 0.0 for required in found.required.tolist()]
        other = found.with_costs(found.cost + 1.0, 2.0)
        assert (other.offset, other.cost.tolist()) == (2.0, (found.cost + 1.0).tolist())
        names = [each.name for each in fields(found) if each.name not in {"cost", "offset"}]
        assert all(getattr(other, name) is getattr(found, name) for name in names)
