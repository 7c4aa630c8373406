"""Constructive solutions of Eq. 2: the matrix is cut into bands, and every band has minipods of its own.

A band of w columns takes the R rows in pieces of w cells. Two kinds:
- whole: each piece is in one minipod; minipod j has room for floor(f_j / w) pieces. With p bands of at most q
  minipods, a row touches p minipods and a column q: a block structure.
- cut: minipods are filled to the last node, so that nothing is wasted, and a piece is cut where one ends and the next
  begins. The pieces of a row are cut in at most one band: every band has its own order of the rows. Then a row touches
  p + 1 minipods, when no minipod is smaller than a piece.
Bands of rows are the same with rows and columns exchanged.

Minipods are grouped so that the bands that the groups can fill are as wide together as the matrix: starting from
groups of neighbours in size, and from groups of equal load, minipods are exchanged between two groups while that
helps.
"""

from collections.abc import Iterator

import numpy as np

from models.placement.arnold.true_spread.instance import spreads
from stowplan.arrays import FloatVector, IntMatrix, IntVector

_TRIES_PER_GROUP = 8


def banded(
    free: IntVector, row_spread: int, column_spread: int, shape: tuple[int, int], seed: int, *, cut: bool
) -> IntMatrix | None:
    """Labels (`shape`) of a matrix in bands of columns that keeps to both spreads; `cut`: pieces may be cut.

    free: nodes of the minipods (M,), largest first. None proves nothing.
    """
    num_bands = row_spread - 1 if cut else row_spread
    if num_bands < 1:
        return None
    breadth, length = shape
    widths = np.arange(1, length + 1)
    # Rooms are counted in nodes where pieces may be cut, else in pieces.
    rooms = np.repeat(free[:, None], length, axis=1) if cut else free[:, None] // widths
    needs = breadth * widths if cut else np.full(length, breadth)
    rng = np.random.default_rng(seed)
    for groups in _starts(free, num_bands, column_spread):
        if _improve(groups, rooms, column_spread, needs, rng).sum() >= length:
            filled = _widths(np.array([rooms[group].sum(axis=0) for group in groups]), needs)
            labels = _cut_labels(groups, filled, free, shape) if cut else _labels(groups, filled, free, shape)
            if labels is not None and (np.array(spreads(labels)) <= (row_spread, column_spread)).all():
                return labels
    return None


def _starts(free: IntVector, num_bands: int, num_members: int) -> Iterator[list[list[int]]]:
    """Groups of neighbours in size, then groups of equal load."""
    num = min(int(np.count_nonzero(free)), num_bands * num_members)
    yield [part.tolist() for part in np.array_split(np.arange(num), num_bands)]
    groups: list[list[int]] = [[] for _ in range(num_bands)]
    load = np.zeros(num_bands)
    for j in range(num):
        lightest = int(np.argmin(load))
        groups[lightest].append(j)
        load[lightest] += free[j] if len(groups[lightest]) < num_members else np.inf
    yield groups


def _improve(
    groups: list[list[int]], rooms: IntMatrix, num_members: int, needs: IntVector, rng: np.random.Generator
) -> IntVector:
    """Exchange minipods between groups, in place; widths (p,) of the bands that the groups fill then.

    rooms (M, L): what each minipod has for a band of width 1, 2, ... L; needs (L,): what such a band needs.
    """
    pieces = np.array([rooms[group].sum(axis=0) for group in groups])
    length, num = rooms.shape[1], len(groups)
    failed = 0
    while _widths(pieces, needs).sum() < length and failed < _TRIES_PER_GROUP * num and num > 1:
        one, two = rng.choice(num, 2, replace=False).tolist()
        failed = 0 if _exchange(groups, pieces, rooms, (one, two), num_members, needs) else failed + 1
    return _widths(pieces, needs)


def _exchange(
    groups: list[list[int]],
    pieces: IntMatrix,
    rooms: IntMatrix,
    pair: tuple[int, int],
    num_members: int,
    needs: IntVector,
) -> bool:
    """Make the best swap between two groups, or the best move of one minipod; False when none helps."""
    one, two = pair
    gives, takes = np.array(groups[one], dtype=np.int64), np.array(groups[two], dtype=np.int64)
    if not gives.size:
        return False
    # Column 0 moves a minipod and takes nothing back.
    back = np.concatenate([np.zeros((1, rooms.shape[1]), dtype=np.int64), rooms[takes]])
    change = rooms[gives][:, None] - back[None]
    score = _score(pieces[one] - change, needs) + _score(pieces[two] + change, needs)
    if takes.size >= num_members:
        score[:, 0] = -np.inf
    x, y = np.unravel_index(int(np.argmax(score)), score.shape)
    now = float(_score(pieces[one], needs) + _score(pieces[two], needs))
    if score[x, y] <= now + 1e-9:
        return False
    groups[one].remove(int(gives[x]))
    groups[two].append(int(gives[x]))
    if y:
        groups[two].remove(int(takes[y - 1]))
        groups[one].append(int(takes[y - 1]))
    pieces[one] -= change[x, y]
    pieces[two] += change[x, y]
    return True


def _widths(pieces: IntMatrix, needs: IntVector) -> IntVector:
    """Widest band (...,) for which the rooms `pieces` (..., L) meet the `needs` (L,)."""
    widths: IntVector = np.count_nonzero(pieces >= needs, axis=-1)
    return widths


def _score(pieces: IntMatrix, needs: IntVector) -> FloatVector:
    """Width, and how near (below 1) the next wider band is."""
    widths = _widths(pieces, needs)
    following = np.minimum(widths, pieces.shape[-1] - 1)
    rooms = np.take_along_axis(pieces, following[..., None], axis=-1)[..., 0]
    nearness = np.where(widths < pieces.shape[-1], rooms / needs[following], 0.0)
    return np.asarray(widths + nearness, dtype=np.float64)


def _labels(groups: list[list[int]], widths: IntVector, free: IntVector, shape: tuple[int, int]) -> IntMatrix:
    """Fill the bands from the left, the rows of each from its largest minipod on."""
    labels = np.zeros(shape, dtype=np.int64)
    first = 0
    for group, width in zip(groups, widths.tolist(), strict=True):
        width = min(width, shape[1] - first)
        if width:
            members = np.array(sorted(group), dtype=np.int64)
            labels[:, first : first + width] = np.repeat(members, free[members] // width)[: shape[0], None]
            first += width
    return labels


def _cut_labels(
    groups: list[list[int]], widths: IntVector, free: IntVector, shape: tuple[int, int]
) -> IntMatrix | None:
    """Fill the bands node by node, no row being cut in two of them; None when there are too few rows for that."""
    labels = np.zeros(shape, dtype=np.int64)
    first, uncut = 0, np.arange(shape[0])
    for group, width in zip(groups, widths.tolist(), strict=True):
        width = min(width, shape[1] - first)
        if width:
            members = np.array(sorted(group), dtype=np.int64)
            pieces = np.repeat(members, free[members])[: shape[0] * width].reshape(-1, width)
            cuts = np.flatnonzero((pieces != pieces[:, :1]).any(axis=1))
            if cuts.size > uncut.size:
                return None
            rows = np.setdiff1d(np.arange(shape[0]), uncut[: cuts.size])
            labels[uncut[: cuts.size], first : first + width] = pieces[cuts]
            labels[rows, first : first + width] = np.delete(pieces, cuts, axis=0)
            uncut, first = uncut[cuts.size :], first + width
    return labels
