"""Boxes cover a part exactly, in its order, whatever the shards."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.trainer.native.boxes import Box, boxes, whole_shape
from executor.trainer.native.flat import Entry


def _entry(shape: tuple[int, ...], axis: int | None = None, rows: int | None = None) -> Entry:
    return Entry(name="w", start=0, shape=shape, axis=axis, rows=rows, is_tied=False)


def test_an_interval_begins_and_ends_inside_rows() -> None:
    """A part of 4 x 3, the second of two beside each other; elements 2 to 10 of it."""
    found = list(boxes(_entry((4, 3), axis=1), 2, 10, tensor_rank=1))
    assert found == [Box(0, 5, 1, 1, 2), Box(1, 3, 2, 3, 3), Box(3, 3, 1, 1, 9)]


@given(
    shape=st.sampled_from([(5,), (1,), (4, 3), (3, 1), (2, 3, 2)]),
    axis=st.sampled_from([None, 0, 1]),
    degree=st.integers(1, 3),
    cut=st.integers(0, 12),
    padding=st.integers(0, 2),
)
@settings(max_examples=100, deadline=None)
def test_parts_and_shards_make_the_whole(
    shape: tuple[int, ...], axis: int | None, degree: int, cut: int, padding: int
) -> None:
    if axis == 1 and len(shape) == 1:
        axis = None
    rows = max(1, shape[0] * degree - padding) if axis == 0 else None
    entry = _entry(shape, axis, rows)
    whole = np.zeros(whole_shape(entry, degree))
    ranks = range(degree if axis is not None else 1)
    for rank in ranks:
        for start, end in ((0, min(cut, entry.size)), (min(cut, entry.size), entry.size)):
            for box in boxes(entry, start, end, tensor_rank=rank):
                assert start <= box.start < end
                whole[box.row : box.row + box.num_rows, box.column : box.column + box.num_columns] += 1
    assert (whole == 1).all()


@pytest.mark.parametrize(("rank", "rows"), [(0, 3), (1, 2)])
def test_padding_is_not_kept(rank: int, rows: int) -> None:
    (box,) = boxes(_entry((3, 2), axis=0, rows=5), 0, 6, tensor_rank=rank)
    assert (box.row, box.num_rows) == (3 * rank, rows)
