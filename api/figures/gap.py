"""The gap between incumbent and bound over the time of a solve, a line per solver."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from api.common.wording import percent
from api.figures.style import FAINT_INK, SMALL_SIZE, Point, draw_frame, write
from api.schemas.comparison import HistoryPointDoc, SolverRunDoc

# A gap below this is rounding of the solver.
_NO_GAP = 1e-9
_LEAST_DECADE = -7
_MAX_TICKS = 6
# Distance of lines that would lie on each other where nothing is known yet, in decades.
_APART = 0.07


@dataclass(frozen=True, slots=True, kw_only=True)
class GapLine:
    """A solver's line: gap after `times_ms`, each until the next; None where incumbent or bound was not known yet."""

    colour: str
    times_ms: tuple[float, ...]
    gaps: tuple[float | None, ...]
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GapScale:
    """Height of a gap on the page: its decade; "no gap" and "not known yet" have places of their own."""

    lowest: int
    highest: int

    @property
    def zero(self) -> float:
        """Where "no gap" is."""
        return self.lowest - 1.0

    @property
    def unknown(self) -> float:
        """Where "not known yet" is."""
        return self.highest + 1.0

    def height(self, gap: float | None) -> float:
        """Where `gap` is."""
        if gap is None:
            return self.unknown
        return self.zero if gap < _NO_GAP else max(math.log10(gap), self.lowest - 0.5)


def gap_line(run: SolverRunDoc, colour: str) -> GapLine:
    """The line of a run."""
    return GapLine(
        colour=colour,
        times_ms=tuple(point.elapsed_ms for point in run.history),
        gaps=tuple(_gap(point) for point in run.history),
        proven=run.proven_optimal,
    )


def gap_scale(lines: Sequence[GapLine], asked: float) -> GapScale:
    """Decades that hold all gaps and the one that was asked for."""
    gaps = [gap for line in lines for gap in (*line.gaps, asked) if gap is not None and gap >= _NO_GAP]
    if not gaps:
        return GapScale(lowest=-4, highest=0)
    decades = [math.log10(gap) for gap in gaps]
    lowest = max(math.floor(min(decades)), _LEAST_DECADE)
    return GapScale(lowest=lowest, highest=max(math.ceil(max(decades)), lowest + 1))


def draw_gaps(figure: Figure, place: tuple[float, float, float, float], lines: Sequence[GapLine], asked: float) -> None:
    """Draw the lines into the rectangle `place` (left, bottom, width, height) of the page."""
    scale = gap_scale(lines, asked)
    times = [time for line in lines for time in line.times_ms if time > 0]
    start_ms, end_ms = (min(times) / 2, max(times) * 1.6) if times else (1.0, 10.0)
    axes = figure.add_axes(place, xscale="log", xlim=(start_ms, end_ms), ylim=(scale.zero - 0.4, scale.unknown + 0.6))
    _draw_grid(axes, scale, asked, (start_ms, end_ms))
    for k, line in enumerate(lines):
        _draw_line(axes, line, scale, start_ms, _APART * (k - (len(lines) - 1) / 2))


def _draw_grid(axes: Any, scale: GapScale, asked: float, span_ms: Point) -> None:
    step = -(-(scale.highest - scale.lowest + 1) // _MAX_TICKS)
    decades = list(range(scale.highest, scale.lowest - 1, -step))
    labels = ["not known yet", *(_decade_words(decade) for decade in decades), "0 %"]
    axes.set_yticks([scale.unknown, *decades, scale.zero], labels)
    ticks = _time_ticks(span_ms)
    axes.set_xticks(ticks, [f"{tick:g} ms" if tick < 1e3 else f"{tick / 1e3:g} s" for tick in ticks])
    axes.minorticks_off()
    draw_frame(axes, "since the start of the solve · circle: proven, cross: not proven")
    if asked >= _NO_GAP:
        height = scale.height(asked)
        axes.axhline(height, color=FAINT_INK, linewidth=0.6, linestyle=(0, (4, 3)))
        words = f"asked for: {percent(asked)}"
        white = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
        write(axes, span_ms[0] * 1.05, height + 0.14, words, SMALL_SIZE, color=FAINT_INK, va="bottom", bbox=white)


def _draw_line(axes: Any, line: GapLine, scale: GapScale, start_ms: float, shift: float) -> None:
    """Steps down to the last gap, dotted until incumbent and bound are both known; the mark says how it ended."""
    if not line.times_ms:
        return
    heights = [scale.height(gap) + (shift if gap is None else 0.0) for gap in line.gaps]
    first = next((k for k, gap in enumerate(line.gaps) if gap is not None), len(line.gaps))
    times = [max(time, start_ms) for time in line.times_ms]
    unknown = scale.unknown + shift
    until = times[first] if first < len(times) else times[-1]
    axes.plot([start_ms, until], [unknown, unknown], color=line.colour, linewidth=1.4, linestyle=(0, (1, 1.5)))
    known = ([until, *times[first:]], [unknown, *heights[first:]])
    if first < len(times):
        axes.step(*known, where="post", color=line.colour, linewidth=1.6)
    axes.plot(
        times[-1:],
        heights[-1:],
        marker="o" if line.proven else "X",
        markersize=6.5,
        color=line.colour,
        markeredgecolor="white",
        markeredgewidth=0.6,
        clip_on=False,
    )


def _gap(point: HistoryPointDoc) -> float | None:
    if point.objective is None or point.bound is None:
        return None
    return abs(point.objective - point.bound) / max(abs(point.objective), 1e-10)


def _decade_words(decade: int) -> str:
    """`100 %`, `0.01 %`."""
    power = decade + 2
    return f"{10.0**power:.{max(0, -power)}f} %"


def _time_ticks(span_ms: Point) -> list[float]:
    """Powers of ten within the span, or 1-2-5 steps where it is short."""
    low, high = (math.floor(math.log10(time_ms)) for time_ms in span_ms)
    factors = (1, 2, 5) if high - low < 2 else (1,)
    ticks = [factor * 10.0**power for power in range(low, high + 1) for factor in factors]
    return [tick for tick in ticks if span_ms[0] <= tick <= span_ms[1]]
