"""What moves between two layouts is what the ranks of the next one do not have: each element once, no other."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.redeployment import Region, Transfer, batches, chunks, transfers
from stowplan.errors import InputError
from tests.growth import work

ROWS, COLUMNS = 6, 4
Element = tuple[str, int, int]


def region(tensor: str, top: int, bottom: int, left: int = 0, right: int = COLUMNS) -> Region:
    return Region(tensor=tensor, top=top, bottom=bottom, left=left, right=right)


def elements(part: Region) -> Iterator[Element]:
    for row in range(part.top, part.bottom):
        for column in range(part.left, part.right):
            yield part.tensor, row, column


def layout(stages: Sequence[tuple[int, int, int]]) -> list[list[Region]]:
    """Stages of (layers, replicas, tensor ranks), layer by layer a tensor: what each rank has of it in ZeRO-1, where
    tensor ranks share columns and replicas rows."""
    ranks, first = [], 0
    for layers, dp, tp in stages:
        names = [f"layer{k}" for k in range(first, first + layers)]
        first += layers
        for data in range(dp):
            top, bottom = ROWS * data // dp, ROWS * (data + 1) // dp
            for tensor in range(tp):
                left, right = COLUMNS * tensor // tp, COLUMNS * (tensor + 1) // tp
                ranks.append([region(name, top, bottom, left, right) for name in names])
    return ranks


def moved(found: Sequence[Transfer]) -> int:
    return sum(one.region.size for one in found if not one.stays)


stage = st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from((1, 2, 4)))


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[list[Region]], list[list[Region]], list[int | None]]:
    """Two layouts of the same layers, and where the ranks of the second are."""
    before = draw(st.lists(stage, min_size=1, max_size=3))
    num_layers = sum(layers for layers, _, _ in before)
    cuts = sorted(draw(st.sets(st.integers(1, num_layers - 1), max_size=2))) if num_layers > 1 else []
    lengths = np.diff([0, *cuts, num_layers]).tolist()
    after = [(length, *draw(stage)[1:]) for length in lengths]
    held, needed = layout(before), layout(after)
    taken = draw(st.permutations([*range(len(held)), *[None] * len(needed)]))
    return held, needed, list(taken[: len(needed)])


@given(changes())
def test_every_element_comes_once_from_who_has_it_and_no_more_moves_than_must(
    change: tuple[list[list[Region]], list[list[Region]], list[int | None]],
) -> None:
    held, needed, places = change
    found = transfers(held, needed, places)
    has = [{element for part in parts for element in elements(part)} for parts in held]
    for target, (parts, place) in enumerate(zip(needed, places, strict=True)):
        came = Counter(element for one in found if one.target == target for element in elements(one.region))
        wanted = {element for part in parts for element in elements(part)}
        assert came == Counter(wanted)
        kept = wanted & has[place] if place is not None else set()
        assert moved([one for one in found if one.target == target]) == len(wanted) - len(kept)
    for one in found:
        assert set(elements(one.region)) <= has[one.source]
        assert one.stays is (one.source == places[one.target])


def test_nothing_moves_where_nothing_changes() -> None:
    same = layout([(2, 2, 2)])
    assert moved(transfers(same, same, range(len(same)))) == 0


def test_a_stage_that_gets_a_replica_and_a_layer() -> None:
    """The change of Suika's Figure 3, with 8 layers in stages of 4 and 4, two replicas of TP2 each, which have all of
    their state: the second stage gets a third replica, and a layer of the first. Of 21 layers that ranks need (3 x 2
    and 5 x 3) 7 move: one to each replica that is there, 5 to the new one."""
    layer = [region(f"layer{k}", 0, ROWS) for k in range(8)]
    half = [[region(one.tensor, 0, ROWS, *columns) for one in layer] for columns in ((0, 2), (2, 4))]
    held = [half[tensor][first:last] for first, last in ((0, 4), (4, 8)) for _ in range(2) for tensor in range(2)]
    needed = [
        half[tensor][first:last]
        for first, last, replicas in ((0, 3, 2), (3, 8, 3))
        for _ in range(replicas)
        for tensor in range(2)
    ]
    found = transfers(held, needed, [*range(8), None, None])
    assert moved(found) == 7 * ROWS * COLUMNS
    assert sum(one.region.size for one in found) == 21 * ROWS * COLUMNS
    # Replicas take turns in sending.
    sent = Counter({one.source: 0 for one in found})
    for one in found:
        sent[one.source] += 0 if one.stays else one.region.size
    assert max(sent[rank] for rank in range(4, 8)) <= 3 * ROWS * COLUMNS // 2


def test_what_nobody_has_is_named() -> None:
    with pytest.raises(InputError, match="rows 3 to 6, columns 0 to 4 of a are with no rank") as caught:
        transfers([[region("a", 0, 3)]], [[region("a", 0, 6)]], [0])
    assert [issue.pointer for issue in caught.value.issues] == ["/needed/0/0"]
    with pytest.raises(InputError, match="has no element"):
        region("a", 3, 3)


@given(st.integers(0, 5), st.integers(1, 7), st.integers(0, 5), st.integers(1, 7), st.integers(1, 40))
def test_chunks_cover_a_region_once(top: int, height: int, left: int, width: int, max_size: int) -> None:
    whole = region("a", top, top + height, left, left + width)
    parts = list(chunks(whole, max_size))
    assert max(part.size for part in parts) <= max_size
    assert Counter(element for part in parts for element in elements(part)) == Counter(elements(whole))


def test_who_is_on_the_same_host_sends_first() -> None:
    """Ranks 0 and 1 on one host, 2 on another; all have everything, and so does nobody in the places of the next."""
    whole = [region("a", 0, ROWS)]
    found = transfers([whole] * 3, [whole] * 4, [None] * 4, [{2}, {0, 1}, {0, 1}, set()])
    assert [one.source for one in found] == [2, 0, 1, 0]


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from((2, 4, 8))), max_size=8),
    max_bytes=st.integers(16, 300),
)
def test_batches_have_every_element_once_and_are_not_larger(sizes: list[tuple[int, int, int]], max_bytes: int) -> None:
    wanted = [(region(f"t{k}", 0, rows, 0, columns), num_bytes) for k, (rows, columns, num_bytes) in enumerate(sizes)]
    element_bytes = {one.tensor: num_bytes for one, num_bytes in wanted}
    found = list(batches(wanted, max_bytes))
    came = Counter(element for batch in found for part, _ in batch for element in elements(part))
    assert came == Counter(element for one, _ in wanted for element in elements(one))
    for batch in found:
        end = 0
        for part, at in batch:
            assert at >= end
            assert at % 16 == 0
            end = at + part.size * element_bytes[part.tensor]
        assert end <= max_bytes


def test_twice_the_layers_cost_twice_the_time() -> None:
    def cost(num_layers: int) -> int:
        before, after = layout([(num_layers, 2, 2), (num_layers, 2, 2)]), layout([(2 * num_layers, 3, 2)])
        return work(lambda: transfers(before, after, [*range(6)]))

    assert cost(80) <= 2.3 * cost(40)


def test_twice_the_replicas_of_optimiser_states_cost_twice_the_time() -> None:
    """In ZeRO-1 a replica has some of the layers, all of their state."""

    def cost(num_ranks: int) -> int:
        held = [[region(f"layer{2 * rank + k}", 0, ROWS) for k in range(2)] for rank in range(num_ranks)]
        needed = [held[rank // 2][rank % 2 :][:1] for rank in range(2 * num_ranks)]
        near = [set(range(rank // 2, rank // 2 + 1)) for rank in range(2 * num_ranks)]
        return work(lambda: transfers(held, needed, [None] * (2 * num_ranks), near))

    assert cost(80) <= 2.3 * cost(40)
