"""Several solvers on one instance: time by phase as stacked bars, and the gap over time.

Each solver has a colour, that of its solve phase and of its line; the other phases are greys.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from api.common.wording import duration, ending_words, memory, percent
from api.figures.gap import draw_gaps, gap_line
from api.figures.head import Head
from api.figures.legend import Entry, state_line, swatch
from api.figures.render import page_axes, save
from api.figures.request import ComparisonFigure
from api.figures.style import (
    FAINT_INK,
    INK,
    LINE_PT,
    SMALL_SIZE,
    TEXT_SIZE,
    Fill,
    drawing_style,
    fill,
    fitted,
    text_width,
    write,
)
from api.schemas.comparison import ComparisonResultDoc, SolverRunDoc
from models.wording import counted
from solver.monitor import SolveMonitor

_MARGIN = 14.0
_BARS_WIDTH = 430.0
_GAPS_WIDTH = 360.0
_PANEL_GAP = 34.0
_TICK_WIDTH = 52.0
_AXIS_HEIGHT = 30.0
_BELOW_HEAD = 1.6 * LINE_PT
_ROW = 40.0
_BAR = 14.0
_NAME_LEFT = 14.0
_LEAST_ROWS = 4
_ERROR_INK = "#B00020"
_SOLVE = "solve"
_PHASE_FILLS = {
    "validate": Fill(colour="#DDDDDD", hatch="", ink=INK),
    "performance": Fill(colour="#BDBDBD", hatch="", ink=INK),
    "build": Fill(colour="#8F8F8F", hatch="", ink="#FFFFFF"),
    "place": Fill(colour="#5F5F5F", hatch="", ink="#FFFFFF"),
    "verify": Fill(colour="#2E2E2E", hatch="", ink="#FFFFFF"),
}
_OTHER_PHASE = Fill(colour="#FFFFFF", hatch="//////", ink=FAINT_INK)


def figure_task(request: ComparisonFigure, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's convention
    """Entry point of workers."""
    return render(request)


def render(request: ComparisonFigure) -> bytes:
    """Draw the comparison; the same request gives the same bytes."""
    with drawing_style():
        return save(_compose(request.result), request.format)


def _compose(result: ComparisonResultDoc) -> Figure:
    body = max(len(result.runs), _LEAST_ROWS) * _ROW + 2 * LINE_PT
    inner = _BARS_WIDTH + _PANEL_GAP + _GAPS_WIDTH
    head = _head(result, inner)
    top = _MARGIN + head.height + _BELOW_HEAD
    width, height = inner + 2 * _MARGIN, top + body + _MARGIN
    figure = Figure(figsize=(width / 72.0, height / 72.0), facecolor="white")
    head.draw(page_axes(figure, _MARGIN, _MARGIN, inner, head.height))
    _draw_bars(page_axes(figure, _MARGIN, top, _BARS_WIDTH, body), result.runs)
    left = _MARGIN + _BARS_WIDTH + _PANEL_GAP
    title = page_axes(figure, left, top, _GAPS_WIDTH, LINE_PT)
    write(title, 0.0, 0.5 * LINE_PT, "gap between plan and bound", fontweight="bold")
    chart = (
        (left + _TICK_WIDTH) / width,
        (_MARGIN + _AXIS_HEIGHT) / height,
        (_GAPS_WIDTH - _TICK_WIDTH) / width,
        (body - _AXIS_HEIGHT - 1.5 * LINE_PT) / height,
    )
    lines = [gap_line(run, fill(k).colour) for k, run in enumerate(result.runs)]
    draw_gaps(figure, chart, lines, result.options.relative_gap)
    return figure


def _head(result: ComparisonResultDoc, width: float) -> Head:
    size, options, agreement = result.instance, result.options, result.agreement
    title = f"{result.policy}: {counted(len(result.solvers), 'solver')} on one instance"
    instance = ", ".join(
        counted(count, noun)
        for count, noun in ((size.num_nodes, "node"), (size.num_gpus, "GPU"), (size.num_jobs, "job"))
    )
    limits = (
        f"time limit {options.time_limit_s:g} s, gap {percent(options.relative_gap)}, "
        f"{counted(options.threads, 'thread')}, seed {options.seed}"
    )
    about = f"{instance} · {limits}"
    if agreement is None:
        return Head.of(width, title, about)
    words = "; ".join([agreement.statement, *agreement.errors])
    return Head.of(width, title, about, (words, _ERROR_INK if agreement.errors else FAINT_INK))


def _draw_bars(axes: Any, runs: Sequence[SolverRunDoc]) -> None:
    """A row per solver: name, what answered, and its bar."""
    write(axes, 0.0, 0.5 * LINE_PT, "time by phase", fontweight="bold")
    longest = max((sum(run.phases_ms.values()) for run in runs), default=0.0)
    room = _BARS_WIDTH - max((text_width(duration(run.total_ms), TEXT_SIZE) for run in runs), default=0.0) - 6.0
    y = 1.6 * LINE_PT
    for k, run in enumerate(runs):
        _draw_row(axes, y, run, fill(k), room / longest if longest else 0.0)
        y += _ROW
    known = {name for run in runs for name in run.phases_ms} - {_SOLVE}
    greys = [Entry(fill=_PHASE_FILLS[name], label=name) for name in _PHASE_FILLS if name in known]
    others = [Entry(fill=_OTHER_PHASE, label=name) for name in sorted(known - set(_PHASE_FILLS))]
    write(axes, 0.0, y + 0.5 * LINE_PT, "coloured: solve", color=FAINT_INK)
    state_line(axes, text_width("coloured: solve", TEXT_SIZE) + 16.0, y + 0.5 * LINE_PT, [*greys, *others])


def _draw_row(axes: Any, y: float, run: SolverRunDoc, colour: Fill, points_per_ms: float) -> None:
    middle = y + 0.5 * LINE_PT
    swatch(axes, 0.0, middle, colour)
    write(axes, _NAME_LEFT, middle, run.solver, fontweight="bold")
    left = _NAME_LEFT + text_width(run.solver, TEXT_SIZE, bold=True) + 6.0
    write(axes, left, middle, fitted(_about(run), SMALL_SIZE, _BARS_WIDTH - left), SMALL_SIZE, color=FAINT_INK)
    x, top = 0.0, y + LINE_PT + 1.0
    for name, time_ms in run.phases_ms.items():
        filled = colour if name == _SOLVE else _PHASE_FILLS.get(name, _OTHER_PHASE)
        width = time_ms * points_per_ms
        axes.add_patch(
            Rectangle((x, top), width, _BAR, facecolor=filled.colour, hatch=filled.hatch or None, linewidth=0)
        )
        x += width
    if run.total_ms is not None:
        write(axes, x + 4.0, top + _BAR / 2, duration(run.total_ms))


def _about(run: SolverRunDoc) -> str:
    """What answered, and how well."""
    if run.failure is not None:
        return f"{run.failure.code}: {run.failure.detail}"
    words = []
    if run.solver_used is not None and run.solver_used.name != run.solver:
        words.append(f"by {run.solver_used.name}")
    if run.termination is not None:
        words.append(ending_words(run.termination.reason, run.termination.limit))
    if run.relative_gap is not None:
        words.append(f"gap {percent(run.relative_gap)}")
    return " · ".join([*words, f"CPU {duration(run.cpu_ms)}", f"peak {memory(run.peak_memory_bytes)}"])
