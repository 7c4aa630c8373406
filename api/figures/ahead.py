"""What is planned ahead: minipods over time, and what other starts would cost.

A row is a minipod that some job uses, a bar the time for which a job keeps nodes there, its height their share of the
minipod's nodes. Before the start the bar is pale: nodes are kept free for it as they become free.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from api.figures.layout import natural_key
from api.figures.style import FAINT_INK, INK, SMALL_SIZE, TEXT_SIZE, fill, fitted
from models.plan import AheadPlacement, PretrainingPlacement
from models.workload import Snapshot
from topology.calendar import CalendarEntry, EntryKind

_DAY_S = 86_400.0
_ROW_INCHES, _WIDTH_INCHES, _MARGIN_INCHES, _CURVE_INCHES = 0.32, 9.0, 1.7, 2.0
_POINTS_PER_INCH = 72.0
_MOST_ROWS = 60
# Bars of what nobody ends reach so far beyond the last one that ends, in days.
_OPEN_END_DAYS = 7.0
_PALE, _SOLID, _BAR = 0.25, 0.95, 0.85


def ahead_figure(snapshot: Snapshot, planned: Sequence[AheadPlacement], subtitle: str) -> Figure:
    """Draw the plan."""
    paths = {node.id: node.path for node in snapshot.cluster.nodes}
    depth = _depth(planned[0].placement, paths)
    minipod_of = {node: "/".join(path[:depth]) for node, path in paths.items()}
    title = ", ".join(f"{job.placement.job_id} in {job.start_s / _DAY_S:.1f} days" for job in planned)
    sizes = Counter(minipod_of.values())
    used = sorted({minipod_of[node.node] for job in planned for node in job.nodes}, key=natural_key)
    rows = {name: k for k, name in enumerate(used[:_MOST_ROWS])}
    height = _MARGIN_INCHES + _ROW_INCHES * len(rows) + _CURVE_INCHES
    figure = Figure(figsize=(_WIDTH_INCHES, height), facecolor="white", layout="constrained")
    words = [fitted(line, TEXT_SIZE, _WIDTH_INCHES * _POINTS_PER_INCH) for line in (title, subtitle)]
    figure.suptitle("\n".join(words), fontsize=TEXT_SIZE, color=INK)
    bars, curve = figure.subplots(2, 1, sharex=True, height_ratios=[_ROW_INCHES * len(rows), _CURVE_INCHES])
    ends = [end_s for job in planned if (end_s := job.end_s) is not None]
    last_s = max([*ends, *(job.start_s for job in planned)])
    horizon = last_s / _DAY_S + (_OPEN_END_DAYS if len(ends) < len(planned) else 0.0)
    below: Counter[str] = Counter()
    for k, job in enumerate(planned):
        nodes = Counter(minipod_of[node.node] for node in job.nodes)
        _draw_job(bars, job, fill(k).colour, nodes, below, rows, sizes, horizon)
        below += nodes
        costs = [(other.start_s / _DAY_S, other.cost) for other in job.other_starts if other.cost is not None]
        curve.plot(*zip(*costs, strict=True), marker=".", color=fill(k).colour, label=job.placement.job_id)
        curve.axvline(job.start_s / _DAY_S, color=fill(k).colour, linewidth=0.8, linestyle=":")
    for entry in snapshot.calendar:
        _draw_entry(bars, entry, Counter(minipod_of[node] for node in entry.nodes), rows, sizes, horizon)
    left_out = len(used) - len(rows)
    bars.set_yticks(list(rows.values()), list(rows), fontsize=SMALL_SIZE)
    bars.set_ylim(len(rows) - 0.5, -0.5)
    bars.set_xlim(0.0, horizon)
    bars.set_title(
        "minipods" + (f" (the first {len(rows)} of {len(used)})" if left_out else ""), fontsize=SMALL_SIZE, loc="left"
    )
    bars.legend(fontsize=SMALL_SIZE, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    curve.set_xlabel("days from now", fontsize=SMALL_SIZE)
    curve.set_ylabel("cost by start", fontsize=SMALL_SIZE)
    for axes in (bars, curve):
        axes.tick_params(labelsize=SMALL_SIZE, colors=FAINT_INK)
    return figure


def _depth(placement: PretrainingPlacement, paths: Mapping[str, tuple[str, ...]]) -> int:
    """How many units of a path name the minipods that the plan has used."""
    path, label = paths[placement.cells[0][0]], placement.minipods[0][0]
    return next(depth for depth in range(1, len(path) + 1) if "/".join(path[:depth]) == label)


def _draw_job(
    axes: Any,
    job: AheadPlacement,
    colour: str,
    nodes: Counter[str],
    below: Counter[str],
    rows: dict[str, int],
    sizes: Counter[str],
    horizon: float,
) -> None:
    """Bars of one job, above those of the jobs drawn before in the same minipod, `below`."""
    start, end = job.start_s / _DAY_S, horizon if job.end_s is None else job.end_s / _DAY_S
    label: str | None = job.placement.job_id
    for minipod, count in nodes.items():
        if minipod in rows:
            # Rows grow downwards; jobs that follow each other in time may need more than the minipod has.
            height = _BAR * min(1.0, count / sizes[minipod])
            top = rows[minipod] - _BAR / 2 + min(_BAR * below[minipod] / sizes[minipod], _BAR - height)
            where = {"y": top, "height": height, "align": "edge", "color": colour, "linewidth": 0}
            axes.barh(width=start, left=0.0, alpha=_PALE, **where)
            axes.barh(width=end - start, left=start, alpha=_SOLID, label=label, **where)
            label = None


def _draw_entry(
    axes: Any, entry: CalendarEntry, nodes: Counter[str], rows: dict[str, int], sizes: Counter[str], horizon: float
) -> None:
    """What the calendar closes, hatched."""
    begin = max(0.0, entry.begin_s / _DAY_S)
    end = min(horizon, entry.end_s / _DAY_S) if math.isfinite(entry.end_s) else horizon
    label: str | None = "arrives later" if entry.kind is EntryKind.ARRIVAL else entry.name
    for minipod, count in nodes.items():
        if minipod in rows and begin < end:
            height = 0.95 * count / sizes[minipod]
            axes.barh(
                rows[minipod],
                end - begin,
                left=begin,
                height=height,
                facecolor="none",
                edgecolor=FAINT_INK,
                hatch="////",
                linewidth=0.5,
                label=label,
            )
            label = None
