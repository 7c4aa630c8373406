"""Throughput by number of GPUs, a line per GPU type, with the plan at each point."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from api.common.wording import degree_words
from api.figures.style import INK, SMALL_SIZE, TEXT_SIZE, draw_frame, fill, text_width
from api.schemas.parallel_answer import PlanPointDoc
from models.pipeline_schedule import part_words

_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Labels that would be nearer than this to one that is drawn already are left out; in points.
_ROOM_Y = 9.0


def draw_throughput(
    figure: Figure, place: tuple[float, float, float, float], points: Sequence[PlanPointDoc], best: PlanPointDoc
) -> None:
    """Draw into the rectangle `place` (left, bottom, width, height) of the page."""
    axes = figure.add_axes(place, xscale="log", yscale="log")
    counts = sorted({point.num_gpus for point in points})
    least, most = (pick(point.throughput for point in points) for pick in (min, max))
    axes.set_xlim(counts[0] / 1.25, counts[-1] * 1.25)
    # Room for the labels, and for the legend in the corner where fast lines do not come.
    axes.set_ylim(least / 1.9, most * 1.7)
    lines = _lines(points)
    for k, (gpu_type, line) in enumerate(lines.items()):
        xs, ys = [point.num_gpus for point in line], [point.throughput for point in line]
        axes.plot(
            xs, ys, color=fill(k).colour, marker=_MARKS[k % len(_MARKS)], markersize=5, linewidth=1.5, label=gpu_type
        )
    axes.plot(
        [best.num_gpus], [best.throughput], marker="o", markersize=11, markerfacecolor="none", markeredgecolor=INK
    )
    _draw_frame(axes, counts, (least / 1.9, most * 1.7))
    _draw_plans(figure, axes, lines)
    axes.legend(loc="upper left", fontsize=TEXT_SIZE, frameon=False)


def plan_words(point: PlanPointDoc) -> str:
    """Degrees in short."""
    words = degree_words([(stage.dp, stage.tp) for stage in point.stages])
    if parts := part_words(point.plan.virtual_stages, point.plan.schedule):
        words = words.replace(f"PP{len(point.stages)}", f"PP{len(point.stages)}{parts}", 1)
    shared = (("CP", point.plan.context_parallel), ("EP", point.plan.expert_parallel))
    return words + "".join(f" {name}{degree}" for name, degree in shared if degree > 1)


def _lines(points: Sequence[PlanPointDoc]) -> Mapping[str, list[PlanPointDoc]]:
    lines: dict[str, list[PlanPointDoc]] = {}
    for point in points:
        lines.setdefault(point.gpu_type, []).append(point)
    return lines


def _draw_frame(axes: Any, counts: Sequence[int], span: tuple[float, float]) -> None:
    shown = _ticks(counts)
    axes.set_xticks(shown, [str(count) for count in shown])
    heights = [k * 10.0**power for power in range(-6, 9) for k in (1, 2, 5) if span[0] <= k * 10.0**power <= span[1]]
    axes.set_yticks(heights, [f"{height:g}" for height in heights])
    axes.minorticks_off()
    draw_frame(axes, "GPUs", "samples/s")


def _ticks(counts: Sequence[int]) -> list[int]:
    """Counts that are far enough apart to be labelled."""
    shown: list[int] = []
    for count in counts:
        if not shown or count / shown[-1] > 1.3:
            shown.append(count)
    return shown


def _draw_plans(figure: Figure, axes: Any, lines: Mapping[str, Sequence[PlanPointDoc]]) -> None:
    """The plan beside each point: of the fastest type above it, of others below; none over another."""
    dots = 72.0 / figure.dpi
    taken: list[tuple[float, float, float]] = []
    order = sorted(lines, key=lambda name: -max(point.throughput for point in lines[name]))
    for name in order:
        above = name == order[0]
        for point in lines[name]:
            words = plan_words(point)
            x, y = (dots * float(value) for value in axes.transData.transform((point.num_gpus, point.throughput)))
            half = text_width(words, SMALL_SIZE) / 2
            level = y + (9.0 if above else -11.0)
            if any(abs(x - at) < half + other and abs(level - height) < _ROOM_Y for at, height, other in taken):
                continue
            taken.append((x, level, half))
            axes.annotate(
                words,
                (point.num_gpus, point.throughput),
                xytext=(0.0, 9.0 if above else -11.0),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=SMALL_SIZE,
                color=INK,
                parse_math=False,
            )
