"""The direct way to the matrix form against the declared model compiled by CVXPY."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from models.allocation.horizon.assembly import assemble, row_names
from models.allocation.horizon.declaration import compiled
from models.workload import Snapshot
from tests.models.allocation.horizon.scenes import instance_of, random_parameters, timed_snapshot
from tests.models.allocation.horizon.tiered import tiered_snapshot
from tests.models.placement.scenes import dice


@pytest.mark.parametrize("scene", [timed_snapshot, tiered_snapshot])
@pytest.mark.parametrize("seed", range(5))
def test_assembled_and_declared_are_the_same_program(seed: int, scene: Callable[[Random], Snapshot]) -> None:
    rng = dice(seed)
    instance = instance_of(scene(rng), random_parameters(rng))
    assert (instance.rooms is not None) is (scene is tiered_snapshot)
    direct, declared = assemble(instance), compiled(instance)
    assert direct.sense is declared.sense
    assert direct.offset == pytest.approx(declared.offset)
    assert direct.num_columns == declared.num_columns > 0
    np.testing.assert_allclose(direct.objective, declared.objective)
    np.testing.assert_array_equal(direct.integrality, declared.integrality)
    np.testing.assert_array_equal(direct.lower, declared.lower)
    np.testing.assert_array_equal(direct.upper, declared.upper)
    assert len(set(declared.column_names)) == declared.num_columns
    order = [declared.row_names.index(name) for name in row_names(instance)]
    assert sorted(order) == list(range(declared.num_rows))
    assert abs(direct.matrix.tocsr() - declared.matrix.tocsr()[order]).max() < 1e-12
    np.testing.assert_allclose(direct.row_lower, declared.row_lower[order])
    np.testing.assert_allclose(direct.row_upper, declared.row_upper[order])
