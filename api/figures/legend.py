"""Legends: a grid of swatches with words, cut off with "+n more" where the page ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.patches import Rectangle

from api.figures.style import FAINT_INK, INK, LINE_PT, TEXT_SIZE, Fill, fitted, text_width, write

_SWATCH = 9.0
_GAP = 5.0
_COLUMN_GAP = 14.0
_ROUNDING = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a legend; `key` is what the picture writes on the group's cells, `size` how many there are."""

    fill: Fill
    label: str
    key: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend:
    """Entries in columns, read column by column; `num_left_out` could not be shown."""

    entries: tuple[Entry, ...]
    num_left_out: int
    num_rows: int
    column_width: float
    key_width: float

    @property
    def height(self) -> float:
        """What it takes on the page."""
        return self.num_rows * LINE_PT

    def draw(self, axes: Any, x: float, y: float, what: str) -> None:
        """Draw with the upper left corner at (x, y); `what` names the entries (`jobs`)."""
        for k, entry in enumerate(self.entries):
            column, row = divmod(k, self.num_rows)
            left, middle = x + column * (self.column_width + _COLUMN_GAP), y + (row + 0.5) * LINE_PT
            swatch(axes, left, middle, entry.fill)
            x_label = left + _SWATCH + _GAP + self.key_width
            if entry.key:
                write(axes, x_label - _GAP, middle, entry.key, color=FAINT_INK, ha="right")
            room = self.column_width - _SWATCH - _GAP - self.key_width
            write(axes, x_label, middle, fitted(entry.label, TEXT_SIZE, room + _ROUNDING))
        if self.num_left_out:
            column, row = divmod(len(self.entries), self.num_rows)
            text = f"+{self.num_left_out} more {what}"
            left = x + column * (self.column_width + _COLUMN_GAP)
            write(axes, left, y + (row + 0.5) * LINE_PT, text, color=FAINT_INK)


def swatch(axes: Any, x: float, middle: float, fill: Fill) -> None:
    """A filled square with its left edge at `x`, centred on `middle`."""
    axes.add_patch(
        Rectangle(
            (x, middle - _SWATCH / 2),
            _SWATCH,
            _SWATCH,
            facecolor=fill.colour,
            hatch=fill.hatch or None,
            edgecolor=fill.ink if fill.hatch else "none",
            linewidth=0,
            clip_on=False,
        )
    )


def lay_out_legend(entries: Sequence[Entry], width: float, max_rows: int) -> Legend:
    """Arrange the entries within `width` and `max_rows`; the smallest groups are left out first."""
    widest = max((text_width(entry.label, TEXT_SIZE) for entry in entries), default=0.0)
    key_width = max((text_width(entry.key, TEXT_SIZE) + _GAP for entry in entries if entry.key), default=0.0)
    column_width = min(width, _SWATCH + _GAP + key_width + widest)
    columns = max(1, int((width + _COLUMN_GAP) / (column_width + _COLUMN_GAP)))
    rows = min(max_rows, -(-len(entries) // columns))
    places = rows * columns
    shown = len(entries) if len(entries) <= places else places - 1
    largest = sorted(sorted(range(len(entries)), key=lambda k: -entries[k].size)[:shown])
    return Legend(
        entries=tuple(entries[k] for k in largest),
        num_left_out=len(entries) - shown,
        num_rows=rows,
        column_width=column_width,
        key_width=key_width,
    )


def state_line(axes: Any, x: float, middle: float, entries: Sequence[Entry]) -> None:
    """Entries side by side on one line."""
    for entry in entries:
        swatch(axes, x, middle, entry.fill)
        write(axes, x + _SWATCH + _GAP, middle, entry.label, color=INK)
        x += _SWATCH + _GAP + text_width(entry.label, TEXT_SIZE) + _COLUMN_GAP
