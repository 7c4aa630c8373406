"""Intervals of a rank's flat parameters as boxes of the whole ones, which is what checkpoints hold."""

from collections.abc import Iterator
from typing import NamedTuple

from executor.trainer.native.flat import Entry


class Box(NamedTuple):
    """A rectangle of a whole parameter, and where its first element is in the rank's part; rows lie one after another.

    A parameter of more than two dimensions has all but the first in its columns, a vector has one column.
    """

    row: int
    column: int
    num_rows: int
    num_columns: int
    start: int


def whole_shape(entry: Entry, tensor_degree: int) -> tuple[int, int]:
    """Rows and columns over all tensor ranks, without padding."""
    rows, columns = _own_shape(entry)
    if entry.axis == 0:
        rows *= tensor_degree
    return entry.rows or rows, columns * tensor_degree if entry.axis == 1 else columns


def boxes(entry: Entry, start: int, end: int, *, tensor_rank: int) -> Iterator[Box]:
    """Elements `start` to `end` of a rank's part: of the first row, of whole rows, of the last one; no padding."""
    rows, columns = _own_shape(entry)
    row = tensor_rank * rows if entry.axis == 0 else entry.first_row
    column = tensor_rank * columns if entry.axis == 1 else 0
    if entry.rows is not None:
        end = min(end, (entry.rows - row) * columns)
    while start < end:
        skipped = start % columns
        whole = (end - start) // columns if not skipped else 0
        width = columns if whole else min(columns - skipped, end - start)
        yield Box(row + start // columns, column + skipped, max(1, whole), width, start)
        start += max(1, whole) * width


def _own_shape(entry: Entry) -> tuple[int, int]:
    rows = entry.shape[0] if entry.shape else 1
    return rows, entry.size // rows
