"""Pictures of a result: latency by scale, latency of single cases, gap over time, share of the phases."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from api.figures.style import FAINT_INK, FRAME, INK, SMALL_SIZE, TEXT_SIZE, TITLE_SIZE, drawing_style
from benchmarks.suite import words
from benchmarks.suite.record import RunRecord, SuiteResult
from benchmarks.suite.summary import Spread, Summary, summaries

# Okabe and Ito's palette; a marker of its own for every solver, so that colour is never alone.
_LOOKS: Mapping[str, tuple[str, str]] = {
    "decomposition": ("#0072B2", "o"),
    "exact": ("#0072B2", "o"),
    "highs": ("#D55E00", "s"),
    "scip": ("#009E73", "^"),
    "glpk": ("#CC79A7", "v"),
    "cbc": ("#E69F00", "D"),
    "auto": ("#56B4E9", "P"),
    "portfolio": ("#000000", "X"),
}
_OTHER = ("#6F6F6F", "*")
_PHASES: Mapping[str, str] = {
    "performance": "#E69F00",
    "decide": "#F0E442",
    "build": "#56B4E9",
    "load": "#CC79A7",
    "solve": "#0072B2",
    "place": "#009E73",
    "verify": "#999933",
    "explain": "#6F6F6F",
}
_GAP_FLOOR = 1e-6
_FIRST_S = 1e-4
_PANEL = (3.0, 2.3)
_COLUMNS = 4
_MOST_PANELS = 12
_DPI = 144
_LEAST_SCALES = 3
_TWO_DECADES = 100.0


def write_figures(result: SuiteResult, folder: Path) -> list[Path]:
    """Write every picture for which the result has data, as PNG and SVG; returns the PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawers: Mapping[str, Callable[[SuiteResult, Sequence[Summary]], Figure | None]] = {
        "latency": _latency,
        "cases": _cases,
        "gap": _gaps,
        "phases": _phases,
    }
    written = []
    with drawing_style(), mpl.rc_context({"font.size": TEXT_SIZE, "axes.edgecolor": FRAME, "axes.labelcolor": INK}):
        for problem in dict.fromkeys(case.problem for case in result.cases):
            chosen = [summary for summary in summaries(result) if summary.case.problem == problem]
            for name, draw in drawers.items():
                figure = draw(result, chosen) if chosen else None
                if figure is not None:
                    path = folder / f"{name}-{problem}.png"
                    figure.savefig(path, dpi=_DPI)
                    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
                    written.append(path)
    return written


def _latency(result: SuiteResult, chosen: Sequence[Summary]) -> Figure | None:
    """A panel per series: CPU over scale, a line per solver, whiskers up to the 95th percentile."""
    by_series: dict[str, list[Summary]] = {}
    for summary in chosen:
        by_series.setdefault(summary.case.series, []).append(summary)
    drawn = {name: members for name, members in by_series.items() if name and _num_scales(members) >= _LEAST_SCALES}
    if not drawn:
        return None
    figure, panels = _grid(len(drawn), sharey=True)
    for axes, (name, members) in zip(panels, drawn.items(), strict=True):
        axes.set_title(name.partition(" ")[2], fontsize=TEXT_SIZE, color=INK)
        solvers = dict.fromkeys(summary.solver for summary in members)
        for position, solver in enumerate(solvers):
            shift = 1.04 ** (position - (len(solvers) - 1) / 2)
            _draw_line(axes, solver, [summary for summary in members if summary.solver == solver], shift)
        _limit_line(axes, result.protocol.limit_s, members)
        axes.set_xscale("log")
        scales = sorted({summary.case.scale for summary in members})
        axes.set_xticks(scales, [f"{scale:,}" for scale in scales], rotation=30, ha="right", fontsize=SMALL_SIZE)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(scales[0] / 1.5, scales[-1] * 1.5)
    _seconds_axis(panels[0].yaxis, panels[0].set_yscale)
    unit = "nodes of the cluster" if chosen[0].case.problem == "arnold" else "GPUs"
    _finish(figure, chosen, "CPU from snapshot to checked plan", f"{unit}; median, whisker to the 95th percentile")
    return figure


def _draw_line(axes: Any, solver: str, members: Sequence[Summary], shift: float) -> None:
    """Median over all runs of a scale; hollow where a run did not prove its answer."""
    by_scale: dict[int, list[RunRecord]] = {}
    for summary in members:
        by_scale.setdefault(summary.case.scale, []).extend(summary.runs)
    points = [(scale, Spread.of(run.total_cpu_s for run in runs), runs) for scale, runs in sorted(by_scale.items())]
    known = [(scale * shift, spread, runs) for scale, spread, runs in points if spread is not None]
    if not known:
        return
    colour, marker = _look(solver)
    x = [scale for scale, _, _ in known]
    y = [spread.median for _, spread, _ in known]
    whiskers = [[0.0] * len(y), [spread.p95 - spread.median for _, spread, _ in known]]
    axes.errorbar(x, y, yerr=whiskers, color=colour, lw=1.2, elinewidth=0.8, capsize=1.8, zorder=3)
    for one, other, (_, _, runs) in zip(x, y, known, strict=True):
        proven = all(run.is_proven for run in runs)
        axes.plot(one, other, marker, ms=4.5, color=colour, mfc=colour if proven else "white", zorder=4)


def _cases(result: SuiteResult, chosen: Sequence[Summary]) -> Figure | None:
    """A line per case that stands for itself: CPU of every solver."""
    by_series: dict[str, list[Summary]] = {}
    for summary in chosen:
        by_series.setdefault(summary.case.series, []).append(summary)
    single = [s for s in chosen if not s.case.series or _num_scales(by_series[s.case.series]) < _LEAST_SCALES]
    if not single:
        return None
    names = list(dict.fromkeys(summary.case.name for summary in single))
    figure = Figure(figsize=(7.2, 1.5 + 0.2 * len(names)), layout="constrained")
    axes = figure.subplots()
    for summary in single:
        if summary.cpu is not None:
            colour, marker = _look(summary.solver)
            y = names.index(summary.case.name)
            axes.plot([summary.cpu.median, summary.cpu.p95], [y, y], color=colour, lw=0.8, zorder=3)
            face = colour if summary.is_proven else "white"
            axes.plot(summary.cpu.median, y, marker, ms=5, color=colour, mfc=face, zorder=4)
    axes.set_yticks(range(len(names)), [name.partition("/")[2] for name in names], fontsize=SMALL_SIZE)
    axes.set_ylim(len(names) - 0.5, -0.5)
    _seconds_axis(axes.xaxis, axes.set_xscale)
    if any(not summary.is_proven for summary in single):
        axes.axvline(result.protocol.limit_s, color=FAINT_INK, lw=0.8, ls=":")
    _finish(figure, single, "CPU from snapshot to checked plan", "median, line to the 95th percentile")
    return figure


def _gaps(result: SuiteResult, chosen: Sequence[Summary]) -> Figure | None:  # noqa: ARG001 - as the other drawers
    """Relative gap over time, first run of the first seed, on the largest cases of every series."""
    largest: dict[str, Summary] = {}
    for summary in chosen:
        series = summary.case.series or summary.case.name
        if series not in largest or summary.case.scale > largest[series].case.scale:
            largest[series] = summary
    names = [summary.case.name for summary in largest.values()]
    curves = [(s, _gap_curve(s.runs[0])) for s in chosen if s.case.name in names]
    drawn = {name: [(s, curve) for s, curve in curves if s.case.name == name and curve] for name in names}
    drawn = {name: lines for name, lines in drawn.items() if lines}
    # Where the solvers took longest there is most to see.
    order = sorted(drawn, key=lambda name: -max(curve[-1][0] for _, curve in drawn[name]))[:_MOST_PANELS]
    if not order:
        return None
    figure, panels = _grid(len(order), sharex=True, sharey=True)
    for axes, name in zip(panels, order, strict=True):
        axes.set_title(name.partition("/")[2], fontsize=TEXT_SIZE, color=INK)
        for summary, curve in drawn[name]:
            colour, marker = _look(summary.solver)
            times, gaps = [point[0] for point in curve], [point[1] for point in curve]
            axes.step(times, gaps, where="post", color=colour, lw=1.2, zorder=3)
            face = colour if summary.runs[0].is_proven else "white"
            axes.plot(times[-1], gaps[-1], marker, ms=4.5, color=colour, mfc=face, zorder=4, clip_on=False)
    panels[0].set_yscale("log")
    panels[0].set_ylim(_GAP_FLOOR, 2.0)
    panels[0].set_yticks([1e-6, 1e-4, 1e-2, 1], ["0", "0.01 %", "1 %", "100 %"], fontsize=SMALL_SIZE)
    panels[0].yaxis.set_minor_locator(NullLocator())
    _seconds_axis(panels[0].xaxis, panels[0].set_xscale)
    for axes in panels:
        axes.tick_params(labelsize=SMALL_SIZE, labelbottom=True)
    drawn_runs = [summary for name in order for summary, _ in drawn[name]]
    title = "relative gap over the time of the solve (wall clock)"
    _finish(figure, drawn_runs, title, "first run of the first seed", limit=False)
    return figure


def _gap_curve(run: RunRecord) -> list[tuple[float, float]]:
    """Seconds and gap, from the first moment when objective and bound are both known."""
    curve = []
    for elapsed_s, objective, bound in run.trajectory:
        if objective is not None and bound is not None:
            sign = -1 if run.sense == "maximize" else 1
            gap = max(0.0, sign * (objective - bound)) / max(abs(objective), 1e-10)
            curve.append((max(elapsed_s, _FIRST_S), min(1.0, max(gap, _GAP_FLOOR))))
    return curve


def _phases(result: SuiteResult, chosen: Sequence[Summary]) -> Figure | None:  # noqa: ARG001 - as the other drawers
    """Share of every phase in the CPU, a panel per solver, a bar per case, its total at the end."""
    solvers = list(dict.fromkeys(summary.solver for summary in chosen if summary.phases()))
    names = list(dict.fromkeys(summary.case.name for summary in chosen))
    if not solvers:
        return None
    size = (2.3 + 2.3 * len(solvers), 1.4 + 0.17 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(solvers), sharey=True, squeeze=False)[0]
    seen: dict[str, str] = {}
    for axes, solver in zip(panels, solvers, strict=True):
        axes.set_title(solver, fontsize=TEXT_SIZE, color=INK)
        for summary in chosen:
            phases, y = summary.phases(), names.index(summary.case.name)
            total, left = sum(phases.values()), 0.0
            for phase, seconds in phases.items() if summary.solver == solver else ():
                seen[phase] = _PHASES.get(phase, "#B8B8B8")
                axes.barh(y, seconds / total, left=left, height=0.78, color=seen[phase], lw=0)
                left += seconds / total
            if summary.solver == solver and phases:
                text = words.seconds(total) + ("" if summary.is_proven else f" {words.UNPROVEN}")
                axes.text(1.03, y, text, fontsize=SMALL_SIZE, va="center", color=INK)
        axes.set_xlim(0, 1.38)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"], fontsize=SMALL_SIZE)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_bounds(0, 1)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(names)), [name.partition("/")[2] for name in names], fontsize=SMALL_SIZE)
    problem = chosen[0].case.problem.capitalize()
    figure.suptitle(f"{problem}: share of the phases, and CPU of all (medians)", fontsize=TITLE_SIZE, color=INK)
    order = [phase for phase in [*_PHASES, *seen] if phase in seen]
    handles = [Patch(color=seen[phase], label=phase) for phase in dict.fromkeys(order)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=TEXT_SIZE)
    return figure


def _grid(count: int, *, sharex: bool = False, sharey: bool = False) -> tuple[Figure, list[Any]]:
    """A figure with so many panels, on common axes where asked for."""
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    size = (0.4 + _PANEL[0] * columns, 0.9 + _PANEL[1] * rows)
    figure = Figure(figsize=size, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).flat)
    for unused in panels[count:]:
        unused.set_visible(False)
    return figure, panels[:count]


def _finish(figure: Figure, chosen: Sequence[Summary], title: str, subtitle: str, *, limit: bool = True) -> None:
    """Title, grid and the legend of the solvers; `limit`: the time limit is drawn."""
    problem = chosen[0].case.problem.capitalize()
    figure.suptitle(f"{problem}: {title}\n{subtitle}", fontsize=TITLE_SIZE, color=INK)
    for axes in figure.axes:
        axes.grid(visible=True, which="major", color="#E4E4E4", lw=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles = []
    for solver in dict.fromkeys(summary.solver for summary in chosen):
        colour, marker = _look(solver)
        handles.append(Line2D([], [], color=colour, marker=marker, ms=4.5, label=solver))
    if any(not summary.is_proven for summary in chosen):
        label = "not proven within limit and gap"
        handles.append(Line2D([], [], color=FAINT_INK, marker="o", mfc="white", ms=4.5, lw=0, label=label))
        if limit:
            handles.append(Line2D([], [], color=FAINT_INK, lw=0.8, ls=":", label="time limit (wall clock)"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=TEXT_SIZE)


def _seconds_axis(axis: Any, set_scale: Callable[[str], None]) -> None:
    """Logarithmic, labelled in the unit that suits; within two decades also at 2 and 5."""
    set_scale("log")
    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high < _TWO_DECADES * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _power_of_ten(value)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(labelsize=SMALL_SIZE)


def _power_of_ten(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _limit_line(axes: Any, limit_s: float, members: Sequence[Summary]) -> None:
    if any(not summary.is_proven for summary in members):
        axes.axhline(limit_s, color=FAINT_INK, lw=0.8, ls=":", zorder=1)


def _look(solver: str) -> tuple[str, str]:
    return _LOOKS.get(solver, _OTHER)


def _num_scales(members: Sequence[Summary]) -> int:
    return int(np.unique([summary.case.scale for summary in members]).size)
