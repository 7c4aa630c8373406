"""The direct way to the matrix form against the declared model compiled by CVXPY."""

import numpy as np
import pytest
from hypothesis import given, settings

from models.allocation.arena.assembly import row_names
from models.allocation.arena.parameters import ArenaMethod
from tests.models.allocation.arena.scenes import formulation_of, random_parameters, random_snapshot
from tests.models.placement.scenes import SEEDS, dice


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_assembled_and_declared_are_the_same_program(seed: int) -> None:
    """Same columns in the same order; same rows, which CVXPY sorts by kind."""
    rng = dice(seed)
    formulation = formulation_of(random_snapshot(rng), random_parameters(rng, ArenaMethod.ILP))
    direct, declared = formulation.problem, formulation.named()
    assert direct.sense is declared.sense
    assert direct.offset == pytest.approx(declared.offset)
    np.testing.assert_allclose(direct.objective, declared.objective)
    if not direct.num_columns:
        assert declared.num_rows == direct.num_rows
        return
    np.testing.assert_array_equal(direct.integrality, declared.integrality)
    np.testing.assert_array_equal(direct.lower, declared.lower)
    np.testing.assert_array_equal(direct.upper, declared.upper)
    order = [declared.row_names.index(name) for name in row_names(formulation.instance)]
    assert sorted(order) == list(range(declared.num_rows))
    assert abs(direct.matrix.tocsr() - declared.matrix.tocsr()[order]).max() <= 1e-12
    np.testing.assert_array_equal(direct.row_lower, declared.row_lower[order])
    np.testing.assert_allclose(direct.row_upper, declared.row_upper[order])
