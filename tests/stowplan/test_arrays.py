"""Short ways through arrays give what the long ones do."""

import numpy as np
import pytest

from stowplan.arrays import all_of, pairs_in


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (1, 1), (7, 5), (40, 60)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_pairs_are_those_of_nonzero(shape: tuple[int, int], share: float) -> None:
    mask = np.random.default_rng(0).random(shape) < share
    rows, columns = pairs_in(mask)
    for found, expected in zip((rows, columns), np.nonzero(mask), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_all_of_a_mask_holds_where_nothing_is_missing() -> None:
    for mask in (np.ones((2, 3), dtype=np.bool_), np.zeros(0, dtype=np.bool_), np.array([True, False])):
        assert all_of(mask) is bool(mask.all())
