"""Arnold's communication matrix as in the paper's Fig. 12: rows are PP groups, columns DP groups, one cell a node.

The colour is the node's minipod, the number its rank among the hosts.
"""

import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.figures.layout import natural_key
from api.figures.legend import Entry, Legend, lay_out_legend
from api.figures.style import (
    FAINT_INK,
    INK,
    LINE_PT,
    SMALL_SIZE,
    TEXT_SIZE,
    Fill,
    Point,
    add_polygons,
    fill,
    fitted,
    printable,
    rectangle,
    text_width,
    write,
)
from models.plan import PretrainingPlacement
from models.wording import counted

_LARGEST_CELL = (30.0, 20.0)
_SMALLEST_TEXT = 4.5
_MAX_LEGEND_ROWS = 8
_GAP = 8.0
_MIN_WIDTH = 220.0
_USUAL_WIDTH = 260.0
_MAX_WIDTH = 460.0
_SOURCE_CHARACTERS = 56
_TABLE_LINES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPanel:
    """The matrix, the minipods' legend and both spreads, ready to draw within `width` x `height`."""

    placement: PretrainingPlacement
    fills: Mapping[str, Fill]
    cell_width: float
    cell_height: float
    margin_left: float
    source: tuple[str, ...]
    legend: Legend
    width: float
    height: float

    def draw(self, axes: Any) -> None:
        """Draw on axes whose data units are points, y downwards."""
        left, top = self.margin_left, 2 * LINE_PT
        num_rows, num_columns = len(self.placement.cells), len(self.placement.cells[0])
        self._draw_cells(axes, left, top)
        write(axes, 0.0, 0.5 * LINE_PT, "rows: PP groups, columns: DP groups (pipeline stages)", SMALL_SIZE)
        for column in _ticks(num_columns, self.cell_width, 14.0):
            x = left + (column + 0.5) * self.cell_width
            write(axes, x, 1.5 * LINE_PT, str(column), SMALL_SIZE, ha="center", color=FAINT_INK)
        for row in _ticks(num_rows, self.cell_height, 9.0):
            y = top + (row + 0.5) * self.cell_height
            write(axes, left - 4.0, y, str(row), SMALL_SIZE, ha="right", color=FAINT_INK)
        y = top + num_rows * self.cell_height + _GAP
        self._draw_spreads(axes, y)
        self.legend.draw(axes, 0.0, y + (_TABLE_LINES + len(self.source)) * LINE_PT + _GAP, "minipods")

    def _draw_cells(self, axes: Any, left: float, top: float) -> None:
        """One path per minipod, and the ranks while they fit."""
        rank = {node: k for k, node in enumerate(self.placement.hosts)}
        wide, high = self.cell_width, self.cell_height
        size = min(TEXT_SIZE, 0.68 * high, TEXT_SIZE * 0.86 * wide / text_width(str(len(rank) - 1), TEXT_SIZE))
        members: dict[str, list[Point]] = {minipod: [] for minipod in self.fills}
        for i, row in enumerate(self.placement.minipods):
            for j, minipod in enumerate(row):
                x, y = left + j * wide, top + i * high
                members[minipod].append((x, y))
                if size >= _SMALLEST_TEXT:
                    number = str(rank[self.placement.cells[i][j]])
                    ink = self.fills[minipod].ink
                    write(axes, x + wide / 2, y + high / 2, number, size, ha="center", color=ink)
        line = 0.05 * high if high > _SMALLEST_TEXT else 0.0
        for k, (minipod, corners) in enumerate(members.items()):
            fill_ = self.fills[minipod]
            add_polygons(
                axes,
                f"matrix-minipod-{k}",
                [rectangle(x, y, wide, high) for x, y in corners],
                facecolor=fill_.colour,
                edgecolor="#FFFFFF",
                linewidth=line,
                hatch=fill_.hatch or None,
            )

    def _draw_spreads(self, axes: Any, y: float) -> None:
        placement = self.placement
        columns = (0.0, 90.0, 150.0)
        lines = (
            ("largest spread", "minipods", "distance (Eq. 3)"),
            ("DP groups", str(placement.minipod_spread.dp), str(placement.distance.dp)),
            ("PP groups", str(placement.minipod_spread.pp), str(placement.distance.pp)),
        )
        for k, line in enumerate(lines):
            for x, words in zip(columns, line, strict=True):
                colour = FAINT_INK if k == 0 else INK
                write(axes, x, y + (k + 0.5) * LINE_PT, words, SMALL_SIZE if k == 0 else TEXT_SIZE, color=colour)
        weights = f"alpha = {placement.alpha:.3g} (DP groups), beta = {placement.beta:.3g} (PP groups)"
        write(axes, 0.0, y + 3.5 * LINE_PT, weights)
        for k, part in enumerate(self.source):
            write(axes, 0.0, y + (4.5 + k) * LINE_PT, fitted(part, SMALL_SIZE, self.width), SMALL_SIZE, color=FAINT_INK)


def matrix_panel(placement: PretrainingPlacement, max_height: float) -> MatrixPanel:
    """Size the matrix so that it ends within `max_height`."""
    num_rows, num_columns = len(placement.cells), len(placement.cells[0])
    margin_left = 6.0 + text_width(str(num_rows - 1), SMALL_SIZE)
    nodes = Counter(minipod for row in placement.minipods for minipod in row)
    fills = minipod_fills(placement)
    entries = [Entry(fill=fills[minipod], label=f"{minipod}  ({counted(nodes[minipod], 'node')})") for minipod in fills]
    source = tuple(textwrap.wrap(f"alpha: {printable(placement.affinity_source)}", _SOURCE_CHARACTERS))
    fixed = (2 + _TABLE_LINES + len(source) + _MAX_LEGEND_ROWS) * LINE_PT + 2 * _GAP
    cell_height = min(_LARGEST_CELL[1], (max_height - fixed) / num_rows)
    cell_width = min(_LARGEST_CELL[0], max(cell_height, _USUAL_WIDTH / num_columns), _MAX_WIDTH / num_columns)
    width = max(_MIN_WIDTH, margin_left + num_columns * cell_width)
    legend = lay_out_legend(entries, width, _MAX_LEGEND_ROWS)
    return MatrixPanel(
        placement=placement,
        fills=fills,
        cell_width=cell_width,
        cell_height=cell_height,
        margin_left=margin_left,
        source=source,
        legend=legend,
        width=width,
        height=fixed - (_MAX_LEGEND_ROWS - legend.num_rows) * LINE_PT + num_rows * cell_height,
    )


def minipod_fills(placement: PretrainingPlacement) -> dict[str, Fill]:
    """Fill per used minipod, in the natural order of their names."""
    used = sorted({minipod for row in placement.minipods for minipod in row}, key=natural_key)
    return {minipod: fill(k) for k, minipod in enumerate(used)}


def _ticks(count: int, length: float, room: float) -> range:
    """Indices to label: all, or every 2nd, 5th, 10th, ... so that labels are `room` apart."""
    steps = (factor * 10**power for power in range(6) for factor in (1, 2, 5))
    return range(0, count, next(step for step in steps if step * length >= room))
