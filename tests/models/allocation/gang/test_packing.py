"""Best fit on counts against trying every node, and the flows that it tells."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from models.allocation.gang.packing import Packing

LEVELS = st.lists(st.integers(0, 8), min_size=1, max_size=4)


def can_be_packed(free: Sequence[int], items: Sequence[int]) -> bool:
    """Whether the items, given by decreasing size, find nodes; by trying all."""
    if not items:
        return True
    first, *others = items
    return any(
        can_be_packed([*free[:k], room - first, *free[k + 1 :]], others)
        for k, room in enumerate(free)
        if room >= first and room not in free[:k]
    )


def put_one_by_one(free: Sequence[int], items: Sequence[int]) -> tuple[Packing, list[int]]:
    packing = Packing(free, 8)
    return packing, [size for size in items if packing.put({size: 1})]


@settings(max_examples=50)
@given(free=LEVELS, items=st.lists(st.sampled_from((1, 2, 4, 8)), max_size=7))
def test_powers_of_two_find_room_wherever_there_is_some(free: list[int], items: list[int]) -> None:
    _, taken = put_one_by_one(free, items)
    left = Counter(items) - Counter(taken)
    assert can_be_packed(free, sorted(taken, reverse=True))
    assert not any(can_be_packed(free, sorted([*taken, size], reverse=True)) for size in left)


@settings(max_examples=50)
@given(free=LEVELS, items=st.lists(st.integers(1, 8), max_size=7))
def test_what_is_put_is_what_flowed(free: list[int], items: list[int]) -> None:
    """The levels after all flows are those of nodes, and no level was drawn from more often than nodes came by."""
    packing, taken = put_one_by_one(free, items)
    assert can_be_packed(free, sorted(taken, reverse=True))
    assert Counter(taken) == +packing.items
    sizes = Counter[int]()
    for (_, size), count in packing.flows.items():
        sizes[size] += count
    assert sizes == Counter(taken)
    for level in range(9):
        came = packing.start[level] + sum(packing.flows[level + size, size] for size in range(1, 9 - level))
        went = sum(packing.flows[level, size] for size in range(1, level + 1))
        assert packing.left[level] == came - went >= 0


def test_what_finds_no_room_beside_the_others_is_packed_anew() -> None:
    """2 goes to the node of three, the best fit; 3 then makes it move to the node of four, where 2 are left."""
    packing = Packing([3, 4], 8)
    assert packing.put({2: 1})
    assert packing.put({3: 1})
    assert packing.put({2: 1})
    assert packing.left == [2, 0, 0, 0, 0, 0, 0, 0, 0]
    assert not packing.put({1: 1})
    assert packing.items == {2: 2, 3: 1}


def test_best_fit_may_miss_room_for_other_sizes() -> None:
    """6 = 4 + 2 and 5 = 3 + 2; by decreasing size 4 goes to the five, and 3 and 2 leave one GPU twice."""
    assert can_be_packed([6, 5], [4, 3, 2, 2])
    assert put_one_by_one([6, 5], [4, 3, 2, 2])[1] == [4, 3, 2]


def test_nodes_may_change_beneath_the_items() -> None:
    packing = Packing([4, 8], 8)
    assert packing.put({4: 1})
    assert not packing.change([(8, 0), (4, 3)])
    assert packing.start[8] == 1
    assert packing.change([(4, 8)])
    assert (packing.num_whole, packing.left[4]) == (1, 1)
    copied = packing.copy()
    assert copied.put({8: 1})
    assert not copied.fits({8: 1})
    assert packing.fits({8: 1})
