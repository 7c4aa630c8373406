import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from models.placement.arnold.labels import minipods_per_row
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.arnold.spread import distance, measure
from stowplan.arrays import IntMatrix

matrices = hnp.arrays(
    dtype=np.int64, shape=hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.integers(0, 3)
)


def eq_3(group: list[int], num_minipods: int) -> int:
    """Eq. 3 as printed: positions i in which some two one-hot vectors of the group differ."""
    vectors = [[int(k == minipod) for k in range(num_minipods)] for minipod in group]
    return sum(any(v[i] != w[i] for j, v in enumerate(vectors) for w in vectors[j + 1 :]) for i in range(num_minipods))


@given(matrices)
@settings(max_examples=80, deadline=None)
def test_distance_is_eq_3(minipods: IntMatrix) -> None:
    assert [distance(int(k)) for k in minipods_per_row(minipods)] == [eq_3(row, 4) for row in minipods.tolist()]


@given(matrices)
@settings(max_examples=80, deadline=None)
def test_spreads_count_distinct_minipods(minipods: IntMatrix) -> None:
    spreads = measure(minipods)
    rows, columns = minipods.tolist(), minipods.T.tolist()
    assert spreads.minipods.pp == max(len(set(row)) for row in rows)
    assert spreads.minipods.dp == max(len(set(column)) for column in columns)
    assert spreads.num_used == len({minipod for row in rows for minipod in row})
    # The number of used minipods bounds the spread of every group: Eq. 4 stands in for Eq. 2.
    assert max(spreads.minipods.dp, spreads.minipods.pp) <= spreads.num_used


def test_fig_12_dp_aligned() -> None:
    # stage   0 1
    # row 0   A B     every DP group (column) in one minipod,
    # ...             every PP group (row) crosses
    # row 5   A B
    spreads = measure(np.array([[0, 1]] * 6))
    assert (spreads.minipods.dp, spreads.minipods.pp) == (1, 2)
    assert (spreads.distance.dp, spreads.distance.pp) == (0, 2)
    assert spreads.objective_eq2(0.3) == pytest.approx(0.7 * 2)
    assert spreads.objective_eq4(0.3, SchedulingUnit.PP) == pytest.approx(0.3 * 2 + 0.7 * 2)
    # With DP groups as units T is their spread and takes alpha; the minipods bound the PP groups and take beta.
    assert spreads.objective_eq4(0.3, SchedulingUnit.DP) == pytest.approx(0.7 * 2 + 0.3 * 1)


def test_pp_aligned() -> None:
    spreads = measure(np.array([[0, 0]] * 3 + [[1, 1]] * 3))
    assert (spreads.minipods.dp, spreads.minipods.pp) == (2, 1)
    assert spreads.objective_eq2(0.3) == pytest.approx(0.3 * 2)
    assert spreads.objective_eq4(0.3, SchedulingUnit.PP) == pytest.approx(0.3 * 2 + 0.7 * 1)
