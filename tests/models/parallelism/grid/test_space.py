"""Tables have every place that a stage of some pipeline has, and no other."""

from itertools import pairwise

import numpy as np
import pytest

from models.parallelism.grid.planner import spaces
from tests.models.parallelism.scenes import KIND, performance_model, profile


@pytest.mark.parametrize(("num_gpus", "num_layers", "most"), [(4, 16, 4), (16, 16, 16), (8, 5, 5)])
def test_places_are_those_of_pipelines(num_gpus: int, num_layers: int, most: int) -> None:
    model = performance_model(profile((1.0,) * num_layers))
    [(_, space)] = spaces(model, KIND, 8, np.ones(num_layers), [num_gpus], 16)
    had = set()
    for num_stages in range(1, most + 1):
        pipelines = space.pipelines(num_stages)
        operators = pipelines.operators
        assert pipelines.stages.min() >= 0
        for bounds, places in zip(pipelines.bounds.tolist(), pipelines.stages.T.tolist(), strict=True):
            layers = [operators.table.intervals[operators.interval[place]] for place in places]
            assert layers == list(pairwise(operators.bounds[bounds].tolist()))
            assert operators.behind[places].tolist() == list(range(num_stages - 1, -1, -1))
        had |= set(pipelines.stages.ravel().tolist())
    # Not one in three of all intervals with all numbers of stages behind them can be.
    assert len(had) == len(operators.interval)
    assert len(had) < most * len(operators.table.intervals)


def test_more_stages_than_operators_have_a_place_each() -> None:
    model = performance_model(profile((1.0,) * 32))
    [(_, space)] = spaces(model, KIND, 8, np.ones(32), [32], 16)
    pipelines = space.pipelines(32)
    assert pipelines.stages[:, 0].tolist() == list(range(32))
    assert len(pipelines.operators.interval) == 32
