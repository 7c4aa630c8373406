"""3D-parallel plans on one page: where the time goes, the pipeline of the best plan, throughput by GPUs."""

import warnings
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from api.common.wording import duration
from api.figures.head import Head
from api.figures.pipeline import BUBBLE, FORWARD, OPTIMIZER, REDUCTION, pipeline_panel
from api.figures.render import page_axes, save
from api.figures.request import ParallelFigure
from api.figures.style import (
    INK,
    LINE_PT,
    SMALL_SIZE,
    Fill,
    drawing_style,
    text_width,
    write,
)
from api.figures.throughput import draw_throughput
from api.schemas.parallel_answer import ParallelPlanAnswer, PlanPointDoc
from models.wording import counted
from solver.monitor import SolveMonitor

_MARGIN = 14.0
_BELOW_HEAD = 0.2 * LINE_PT
_BAR = 3.9 * LINE_PT
_CHART = 230.0
_PANEL_GAP = 14.0
_TENSOR = Fill(colour="#009E73", hatch="", ink="#FFFFFF")
_RING = Fill(colour="#117733", hatch="", ink="#FFFFFF")
_ALL_TO_ALL = Fill(colour="#332288", hatch="", ink="#FFFFFF")
_SEND = Fill(colour="#F0E442", hatch="", ink=INK)
_STRAGGLERS = Fill(colour="#882255", hatch="", ink=INK)
_MS_PER_S = 1e3


def figure_task(request: ParallelFigure, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's convention
    """Entry point of workers."""
    return render(request)


def render(request: ParallelFigure) -> bytes:
    """Draw the answer; the same request gives the same bytes."""
    with drawing_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        return save(_compose(request.answer), request.format)


def _compose(answer: ParallelPlanAnswer) -> Figure:
    panel = pipeline_panel(answer.best)
    chart = _CHART + _PANEL_GAP if len(answer.points) > 1 else 0.0
    width = panel.width + 2 * _MARGIN
    head = _head(answer, panel.width)
    top = _MARGIN + head.height + _BELOW_HEAD
    height = top + _BAR + panel.height + chart + _MARGIN
    figure = Figure(figsize=(width / 72.0, height / 72.0), facecolor="white")
    head.draw(page_axes(figure, _MARGIN, _MARGIN, panel.width, head.height))
    _draw_bar(page_axes(figure, _MARGIN, top, panel.width, _BAR), answer.best, panel.width)
    top += _BAR
    panel.draw(page_axes(figure, _MARGIN, top, panel.width, panel.height))
    if len(answer.points) > 1:
        title = page_axes(figure, _MARGIN, top + panel.height + _PANEL_GAP, panel.width, LINE_PT)
        write(title, 0.0, 0.5 * LINE_PT, "throughput by number of GPUs, with the best plan", fontweight="bold")
        left, bottom = _MARGIN + 34.0, _MARGIN + 26.0
        place = (left / width, bottom / height, (panel.width - 40.0) / width, (_CHART - 26.0 - 1.5 * LINE_PT) / height)
        draw_throughput(figure, place, answer.points, answer.best)
    return figure


def _head(answer: ParallelPlanAnswer, width: float) -> Head:
    best, job = answer.best, answer.job
    title = f"{job.name} on {counted(best.num_gpus, f'{best.gpu_type} GPU')}: {best.notation}"
    words = (
        f"{best.throughput:.4g} samples/s · {duration(best.iteration_s * _MS_PER_S)} per iteration "
        f"({'measured' if best.measured else 'predicted'}) · global batch {job.global_batch} · "
        f"{job.num_parameters / 1e9:.3g} billion parameters · planner {answer.planner.value}"
    )
    return Head.of(width, title, words)


def _draw_bar(axes: Any, point: PlanPointDoc, width: float) -> None:
    """The predicted iteration as one bar of its parts, named under it."""
    parts = point.breakdown
    named = (
        ("compute", parts.compute_s, FORWARD),
        ("tensor parallel", parts.tensor_s, _TENSOR),
        ("ring attention", parts.ring_s, _RING),
        ("all-to-all", parts.all_to_all_s, _ALL_TO_ALL),
        ("data parallel", parts.data_s, REDUCTION),
        ("optimiser", parts.optimizer_s, OPTIMIZER),
        ("bubble", parts.bubble_s, BUBBLE),
        ("send", parts.send_s, _SEND),
        ("stragglers", parts.straggling_s, _STRAGGLERS),
    )
    write(axes, 0.0, 0.5 * LINE_PT, "where the iteration goes (predicted)", fontweight="bold")
    x, label_x = 0.0, 0.0
    for name, seconds, filled in named:
        share = seconds / parts.total_s
        if share < 1e-9:
            continue
        axes.add_patch(Rectangle((x, 1.2 * LINE_PT), share * width, LINE_PT, facecolor=filled.colour, linewidth=0))
        x += share * width
        axes.add_patch(Rectangle((label_x, 2.65 * LINE_PT), 7.0, 7.0, facecolor=filled.colour, linewidth=0))
        words = f"{name} {duration(seconds * _MS_PER_S)} ({100 * share:.3g} %)"
        write(axes, label_x + 11.0, 2.95 * LINE_PT, words, SMALL_SIZE)
        label_x += 11.0 + text_width(words, SMALL_SIZE) + 14.0
