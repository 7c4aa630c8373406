import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.placement.arnold.assignment import arrange, improved, whole_nodes
from models.placement.arnold.constructive import construct
from models.placement.arnold.instance import ArnoldInstance
from models.placement.arnold.labels import counts_of, labels_of, max_spread, minipods_per_row, num_used
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.arnold.spread import measure
from stowplan.arrays import IntMatrix
from tests.models.placement.arnold.exact.scenes import assert_legal
from tests.models.placement.arnold.scenes import best_by_search, instance, tiny_instances


@st.composite
def splits(draw: st.DrawFn) -> IntMatrix:
    """Whole nodes per group and minipod; every group has the same number of nodes."""
    num_groups, size = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    choices = draw(st.lists(st.lists(st.integers(0, 3), min_size=size, max_size=size), min_size=num_groups))
    return np.array([np.bincount(group, minlength=4) for group in choices])


@st.composite
def fractional_solutions(draw: st.DrawFn) -> tuple[ArnoldInstance, IntMatrix]:
    """A split in half nodes and capacities that it just fits: p of the MIP, fractional in general."""
    halves = 2 * draw(splits())
    for i, a, b in draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)), max_size=6)):
        row = halves[i % len(halves)]
        if row[a] > 0:
            row[a] -= 1
            row[b] += 1
    free = -(-halves.sum(axis=0) // 2)
    size = int(halves[0].sum()) // 2
    return instance(len(halves), size, free.tolist(), 0.3), halves


@given(fractional_solutions())
@settings(max_examples=30, deadline=None)
def test_whole_nodes_are_never_worse_than_shares(case: tuple[ArnoldInstance, IntMatrix]) -> None:
    data, halves = case
    counts = whole_nodes(data, halves > 0, halves.sum(axis=0) > 0)
    assert (counts.sum(axis=1) == data.group_size).all()
    assert (counts.sum(axis=0) <= data.free_nodes).all()
    assert (halves[counts > 0] > 0).all()
    assert np.count_nonzero(counts, axis=1).max() <= np.count_nonzero(halves, axis=1).max()
    assert np.count_nonzero(counts.any(axis=0)) <= np.count_nonzero(halves.any(axis=0))


def test_shares_of_half_a_node_become_whole_nodes() -> None:
    # Three nodes free in each minipod, three groups of two. A solver may answer with halves:
    #       m0   m1                                   m0   m1
    # g0     1    1            whole nodes, e.g.       1    1
    # g1    1.5  0.5                                   2    0
    # g2    0.5  1.5                                   0    2
    data = instance(3, 2, (3, 3), 0.3)
    counts = whole_nodes(data, np.ones((3, 2), dtype=bool), np.ones(2, dtype=bool))
    assert counts.sum(axis=0).tolist() == [3, 3]
    assert counts.sum(axis=1).tolist() == [2, 2, 2]


def test_a_solution_without_room_is_refused() -> None:
    data = instance(2, 2, (3, 3), 0.3)
    with pytest.raises(ValueError, match="places 3 of 4"):
        whole_nodes(data, np.array([[True, False], [True, False]]), np.array([True, True]))


@given(tiny_instances())
@settings(max_examples=30, deadline=None)
def test_constructed_solutions_fit_and_are_no_better_than_the_optimum(data: ArnoldInstance) -> None:
    labels = construct(data)
    assert labels is not None
    assert_legal(data, labels)
    best = best_by_search(data)
    assert best is not None
    assert data.objective(labels) >= best - 1e-9


@given(
    free=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    size=st.integers(1, 12),
    alpha=st.sampled_from([0.0, 0.1, 0.5]),
)
@settings(max_examples=60, deadline=None)
def test_split_free_solutions_are_found_on_the_fewest_minipods(free: list[int], size: int, alpha: float) -> None:
    whole = sorted((count // size for count in free), reverse=True)
    if not sum(whole):
        return
    labels = construct(instance(sum(whole), size, free, alpha))
    assert labels is not None
    fewest = int(np.searchsorted(np.cumsum(whole), sum(whole))) + 1
    assert alpha * num_used(labels) + (1 - alpha) * max_spread(labels) <= alpha * fewest + (1 - alpha) + 1e-9
    if alpha == 0:
        assert (max_spread(labels), num_used(labels)) == (1, fewest)


def test_nothing_is_constructed_without_room() -> None:
    assert construct(instance(2, 2, (1, 2), 0.3)) is None


def test_ties_go_to_what_eq_4_does_not_see() -> None:
    """With alpha 0 the number of minipods costs nothing, but fewer are better."""
    data = instance(2, 2, (4, 2, 2), 0.0)
    wide, narrow = np.array([[1, 1], [2, 2]]), np.array([[0, 0], [0, 0]])
    assert improved(data, wide, narrow) is narrow
    assert improved(data, narrow, wide) is narrow
    assert improved(data, wide, None) is wide


@given(splits(), st.sampled_from(SchedulingUnit))
@settings(max_examples=40, deadline=None)
def test_arranging_keeps_every_share_and_crosses_no_more_than_it_must(counts: IntMatrix, unit: SchedulingUnit) -> None:
    minipods = arrange(labels_of(counts), unit)
    groups = minipods if unit is SchedulingUnit.PP else minipods.T
    shares = [np.bincount(group, minlength=4).tolist() for group in groups]
    assert sorted(shares) == sorted(counts.tolist())
    crossings = (np.diff(groups, axis=1) != 0).sum(axis=1)
    assert (crossings == minipods_per_row(groups) - 1).all()
    whole = [group[0] for group in groups.tolist() if len(set(group)) == 1]
    assert len([k for k in range(1, len(whole)) if whole[k] != whole[k - 1]]) <= max(0, len(set(whole)) - 1)


def test_equal_shares_break_at_the_same_stage() -> None:
    # Every PP group is half in m0 and half in m1, so that each column can stay in one minipod: Fig. 12.
    minipods = arrange(np.array([[0, 0, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0]]), SchedulingUnit.PP)
    assert minipods.tolist() == [[0, 0, 1, 1]] * 3
    assert measure(minipods).minipods.dp == 1


@given(splits())
@settings(max_examples=30, deadline=None)
def test_labels_and_counts_say_the_same(counts: IntMatrix) -> None:
    labels = labels_of(counts)
    assert (counts_of(labels, 4) == counts).all()
    assert num_used(labels) == np.count_nonzero(counts.any(axis=0))
    assert max_spread(labels) == np.count_nonzero(counts, axis=1).max()
