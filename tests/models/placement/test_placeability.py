import numpy as np
import pytest
from hypothesis import given, settings

from models.configurations import ConfigurationSet, enumerate_configurations
from models.placement.placeability import PlaceabilityRows, placeability_rows, takes_whole_nodes, whole_node_sizes
from tests.models.placement.scenes import SEEDS, cluster, dice, node, packable
from topology.cluster import Cluster


def rows_of(machines: Cluster, free: list[int]) -> tuple[ConfigurationSet, PlaceabilityRows]:
    configurations = enumerate_configurations(machines)
    return configurations, placeability_rows(machines.nodes, np.array(free, dtype=np.int64), configurations)


def test_equal_free_nodes_of_a_power_of_two_need_the_capacity_row_only() -> None:
    _, rows = rows_of(cluster(node("x"), node("y"), node("z")), [8, 8, 8])
    assert rows.names == ("capacity[a]",)
    assert rows.limits.tolist() == [24]


def test_a_taken_gpu_forbids_what_no_longer_fits_whole() -> None:
    """Two nodes of 8, one GPU of each taken: 14 GPUs are free, but two blocks of 4 and no whole node.

    x [#.......]  y [#.......]     blocks of 4: one each; blocks of 2: three each
    """
    configurations, rows = rows_of(cluster(node("x"), node("y")), [7, 7])
    assert dict(zip(rows.names, rows.limits.tolist(), strict=True)) == {
        "capacity[a]": 14,
        "blocks[a,2]": 12,
        "blocks[a,4]": 8,
        "whole_nodes[a]": 0,
    }
    assert configurations.num_gpus[rows.fits_alone()].tolist() == [1, 2, 4]


def test_six_gpus_are_a_block_of_four_and_a_block_of_two() -> None:
    """Two free nodes of 6: three items of 4 would fit 12 GPUs, but each node holds one."""
    configurations, rows = rows_of(cluster(node("x", 6), node("y", 6)), [6, 6])
    assert dict(zip(rows.names, rows.limits.tolist(), strict=True)) == {"capacity[a]": 12, "blocks[a,4]": 8}
    counts = np.where(configurations.num_gpus == 4, 2, 0)
    missing = dict(zip(configurations.num_gpus.tolist(), rows.missing_gpus(counts).tolist(), strict=True))
    assert missing == {1: 0, 2: 0, 4: 4, 6: 4, 12: 8}


def test_partial_configurations_other_than_powers_of_two_are_refused() -> None:
    configurations = ConfigurationSet(
        gpu_types=("a",),
        type_index=np.zeros(2, dtype=np.int64),
        num_nodes=np.ones(2, dtype=np.int64),
        num_gpus=np.array([3, 8]),
        bandwidth_fraction=np.ones(2),
    )
    with pytest.raises(ValueError, match="powers of two"):
        placeability_rows((node("x"),), np.array([8]), configurations)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_the_rows_admit_exactly_what_can_be_packed(seed: int) -> None:
    rng = dice(seed)
    largest = rng.choice((1, 2, 3, 4, 6, 7, 8))
    sizes = [largest, *(rng.choice((largest, largest, rng.randint(1, largest))) for _ in range(rng.randint(0, 2)))]
    free = [rng.choice((size, rng.randint(0, size))) for size in sizes]
    configurations, rows = rows_of(cluster(*(node(f"n{i}", size) for i, size in enumerate(sizes))), free)
    whole = takes_whole_nodes(configurations)
    for _ in range(20):
        counts = np.array([rng.choice((0, 0, 1, 2)) for _ in whole], dtype=np.int64)
        items = np.repeat(configurations.num_gpus, np.where(whole, 0, counts)).tolist()
        num_whole = int((counts * configurations.num_nodes)[whole].sum())
        assert whole_node_sizes(configurations).tolist() == [largest]
        expected = packable(sizes, free, largest, sorted(items, reverse=True), num_whole)
        assert bool((rows.coefficients @ counts <= rows.limits).all()) == expected
