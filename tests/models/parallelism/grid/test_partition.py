from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.grid.operators import cluster
from models.parallelism.grid.partition import bias, gpu_sets, normalised, odd_part, partitions, stage_sizes


def test_three_operators_are_cut_in_two_ways() -> None:
    assert partitions(3, 2).tolist() == [[0, 1, 3], [0, 2, 3]]
    assert partitions(3, 1).tolist() == [[0, 3]]
    assert len(partitions(16, 8)) == 6435
    assert partitions(2, 3).shape == (0, 4)


def test_sets_of_powers_that_add_up() -> None:
    assert gpu_sets(8, 1).tolist() == [[8]]
    assert gpu_sets(8, 3).tolist() == [[4, 2, 2]]
    assert gpu_sets(8, 4).tolist() == [[4, 2, 1, 1], [2, 2, 2, 2]]
    assert gpu_sets(2, 3).shape == (0, 3)


def test_counts_that_are_no_power_of_two_have_equal_stages() -> None:
    # 24 = 3 x 8: in units of 3 GPUs, 8 + 8 + 8 is not a set, but 12 + 12 and 24 are; 8 + 8 + 8 is one of powers of two.
    assert gpu_sets(24, 1).tolist() == [[24]]
    assert gpu_sets(24, 2).tolist() == [[16, 8], [12, 12]]
    assert [8, 8, 8] in gpu_sets(24, 3).tolist()
    assert stage_sizes(6) == (1, 2, 3, 4, 6)
    assert [odd_part(n) for n in (1, 8, 12, 320)] == [1, 1, 3, 5]


@given(st.integers(1, 24), st.integers(1, 5))
@settings(deadline=None, max_examples=25)
def test_sets_are_all_there_are(num_gpus: int, num_stages: int) -> None:
    expected = set()
    for unit in {1, odd_part(num_gpus)}:
        sizes = [unit << k for k in range(6)]
        expected |= {
            tuple(sorted(sizes, reverse=True)) for sizes in product(sizes, repeat=num_stages) if sum(sizes) == num_gpus
        }
    assert set(map(tuple, gpu_sets(num_gpus, num_stages).tolist())) == expected


@pytest.mark.parametrize(("num_gpus", "sizes"), [(64, {2}), (96, {3, 2, 4}), (48, {1, 2}), (31, set())])
def test_many_stages_have_neighbouring_powers(num_gpus: int, sizes: set[int]) -> None:
    sets = gpu_sets(num_gpus, 32)
    assert set(sets.ravel().tolist()) == sizes
    assert (sets.sum(axis=1) == num_gpus).all()


def test_figure_8_of_the_paper_in_small() -> None:
    # Loads 1:3:4 on 8 GPUs ask for 1, 3, 4; the nearest powers are 2, 2, 4, a distance of sqrt(2).
    sets = gpu_sets(8, 3)
    nearest, distance = normalised(np.array([[4.0, 3.0, 1.0]]), sets)
    assert sets[nearest].tolist() == [[4, 2, 2]]
    assert distance.tolist() == [pytest.approx(2**0.5)]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.sampled_from([4, 6, 8, 16, 24]))
@settings(deadline=None, max_examples=25)
def test_no_assignment_is_nearer(loads: list[int], num_gpus: int) -> None:
    sets = gpu_sets(num_gpus, len(loads))
    if not len(sets):
        return
    wanted = np.array([loads]) / sum(loads) * num_gpus
    _, distance = normalised(-np.sort(-wanted), sets)
    every = np.array([assignment for sizes in sets.tolist() for assignment in permutations(sizes)])
    assert distance[0] == pytest.approx(bias(wanted.T, every.T).min())


def test_equal_layers_make_operators_that_equal_stages_are_cut_from() -> None:
    assert cluster(np.ones(32), 16) == tuple(range(0, 33, 2))
    bounds = cluster(np.ones(40), 16)
    assert {0, 5, 10, 15, 20, 25, 30, 35, 40} <= set(bounds)
    assert cluster(np.ones(3), 16) == (0, 1, 2, 3)


def test_a_heavy_layer_is_an_operator_of_its_own() -> None:
    assert cluster(np.array([1.0, 1.0, 1.0, 9.0]), 2) == (0, 3, 4)
    assert cluster(np.array([9.0, 1.0, 1.0, 1.0]), 3) == (0, 1, 2, 4)


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=40), st.integers(1, 20))
@settings(deadline=None, max_examples=60)
def test_operators_cover_all_layers(loads: list[float], num_operators: int) -> None:
    bounds = cluster(np.array(loads), num_operators)
    assert bounds[0] == 0
    assert bounds[-1] == len(loads)
    assert len(bounds) == min(num_operators, len(loads)) + 1
    assert (np.diff(bounds) > 0).all()
