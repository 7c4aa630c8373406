"""The calendar of a cluster: which nodes of which minipod are whose, over time."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from itertools import groupby
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator

from api.figures.render import save
from api.figures.request import CalendarFigure
from api.figures.style import (
    FAINT_INK,
    FREE,
    INK,
    OUT_OF_SERVICE,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    Fill,
    Point,
    add_polygons,
    draw_frame,
    drawing_style,
    fill,
    fitted,
    rectangle,
    text_width,
    write,
)
from models.wording import counted
from solver.monitor import SolveMonitor
from topology.calendar import CalendarEntry, EntryKind, minipod_depth
from topology.calendar_nodes import entry_nodes
from topology.cluster import Cluster

_WIDTH = 620.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 96.0, 14.0, 44.0, 34.0
_ROW = 7.0
_MIN_PANEL, _MAX_PANEL = 90.0, 560.0
_MIN_LABEL = 9.0
_POINTS_PER_INCH = 72.0
_UNITS = {"hours": 3600.0, "days": 86_400.0, "weeks": 604_800.0}
# Where nothing ends, and beyond the last begin or end.
_LEAST_S, _MARGIN = 86_400.0, 1.08
_FILLS: Mapping[EntryKind, Fill] = {
    EntryKind.MAINTENANCE: Fill(colour=OUT_OF_SERVICE, hatch="////", ink=INK),
    EntryKind.ARRIVAL: Fill(colour=FREE, hatch="\\\\\\\\", ink=INK),
    EntryKind.DEPARTURE: Fill(colour=FREE, hatch="////", ink=INK),
}
_NUM_COLOURS = 11


def figure_task(request: CalendarFigure, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's convention
    """Entry point of workers."""
    return render(request)


def render(request: CalendarFigure) -> bytes:
    """Give the bytes of the picture: a row a node, minipods one below the other, time to the right."""
    entries = [entry for entry in request.entries if not entry.is_over]
    rows, minipods = _rows(request.cluster)
    panel = min(max(_ROW * len(rows), _MIN_PANEL), _MAX_PANEL)
    height = _TOP + panel + _BOTTOM
    width = _WIDTH - _LEFT - _RIGHT
    last_s = _last_s(entries)
    with drawing_style():
        figure = Figure(figsize=(_WIDTH / _POINTS_PER_INCH, height / _POINTS_PER_INCH), facecolor="white")
        page = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(height, 0))
        page.axis("off")
        title = fitted(f"Calendar of {request.name}", TITLE_SIZE, _WIDTH - 2 * _RIGHT, bold=True)
        write(page, _RIGHT, 14, title, TITLE_SIZE, weight="bold")
        when = f"{request.taken_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        what = f"{counted(len(rows), 'node')}, {counted(len(entries), 'entry')}"
        write(page, _RIGHT, 29, f"{what}, from {when} on; hatched: closed, pale: soft", color=FAINT_INK)
        axes = figure.add_axes((_LEFT / _WIDTH, _BOTTOM / height, width / _WIDTH, panel / height))
        _draw(axes, request.cluster, entries, rows, last_s, (width, panel))
        _label(axes, minipods, panel / len(rows), last_s)
        return save(figure, request.format)


def _rows(cluster: Cluster) -> tuple[dict[int, int], list[tuple[str, int]]]:
    """Row of every node by its position, and names and sizes of the minipods from the top."""
    depth = minipod_depth(cluster)
    names = ["/".join(node.path[:depth]) for node in cluster.nodes]
    order = sorted(range(len(names)), key=lambda n: names[n])
    minipods = [(name, len(list(own))) for name, own in groupby(names[n] for n in order)]
    return {n: row for row, n in enumerate(order)}, minipods


def _last_s(entries: Sequence[CalendarEntry]) -> float:
    """Until when it is drawn: a little beyond the last begin or end."""
    times = [time_s for entry in entries for time_s in (entry.from_s, entry.until_s) if time_s is not None]
    return _MARGIN * max([_LEAST_S, *times])


def _draw(
    axes: Any,
    cluster: Cluster,
    entries: Sequence[CalendarEntry],
    rows: Mapping[int, int],
    last_s: float,
    size: tuple[float, float],
) -> None:
    """A rectangle for all neighbouring rows of an entry; those that are large enough have its name."""
    nodes_of = entry_nodes(cluster, entries).positions
    axes.set_xlim(0, last_s)
    axes.set_ylim(len(rows), 0)
    # Shut nodes lie under what is reserved: both can be seen where they overlap.
    order = sorted(range(len(entries)), key=lambda k: entries[k].kind is EntryKind.RESERVATION)
    owners = dict.fromkeys(entry.owner or entry.name for entry in entries if entry.kind is EntryKind.RESERVATION)
    colour = {owner: k % _NUM_COLOURS for k, owner in enumerate(owners)}
    for k in order:
        entry = entries[k]
        style = _FILLS.get(entry.kind) or fill(colour[entry.owner or entry.name])
        left, right = max(entry.begin_s, 0.0), min(entry.end_s, last_s)
        runs = _runs(sorted(rows[n] for n in nodes_of[entry.name]))
        polygons = [rectangle(left, first, right - left, count) for first, count in runs]
        look: dict[str, Any] = {"facecolor": style.colour, "hatch": style.hatch, "edgecolor": INK, "linewidth": 0.4}
        if not entry.hard:
            look |= {"alpha": 0.45, "linestyle": "--"}
        add_polygons(axes, f"entry-{k}", polygons, **look)
        if polygons:
            _name(axes, entry, max(polygons, key=lambda box: box[2][1] - box[0][1]), style, last_s, len(rows), size)


def _name(
    axes: Any,
    entry: CalendarEntry,
    box: Sequence[Point],
    style: Fill,
    last_s: float,
    num_rows: int,
    size: tuple[float, float],
) -> None:
    """Write the name of an entry into its largest rectangle, if it has room there."""
    (left, top), (right, bottom) = box[0], box[2]
    width, height = (right - left) / last_s * size[0], (bottom - top) / num_rows * size[1]
    text = fitted(entry.name, SMALL_SIZE, width - 4)
    if height < _MIN_LABEL or not text:
        return
    centre = (left + right) / 2, (top + bottom) / 2
    if style.hatch:
        share = (text_width(text, SMALL_SIZE) + 3) / size[0] * last_s
        tall = _MIN_LABEL / size[1] * num_rows
        patch = rectangle(centre[0] - share / 2, centre[1] - tall / 2, share, tall)
        add_polygons(axes, "", [patch], facecolor="white", edgecolor="none")
    write(axes, *centre, text, SMALL_SIZE, ha="center", color=style.ink if entry.hard and not style.hatch else INK)


def _runs(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and number of rows that lie beside each other."""
    for _, own in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in own]
        yield numbers[0], len(numbers)


def _label(axes: Any, minipods: Sequence[tuple[str, int]], row: float, last_s: float) -> None:
    """Lines between minipods, the names of those that have room, and the time."""
    unit = next((name for name, unit_s in reversed(_UNITS.items()) if last_s >= 4 * unit_s), "hours")
    draw_frame(axes, f"{unit} from now")
    axes.grid(visible=False, axis="y")
    top, free, middles, names = 0, 0.0, [], []
    for name, count in minipods:
        middle = (top + count / 2) * row
        if middle - _MIN_LABEL / 2 >= free:
            middles.append(top + count / 2)
            names.append(fitted(name or "nodes", SMALL_SIZE, _LEFT - 12))
            free = middle + _MIN_LABEL / 2
        top += count
        axes.axhline(top, color="#C8C8C8", linewidth=0.4)
    axes.yaxis.set_major_locator(FixedLocator(middles))
    axes.yaxis.set_major_formatter(FixedFormatter(names))
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if last_s / _UNITS[unit] / step <= 12)
    ticks = range(0, int(last_s / _UNITS[unit]) + 1, step)
    axes.xaxis.set_major_locator(FixedLocator([tick * _UNITS[unit] for tick in ticks]))
    axes.xaxis.set_major_formatter(FixedFormatter([str(tick) for tick in ticks]))
    axes.tick_params(axis="y", labelsize=SMALL_SIZE, labelcolor=INK)
    axes.yaxis.label.set_fontsize(TEXT_SIZE)
