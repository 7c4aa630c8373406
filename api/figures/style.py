"""Colours, type sizes and text measures that every picture shares. Lengths are points (1/72 inch)."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import matplotlib as mpl
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.textpath import TextToPath

# Okabe and Ito's palette without black, then four of Paul Tol's "muted" scheme that stay apart from it. All
# eleven can be told apart with any of the common kinds of colour blindness.
_BASE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#F0E442",
    "#332288",
    "#882255",
    "#999933",
    "#A6761D",
)
# More groups than colours: first tints and shades, then the same again under a hatch.
_BLENDS = ((0.0, 1.0), (0.5, 1.0), (0.4, 0.0))
_HATCHES = ("", "////", "\\\\\\\\", "||||", "----")

FREE = "#E9E9E9"
IN_USE = "#6F6F6F"
OUT_OF_SERVICE = "#B5B5B5"
INK = "#1A1A1A"
FAINT_INK = "#666666"
FRAME = "#8C8C8C"

TITLE_SIZE = 11.0
TEXT_SIZE = 8.0
SMALL_SIZE = 7.0
LINE_PT = 12.0

_RC = {
    "font.family": ["DejaVu Sans"],
    # Text stays text: it can be searched and copied. DejaVu Sans is wider than the usual substitutes, so what
    # is laid out with its measures does not overlap with theirs.
    "svg.fonttype": "none",
    "svg.hashsalt": "stowplan",
    "hatch.linewidth": 0.5,
    "path.simplify": False,
}
_text_to_path = TextToPath()

Point = tuple[float, float]


@contextmanager
def drawing_style() -> Iterator[None]:
    """Settings under which every picture is drawn and saved."""
    with mpl.rc_context(_RC):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """How the cells of one group are filled; `ink` is readable on it."""

    colour: str
    hatch: str
    ink: str


def fill(index: int) -> Fill:
    """Fill of the `index`-th group; the first 165 differ from each other."""
    index, base = divmod(index, len(_BASE))
    index, blend = divmod(index, len(_BLENDS))
    share, target = _BLENDS[blend]
    rgb = [(1 - share) * int(_BASE[base][k : k + 2], 16) / 255 + share * target for k in (1, 3, 5)]
    colour = "#" + "".join(f"{round(255 * value):02X}" for value in rgb)
    return Fill(colour=colour, hatch=_HATCHES[index % len(_HATCHES)], ink="#FFFFFF" if _luminance(rgb) < 0.36 else INK)


def _luminance(rgb: Sequence[float]) -> float:
    """Relative luminance (WCAG 2) of sRGB components in [0, 1]."""
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@lru_cache(maxsize=8192)
def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width of one line of `text` at font size `size`."""
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    width, _, _ = _text_to_path.get_text_width_height_descent(printable(text), font, ismath=False)
    return math.ceil(100 * float(width)) / 100


def printable(text: str) -> str:
    """`text` with everything replaced that XML or a single line cannot hold."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def fitted(text: str, size: float, width: float, bold: bool = False) -> str:
    """`text`, shortened with an ellipsis until it is at most `width` wide; empty when nothing useful fits."""
    text = printable(text)
    if text_width(text, size, bold) <= width:
        return text

    def shortened(length: int) -> str:
        return text[:length].rstrip() + "…"

    longest = bisect_right(range(len(text)), width, key=lambda length: text_width(shortened(length), size, bold)) - 1
    return shortened(longest) if longest > 1 else ""


def wrapped(text: str, size: float, width: float, bold: bool = False, most: int = 4) -> tuple[str, ...]:
    """Lines of at most `width`, broken at spaces; what does not fit `most` lines is cut at the end of the last one."""
    lines, rest = [""], printable(text).split(" ")
    while rest:
        longer = f"{lines[-1]} {rest[0]}".lstrip()
        if lines[-1] and text_width(longer, size, bold) > width:
            if len(lines) == most:
                return (*lines[:-1], fitted(" ".join([lines[-1], *rest]), size, width, bold))
            lines.append("")
            continue
        lines[-1] = longer
        rest.pop(0)
    return tuple(fitted(line, size, width, bold) for line in lines)


def write(axes: Any, x: float, y: float, text: str, size: float = TEXT_SIZE, **settings: Any) -> None:
    """Put `text` at (x, y); by default its left end on the vertical middle of the line."""
    axes.text(
        x,
        y,
        printable(text),
        **{"fontsize": size, "color": INK, "ha": "left", "va": "center_baseline", "parse_math": False, **settings},
    )


def write_over(axes: Any, x: float, y: float, text: str, size: float, fill_: Fill, band: float = 0.0) -> None:
    """Put `text` centred at (x, y) on cells filled with `fill_`, over a patch that hides gaps and hatches.

    The patch is at least `band` wide.
    """
    width, height = max(band, text_width(text, size) + 0.4 * size), 1.3 * size
    corner = (x - width / 2, y - height / 2)
    axes.add_artist(Rectangle(corner, width, height, facecolor=fill_.colour, edgecolor="none", clip_on=False))
    write(axes, x, y, text, size, ha="center", color=fill_.ink)


def rectangle(x: float, y: float, width: float, height: float) -> list[Point]:
    """Corners, from the upper left one."""
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]


def add_polygons(axes: Any, gid: str, polygons: Sequence[Sequence[Point]], **settings: Any) -> None:
    """Draw polygons as one path: one element `gid` of an SVG, small however many there are."""
    if polygons:
        path = Path.make_compound_path(*(Path([*corners, corners[0]], closed=True) for corners in polygons))
        # Not `add_patch`, which follows every corner to find limits: ours are set.
        axes.add_artist(PathPatch(path, gid=gid, clip_on=False, **settings))


def draw_frame(axes: Any, x: str, y: str = "") -> None:
    """Ticks, a faint grid, and lines on the left and below, with what they measure."""
    axes.tick_params(labelsize=SMALL_SIZE, length=2.5, color=FRAME, labelcolor=INK)
    axes.grid(visible=True, color="#E4E4E4", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(color=FRAME, linewidth=0.6)
    axes.set_xlabel(printable(x), fontsize=TEXT_SIZE, color=FAINT_INK, labelpad=2, parse_math=False)
    axes.set_ylabel(printable(y), fontsize=TEXT_SIZE, color=FAINT_INK, labelpad=2, parse_math=False)
