"""The theorem of `packing`, its construction, partitions, and the flow over components."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.placement.arnold.exact.component_model import component_arcs, component_model, read_components
from models.placement.arnold.exact.packing import num_in_component, pack, pack_component
from models.placement.arnold.exact.partition import least_excess, partition
from models.placement.arnold.labels import counts_of, max_spread
from solver.compilers.pyomo import compile_pyomo
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.solve import solve
from stowplan.arrays import IntVector
from tests.models.placement.arnold.exact.scenes import fits, seeded

Case = tuple[IntVector, int, int, int]


def largest_first(*nodes: int) -> IntVector:
    return np.array(sorted(nodes, reverse=True), dtype=np.int64)


def sets(members: list[int]) -> Iterator[list[list[int]]]:
    """All partitions of a list."""
    if not members:
        yield []
        return
    first, *rest = members
    for parts in sets(rest):
        yield [[first], *parts]
        for k, part in enumerate(parts):
            yield [*parts[:k], [first, *part], *parts[k + 1 :]]


def holds(free: IntVector, size: int, num_groups: int, spread: int) -> bool:
    """Whether some partition into components holds the groups, by the theorem."""
    return any(
        sum(num_in_component(largest_first(*part), size, spread) for part in parts) >= num_groups
        for parts in sets(free.tolist())
    )


def random_case(rng: np.random.Generator) -> Case | None:
    """Nearly full minipods, many smaller than a group."""
    size, spread = int(rng.integers(2, 8)), int(rng.integers(1, 5))
    most = int(rng.choice([size, size + 3, 2 * size + 2, 3 * size]))
    free = largest_first(*rng.integers(1, most + 1, rng.integers(1, 6)).tolist())
    num_groups = max(1, int(free.sum()) // size - int(rng.integers(0, 2)))
    return (free, size, num_groups, spread) if num_groups <= 4 and num_groups * size <= free.sum() else None


CASES = [case for rng in seeded(1, 600) if (case := random_case(rng)) is not None]


def test_a_packing_exists_exactly_when_a_partition_into_components_does() -> None:
    assert len(CASES) > 350
    for free, size, num_groups, spread in CASES:
        expected = fits(free.tolist(), size, num_groups, spread)
        assert holds(free, size, num_groups, spread) == expected, (free, size, num_groups, spread)


def test_partitions_are_packings_and_most_are_found() -> None:
    found = missed = 0
    for free, size, num_groups, spread in CASES:
        components = partition(free, size, num_groups, spread)
        if components is None:
            missed += fits(free.tolist(), size, num_groups, spread)
            continue
        found += 1
        labels = pack(free, size, num_groups, spread, components)
        assert labels.shape == (num_groups, size)
        assert (np.bincount(labels.ravel(), minlength=free.size) <= free).all()
        assert max_spread(labels) <= spread
    assert missed < 0.01 * found


@given(
    free=st.lists(st.integers(1, 40), min_size=1, max_size=25),
    size=st.integers(1, 30),
    spread=st.integers(1, 5),
)
@settings(max_examples=80, deadline=None)
def test_the_construction_of_the_proof_always_works(free: list[int], size: int, spread: int) -> None:
    nodes = largest_first(*free)
    num_groups = num_in_component(nodes, size, spread)
    labels = pack_component(nodes, size, num_groups, spread)
    assert labels.shape == (num_groups, size)
    assert (np.bincount(labels.ravel(), minlength=nodes.size) <= nodes).all()
    assert num_groups == 0 or max_spread(labels) <= spread


def test_a_star_of_straddling_groups() -> None:
    """Three groups of 8 on 15, 3, 3 and 3 nodes: each takes a small minipod and 5 nodes of the large one."""
    free = largest_first(15, 3, 3, 3)
    counts = counts_of(pack_component(free, 8, 3, 2), 4)
    assert sorted(map(tuple, counts.tolist())) == [(5, 0, 0, 3), (5, 0, 3, 0), (5, 3, 0, 0)]


def test_more_minipods_than_groups_can_link_must_be_split() -> None:
    """Two groups of 8 on 5, 5, 3 and 3 nodes link at most three minipods; as two components all four are used."""
    free = largest_first(5, 5, 3, 3)
    assert num_in_component(free, 8, 2) == 1
    components = partition(free, 8, 2, 2)
    assert components is not None
    assert sorted(sorted(free[part].tolist()) for part in components) == [[3, 5], [3, 5]]
    with pytest.raises(ValueError, match="hold 1 of 2 groups"):
        pack(free, 8, 2, 2, [np.arange(4)])


def test_nothing_holds_nothing() -> None:
    assert num_in_component(np.zeros(0, dtype=np.int64), 3, 2) == 0
    assert partition(largest_first(3, 3), 4, 1, 1) is None


@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=7), need=st.integers(0, 30), num=st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_least_excess_is_the_best_subset_with_the_first(sizes: list[int], need: int, num: int) -> None:
    masks = (mask for mask in range(1, 2 ** len(sizes), 2) if mask.bit_count() == num)
    sums = [sum(size for k, size in enumerate(sizes) if mask >> k & 1) for mask in masks]
    expected = min((total for total in sums if total >= need), default=None)
    chosen = least_excess(sizes, need, num)
    if chosen is None:
        assert expected is None
        return
    assert len(set(chosen)) == num
    assert 0 in chosen
    assert sum(sizes[k] for k in chosen) == expected


@pytest.mark.slow
def test_the_flow_finds_the_fewest_minipods() -> None:
    for free, size, num_groups, spread in CASES[:30]:
        if spread == 1:
            continue
        arcs = component_arcs(free, size, spread, 10_000)
        assert arcs is not None
        problem = compile_pyomo(component_model(free, num_groups, spread, arcs)).problem
        result = solve(problem, SolveOptions(relative_gap=0.0))
        prefixes = range(1, free.size + 1)
        fewest = next((k for k in prefixes if fits(free[:k].tolist(), size, num_groups, spread)), None)
        if fewest is None:
            assert result.termination is TerminationReason.INFEASIBLE
            continue
        assert result.objective == pytest.approx(fewest)
        assert result.incumbent is not None
        flow = np.rint(result.incumbent[: len(arcs)]).astype(np.int64)
        components = read_components(free, arcs, flow)
        assert sum(part.size for part in components) == fewest
        assert np.unique(np.concatenate(components)).size == fewest
        assert max_spread(pack(free, size, num_groups, spread, components)) <= spread


def test_a_model_that_would_be_too_large_is_not_declared() -> None:
    assert component_arcs(np.arange(60, 0, -1), 50, 4, 1_000) is None
