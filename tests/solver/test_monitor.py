"""What is told of a solve arrives as it was sent."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from solver.monitor import Progress
from stowplan.arrays import FloatVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class More(Progress):
    """What a task tells beside."""

    note: str


SPARSE = np.zeros(10_000)
SPARSE[[3, 9_999]] = 1.0, 2.5


@pytest.mark.parametrize("point", [SPARSE, np.arange(5.0), np.zeros(0), np.array([0.0, np.nan, -1.0])])
def test_points_arrive_whole(point: FloatVector) -> None:
    sent = Progress(elapsed_s=0.5, objective=1.0, bound=2.0, incumbent=point, num_nodes=3)
    got = pickle.loads(pickle.dumps(sent))  # noqa: S301 - our own
    assert np.array_equal(got.incumbent, point, equal_nan=True)
    assert (got.elapsed_s, got.objective, got.bound, got.num_nodes) == (0.5, 1.0, 2.0, 3)
    assert pickle.loads(pickle.dumps(Progress(elapsed_s=1.0))).incumbent is None  # noqa: S301 - our own


def test_points_that_are_nearly_all_zeros_are_small() -> None:
    assert len(pickle.dumps(Progress(elapsed_s=0.0, incumbent=SPARSE))) < SPARSE.nbytes / 50


def test_kinds_of_progress_arrive_as_what_they_are() -> None:
    got = pickle.loads(pickle.dumps(More(elapsed_s=1.0, incumbent=SPARSE, note="ended")))  # noqa: S301 - our own
    assert isinstance(got, More)
    assert got.note == "ended"
    assert got.incumbent is not None
    assert np.array_equal(got.incumbent, SPARSE)
