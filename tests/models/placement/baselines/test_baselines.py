"""What Arnold is compared with: legal placements, a bisection that improves, an enumeration that is complete."""

from collections.abc import Callable
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.placement.arnold.true_spread.instance import TrueSpreadInstance, spreads
from models.placement.arnold.true_spread.search import solve_true_spread
from models.placement.baselines.bisection import bisect, cut_weight
from models.placement.baselines.enumeration import enumerate_placements
from models.placement.baselines.fitting import best_fit, gpu_packing, random_fit
from models.placement.baselines.topology_aware import job_graph, topology_aware
from stowplan.arrays import IntMatrix
from tests.models.placement.arnold.exact.scenes import (
    assert_placed,
    best_eq2,
    budget,
    dirichlet,
    ignore,
    matrix_instance,
)


def randomly(instance: TrueSpreadInstance) -> IntMatrix:
    return random_fit(instance, np.random.default_rng(3))


BASELINES: tuple[Callable[[TrueSpreadInstance], IntMatrix], ...] = (best_fit, gpu_packing, topology_aware, randomly)


@pytest.mark.parametrize("place", BASELINES)
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 6),
    num_minipods=st.integers(1, 9),
    spare=st.integers(0, 30),
    seed=st.integers(0, 1_000),
)
@settings(max_examples=8, deadline=None)
def test_placements_are_legal_repeatable_and_no_better_than_the_bound(
    place: Callable[[TrueSpreadInstance], IntMatrix], rows: int, columns: int, num_minipods: int, spare: int, seed: int
) -> None:
    data = matrix_instance(rows, columns, dirichlet(num_minipods, rows * columns + spare, seed), 0.3)
    labels = place(data)
    assert_placed(data, labels)
    assert (labels == place(data)).all()
    bound = solve_true_spread(data, budget(may_solve=False), ignore).bound
    assert bound is not None
    assert data.objective(labels) >= bound - 1e-9


def test_best_fit_starts_with_the_smallest_minipod() -> None:
    assert best_fit(matrix_instance(2, 3, (6, 2, 4), 0.3)).tolist() == [[1, 1, 2], [2, 2, 2]]


def test_packing_takes_the_smallest_that_holds_the_rest() -> None:
    assert set(gpu_packing(matrix_instance(2, 3, (9, 2, 6), 0.3)).ravel().tolist()) == {2}
    # None holds all 6: the largest comes first, then the smallest that holds the other two.
    assert gpu_packing(matrix_instance(2, 3, (3, 2, 4), 0.3)).tolist() == [[2, 2, 2], [2, 1, 1]]


def test_random_fit_is_balanced() -> None:
    counts = np.bincount(randomly(matrix_instance(4, 4, (9, 9, 2, 9), 0.3)).ravel())
    assert sorted(counts.tolist()) == [2, 4, 5, 5]


def test_the_bisection_finds_the_bridge() -> None:
    """Two cliques of five, joined by one edge; the start mixes them."""
    graph = nx.barbell_graph(5, 0)
    side = bisect(graph, {0, 2, 4, 6, 8}, (4, 6))
    assert cut_weight(graph, side) == 1
    assert side in ({0, 1, 2, 3, 4}, {5, 6, 7, 8, 9})


def test_weights_of_vertices_limit_the_bisection() -> None:
    graph = nx.path_graph(4)
    nx.set_node_attributes(graph, {0: 3, 1: 1, 2: 1, 3: 1}, "weight")
    assert bisect(graph, {0}, (3, 3)) == {0}
    with pytest.raises(ValueError, match="the start weighs 1"):
        bisect(graph, {1}, (3, 3))


@given(num=st.integers(2, 9), density=st.floats(0.2, 0.9), seed=st.integers(0, 500))
@settings(max_examples=60, deadline=None)
def test_a_bisection_is_no_worse_than_its_start_and_no_better_than_the_best(
    num: int, density: float, seed: int
) -> None:
    graph = nx.gnp_random_graph(num, density, seed=seed)
    rng = np.random.default_rng(seed)
    nx.set_edge_attributes(graph, {edge: float(rng.integers(1, 5)) for edge in graph.edges}, "weight")
    start, limits = set(range(num // 2)), (max(0, num // 2 - 1), num // 2 + 1)
    side = bisect(graph, start, limits)
    assert limits[0] <= len(side) <= limits[1]
    best = min(
        cut_weight(graph, set(half))
        for size in range(limits[0], limits[1] + 1)
        for half in combinations(range(num), size)
    )
    assert best <= cut_weight(graph, side) <= cut_weight(graph, start)


def test_a_job_that_fits_into_one_minipod_stays_there() -> None:
    """The halves are 9 and 3 + 5 + 4: the first has fewer free nodes, and room."""
    assert set(topology_aware(matrix_instance(2, 2, (3, 5, 4, 9), 0.3)).ravel().tolist()) == {3}


def test_the_bisection_keeps_the_groups_that_matter() -> None:
    """Two minipods of half the job each: rows stay whole when PP groups weigh, columns when DP groups do."""
    assert spreads(topology_aware(matrix_instance(4, 4, (8, 8), 0.1))) == (1, 2)
    assert spreads(topology_aware(matrix_instance(4, 4, (8, 8), 0.9))) == (2, 1)


def test_the_job_graph_has_pipelines_and_rings() -> None:
    graph = job_graph(matrix_instance(3, 2, (9,), 0.3))
    assert graph.number_of_edges() == 3 * 1 + 2 * 3
    assert graph.edges[(0, 0), (0, 1)]["weight"] == 0.7
    assert graph.edges[(2, 1), (0, 1)]["weight"] == 0.3
    assert job_graph(matrix_instance(2, 1, (9,), 0.3)).number_of_edges() == 1


@pytest.mark.parametrize("free", [(4, 3, 2), (6, 1, 1), (2, 2, 2), (1, 2, 2)])
def test_the_enumeration_is_optimal(free: tuple[int, ...]) -> None:
    data = matrix_instance(3, 2, free, 0.3)
    found = enumerate_placements(data)
    assert (found.num_placements, found.complete) == (3**6, True)
    best = best_eq2(data)
    assert (found.labels is None) == np.isinf(best)
    if found.labels is not None:
        assert data.objective(found.labels) == pytest.approx(best)


def test_an_enumeration_that_takes_too_long_says_so() -> None:
    found = enumerate_placements(matrix_instance(5, 4, (9, 9, 9), 0.3), time_limit_s=0.0)
    assert not found.complete
    assert found.num_placements < 3**20
