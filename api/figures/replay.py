"""Replays: how long jobs took, who waited and what was busy over time, and who had which GPU when."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from api.figures.render import save
from api.figures.request import ReplayFigure
from api.figures.style import (
    FAINT_INK,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    Point,
    add_polygons,
    draw_frame,
    drawing_style,
    fill,
    fitted,
    rectangle,
    write,
)
from executor.simulation.figures import JobRecord, ReplayResult
from solver.monitor import SolveMonitor
from stowplan.arrays import FloatVector
from topology.cluster import Cluster

_WIDTH = 620.0
_LEFT, _RIGHT = 52.0, 14.0
_PANEL = 130.0
_GANTT = 190.0
_GAP = 46.0
_TOP = 40.0
_POINTS_PER_INCH = 72.0
# Of jobs, which keep theirs in all panels.
_NUM_COLOURS = 11
_LONGEST_NAME = 60
# Of names of replays, and their distance from what they stand above.
_NAME_WIDTH = 500.0
_LEGEND_WIDTH = 260.0
_ABOVE = 8.0
# The largest unit of which there are three.
_UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}
_Changes = Callable[[Iterable[JobRecord]], Iterable[tuple[float, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """A time axis: until when, in which unit."""

    last_s: float
    unit: str
    unit_s: float


def _clock(last_s: float) -> _Clock:
    unit = next((name for name, unit_s in reversed(_UNITS.items()) if last_s >= 3 * unit_s), "seconds")
    return _Clock(last_s=last_s, unit=unit, unit_s=_UNITS[unit])


def figure_task(request: ReplayFigure, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's convention
    """Entry point of workers."""
    return render(request)


def render(request: ReplayFigure) -> bytes:
    """Give the bytes of one page: three panels for all replays, and one for each of them."""
    heights = [_PANEL] * 3 + [_GANTT] * len(request.replays)
    height = _TOP + sum(heights) + _GAP * len(heights)
    with drawing_style():
        figure = Figure(figsize=(_WIDTH / _POINTS_PER_INCH, height / _POINTS_PER_INCH), facecolor="white")
        page = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(height, 0))
        page.axis("off")
        first = next(iter(request.replays.values()))
        write(page, _LEFT, 18, f"{first.trace[:_LONGEST_NAME]} on {first.num_gpus:,} GPUs", TITLE_SIZE, weight="bold")
        panels = list(_places(heights, height))
        _completion(figure.add_axes(panels[0], xscale="log"), request.replays)
        clock = _clock(max(_end_s(result.jobs) for result in request.replays.values()))
        _over_time(figure.add_axes(panels[1]), request.replays, _waiting, "jobs that wait", clock)
        _over_time(figure.add_axes(panels[2]), request.replays, _busy, "GPUs with a job", clock)
        for place, (name, result) in zip(panels[3:], request.replays.items(), strict=True):
            top = (1 - place[1] - place[3]) * height
            write(page, _LEFT, top - _ABOVE, fitted(name, TEXT_SIZE, _NAME_WIDTH, bold=True), weight="bold")
            _gantt(figure.add_axes(place), request.cluster, result, clock)
        return save(figure, request.format)


def _places(heights: Sequence[float], height: float) -> Iterator[tuple[float, float, float, float]]:
    """Rectangles (left, bottom, width, height) as shares of the page, from the top."""
    top = _TOP
    for own in heights:
        yield _LEFT / _WIDTH, 1 - (top + own) / height, (_WIDTH - _LEFT - _RIGHT) / _WIDTH, own / height
        top += own + _GAP


def _completion(axes: Any, replays: Mapping[str, ReplayResult]) -> None:
    """Share of jobs that ended within a time; dashed: each alone."""
    first = next(iter(replays.values()))
    curves = {name: [job.completion_s for job in result.jobs] for name, result in replays.items()}
    clock = _clock(max((value for values in curves.values() for value in values), default=1.0))
    for k, (name, values) in enumerate(curves.items()):
        axes.plot(
            *_shares(values, clock), color=fill(k).colour, linewidth=1.3, label=fitted(name, SMALL_SIZE, _LEGEND_WIDTH)
        )
    alone = [job.alone_s for job in first.jobs]
    axes.plot(*_shares(alone, clock), color=FAINT_INK, linewidth=1.0, linestyle="--", label="each job alone")
    axes.set_ylim(0, 1)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    draw_frame(axes, f"{clock.unit} from submission to end", "share of jobs")
    axes.legend(loc="upper left", fontsize=SMALL_SIZE, frameon=False)


def _shares(values_s: Sequence[float], clock: _Clock) -> tuple[FloatVector, FloatVector]:
    """Times in order, at least a second, and the share of values up to each."""
    times = np.sort(np.maximum(np.array(values_s, dtype=np.float64), 1.0)) / clock.unit_s
    return times, np.arange(1, times.size + 1) / max(1, times.size)


def _over_time(axes: Any, replays: Mapping[str, ReplayResult], of: _Changes, label: str, clock: _Clock) -> None:
    """What the changes of all jobs add up to."""
    for k, result in enumerate(replays.values()):
        times, values = _steps(of(result.jobs))
        axes.step(times / clock.unit_s, values, where="post", color=fill(k).colour, linewidth=1.0)
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    axes.set_xlim(0, clock.last_s / clock.unit_s)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    draw_frame(axes, clock.unit, label)


def _steps(changes: Iterable[tuple[float, int]]) -> tuple[FloatVector, FloatVector]:
    """Times, and the sum of all changes up to each."""
    array = np.array([(0.0, 0.0), *changes], dtype=np.float64)
    times, place = np.unique(array[:, 0], return_inverse=True)
    return times, np.cumsum(np.bincount(place.ravel(), weights=array[:, 1]))


def _waiting(jobs: Iterable[JobRecord]) -> Iterator[tuple[float, int]]:
    """Jobs come and end; for as long as they have GPUs they do not wait."""
    for job in jobs:
        yield job.submitted_s, 1
        yield job.submitted_s + job.completion_s, -1
        for span in job.spans:
            yield span.start_s, -1
            yield span.end_s, 1


def _busy(jobs: Iterable[JobRecord]) -> Iterator[tuple[float, int]]:
    for job in jobs:
        for span in job.spans:
            yield span.start_s, span.num_gpus
            yield span.end_s, -span.num_gpus


def _gantt(axes: Any, cluster: Cluster, result: ReplayResult, clock: _Clock) -> None:
    """A row per GPU, by node; a colour per job, of a few that come again."""
    starts = np.cumsum([0, *(node.num_gpus for node in cluster.nodes)]).tolist()
    first = dict(zip((node.id for node in cluster.nodes), starts, strict=False))
    cells: list[list[list[Point]]] = [[] for _ in range(_NUM_COLOURS)]
    for k, job in enumerate(result.jobs):
        for span in job.spans:
            left, width = span.start_s / clock.unit_s, (span.end_s - span.start_s) / clock.unit_s
            for part in span.gpus:
                for low, high in _runs(part.gpus):
                    box = rectangle(left, first[part.node] + low, width, high - low + 1)
                    cells[k % _NUM_COLOURS].append(box)
    for k, polygons in enumerate(cells):
        add_polygons(axes, f"jobs-{k}", polygons, facecolor=fill(k).colour, edgecolor="white", linewidth=0.1)
    axes.set_xlim(0, clock.last_s / clock.unit_s)
    axes.set_ylim(cluster.num_gpus, 0)
    draw_frame(axes, clock.unit, "GPUs")
    axes.grid(visible=False)


def _runs(gpus: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of GPUs that lie beside each other."""
    for _, own in groupby(enumerate(sorted(gpus)), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in own]
        yield numbers[0], numbers[-1]


def _end_s(jobs: Sequence[JobRecord]) -> float:
    return max((job.submitted_s + job.completion_s for job in jobs), default=1.0)
