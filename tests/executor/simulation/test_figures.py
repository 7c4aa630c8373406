"""Figures by hand."""

import numpy as np
import pytest

from executor.simulation.figures import Asked, fair_completion_s, mean_present


def test_how_many_jobs_are_there_beside_one() -> None:
    """Two jobs share half of their time, a third comes when both are gone; the last one is there for no time."""
    present = mean_present([0.0, 5.0, 20.0, 30.0], [10.0, 15.0, 30.0, 30.0])
    assert present.tolist() == pytest.approx([1.5, 1.5, 1.0, 1.0])
    assert mean_present([], []).shape == (0,)


def test_it_equals_sampling() -> None:
    random = np.random.default_rng(0)
    starts = random.uniform(0, 100, 30)
    ends = starts + random.exponential(20, 30)
    times = np.linspace(0, 300, 300_001)
    there = ((starts[:, None] <= times) & (times < ends[:, None])).sum(axis=0)
    sampled = [there[(s <= times) & (times < e)].mean() for s, e in zip(starts, ends, strict=True)]
    assert mean_present(starts.tolist(), ends.tolist()).tolist() == pytest.approx(sampled, rel=1e-2)


def test_a_share_that_is_enough_and_one_that_is_not() -> None:
    asked = Asked(num_gpus=4, alone_s=100.0, alone_gpus=8)
    assert fair_completion_s(asked, num_gpus=64, present=8.0) == 100
    assert fair_completion_s(asked, num_gpus=64, present=16.0) == 200
