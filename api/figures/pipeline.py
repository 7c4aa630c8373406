"""The pipeline of a plan as a Gantt chart: a row per stage, a box per forward and backward pass (1F1B; of every part of
a stage where it is interleaved; zero-bubble: a box for the gradients of weights, too).

What is grey is the bubble. Behind its last backward pass a stage shows the reduction that is not hidden, and the
optimiser; on the right stands the memory of its fullest GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from api.common.wording import duration
from api.figures.legend import Entry, state_line
from api.figures.style import (
    FAINT_INK,
    FREE,
    INK,
    LINE_PT,
    SMALL_SIZE,
    TEXT_SIZE,
    Fill,
    Point,
    add_polygons,
    fitted,
    rectangle,
    text_width,
    write,
)
from api.schemas.parallel_answer import PlanPointDoc, StageDetailDoc
from models.performance.iteration.schedule import Pass, schedule
from models.performance.iteration.times import of_parts, schedule_of
from models.performance.pipeline.schedule import PassKind
from models.performance.pipeline.simulation import simulate
from models.performance.pipeline.times import StageTimes
from models.pipeline_schedule import PipelineSchedule
from models.wording import counted, size_of

_CHART_WIDTH = 640.0
_LABEL_WIDTH = 128.0
_MEMORY_WIDTH = 124.0
_GAP = 10.0
_ROW = 19.0
_LEAST_ROW = 5.0
_MOST_HEIGHT = 460.0
_AXIS = 2.2 * LINE_PT
_FOOT = 2.6 * LINE_PT
_SMALLEST_TEXT = 4.5
_MS_PER_S = 1e3
FORWARD = Fill(colour="#0072B2", hatch="", ink="#FFFFFF")
BACKWARD = Fill(colour="#56B4E9", hatch="", ink=INK)
WEIGHT = Fill(colour="#009E73", hatch="", ink="#FFFFFF")
REDUCTION = Fill(colour="#E69F00", hatch="", ink=INK)
OPTIMIZER = Fill(colour="#CC79A7", hatch="", ink=INK)
BUBBLE = Fill(colour=FREE, hatch="", ink=INK)
_NAMES = MappingProxyType(
    {
        PipelineSchedule.ONE_F_ONE_B: "interleaved 1F1B",
        PipelineSchedule.ZERO_BUBBLE: "interleaved zero-bubble",
        PipelineSchedule.ZBV: "ZB-V",
    }
)
_MEMORY = Fill(colour="#999933", hatch="", ink=INK)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePanel:
    """The chart, ready to draw within `width` x `height`; `shown` micro-batches of all of them."""

    point: PlanPointDoc
    passes: tuple[Pass, ...]
    shown: int
    row: float
    end_s: float
    width: float
    height: float

    def draw(self, axes: Any) -> None:
        """Draw on axes whose data units are points, y downwards."""
        plan = self.point.plan
        parts = plan.virtual_stages
        words = "1F1B" if parts == 1 else f"{_NAMES[plan.schedule]}, {parts} parts a stage"
        if plan.context_parallel > 1:
            words += f"; every replica has 1/{plan.context_parallel} of its sequences"
        if plan.expert_parallel > 1:
            words += f"; every replica has 1/{plan.expert_parallel} of the experts"
        write(axes, 0.0, 0.5 * LINE_PT, f"stages and micro-batches ({words})", fontweight="bold")
        left = _LABEL_WIDTH + _CHART_WIDTH + _GAP
        write(axes, left, 0.5 * LINE_PT, "memory of a GPU", fontweight="bold")
        top = 1.6 * LINE_PT
        for i, stage in enumerate(self.point.stages):
            self._draw_labels(axes, top + i * self.row, i, stage)
        self._draw_boxes(axes, top)
        self._draw_ends(axes, top)
        bottom = top + len(self.point.stages) * self.row
        self._draw_axis(axes, bottom)
        self._draw_foot(axes, bottom + _AXIS)

    def _draw_labels(self, axes: Any, y: float, i: int, stage: StageDetailDoc) -> None:
        """What the stage is on the left, its memory on the right."""
        size = min(TEXT_SIZE, 0.8 * self.row)
        middle, bar = y + self.row / 2, 0.62 * self.row
        layers = counted(stage.num_layers, "layer") + (f" ({stage.recomputing})" if stage.recomputing else "")
        words = f"{i}: {layers}, DP{stage.dp} TP{stage.tp}"
        write(axes, 0.0, middle, fitted(words, size, _LABEL_WIDTH - 6.0), size)
        left, room = _LABEL_WIDTH + _CHART_WIDTH + _GAP, 42.0
        share = min(1.0, stage.total_bytes / stage.usable_bytes)
        for width, colour in ((room, FREE), (room * share, _MEMORY.colour)):
            axes.add_patch(Rectangle((left, middle - bar / 2), width, bar, facecolor=colour, linewidth=0))
        sizes = f"{size_of(stage.total_bytes)} of {size_of(stage.usable_bytes)}"
        write(axes, left + room + 5.0, middle, sizes, min(SMALL_SIZE, 0.8 * self.row), color=FAINT_INK)

    def _draw_boxes(self, axes: Any, top: float) -> None:
        """The idle background, then a path per kind of pass, and the number of the micro-batch where it fits."""
        rows = [rectangle(_LABEL_WIDTH, self._box(i, top), _CHART_WIDTH, self._high) for i in range(self._num_rows)]
        add_polygons(axes, "bubble", rows, facecolor=BUBBLE.colour, linewidth=0)
        kinds = {"forward": FORWARD, "backward": BACKWARD, "weight": WEIGHT}
        for name, filled in kinds.items():
            of_kind = [one for one in self.passes if _name_of(one) == name]
            if not of_kind:
                continue
            add_polygons(
                axes,
                name,
                [self._span(one.stage, top, one.start_s, one.end_s) for one in of_kind],
                facecolor=filled.colour,
                edgecolor="#FFFFFF",
                linewidth=0.4 if self.row > 2 * _LEAST_ROW else 0.1,
            )
            self._draw_numbers(axes, top, of_kind, filled)

    def _draw_numbers(self, axes: Any, top: float, passes: Sequence[Pass], filled: Fill) -> None:
        """Numbers of the micro-batches, where they fit all boxes of this kind."""
        widest = text_width(str(self.point.plan.num_micro_batches - 1), SMALL_SIZE)
        narrowest = min(one.end_s - one.start_s for one in passes) * self._scale
        size = min(SMALL_SIZE, 0.55 * self.row, SMALL_SIZE * 0.8 * narrowest / widest)
        for one in passes if size >= _SMALLEST_TEXT else ():
            x = _LABEL_WIDTH + (one.start_s + one.end_s) / 2 * self._scale
            y = self._box(one.stage, top) + self._high / 2
            write(axes, x, y, str(self._index(one.micro_batch)), size, ha="center", color=filled.ink)

    def _draw_ends(self, axes: Any, top: float) -> None:
        """Exposed reduction and optimiser of every stage."""
        reductions: list[list[Point]] = []
        optimizers: list[list[Point]] = []
        for i, stage in enumerate(self.point.stages):
            begin_s = max(one.end_s for one in self.passes if one.stage == i)
            between_s = begin_s + stage.exposed_reduction_s
            reductions.append(self._span(i, top, begin_s, between_s))
            optimizers.append(self._span(i, top, between_s, between_s + stage.optimizer_s))
        add_polygons(axes, "reduction", reductions, facecolor=REDUCTION.colour, linewidth=0)
        add_polygons(axes, "optimizer", optimizers, facecolor=OPTIMIZER.colour, linewidth=0)

    def _draw_axis(self, axes: Any, y: float) -> None:
        """Time under the rows."""
        axes.plot([_LABEL_WIDTH, _LABEL_WIDTH + _CHART_WIDTH], [y + 3.0, y + 3.0], color=FAINT_INK, linewidth=0.6)
        step_s = _tick_step(self.end_s)
        for k in range(int(self.end_s / step_s) + 1):
            x = _LABEL_WIDTH + k * step_s * self._scale
            axes.plot([x, x], [y + 3.0, y + 6.0], color=FAINT_INK, linewidth=0.6)
            write(axes, x, y + 12.0, _time(k * step_s), SMALL_SIZE, ha="center", color=FAINT_INK)

    def _draw_foot(self, axes: Any, y: float) -> None:
        entries = (
            Entry(fill=FORWARD, label="forward"),
            Entry(fill=BACKWARD, label="gradients of inputs" if self._splits else "backward"),
            *([Entry(fill=WEIGHT, label="gradients of weights")] if self._splits else []),
            Entry(fill=BUBBLE, label="bubble"),
            Entry(fill=REDUCTION, label="gradient reduction, as far as not hidden"),
            Entry(fill=OPTIMIZER, label="optimiser"),
        )
        state_line(axes, _LABEL_WIDTH, y + 0.5 * LINE_PT, entries)
        all_of_them = self.point.plan.num_micro_batches
        if self.shown < all_of_them:
            first = self.shown // 2
            step = max(stage.forward_s + stage.backward_s for stage in self.point.stages)
            words = (
                f"left out: micro-batches {first} to {first + all_of_them - self.shown - 1} of {all_of_them}; each "
                f"takes {duration(step * _MS_PER_S)} more in the same way"
            )
            write(axes, _LABEL_WIDTH, y + 1.7 * LINE_PT, words, color=FAINT_INK)

    @property
    def _splits(self) -> bool:
        return self.point.plan.schedule.splits_backward

    @property
    def _num_rows(self) -> int:
        return len(self.point.stages)

    @property
    def _high(self) -> float:
        return 0.86 * self.row

    @property
    def _scale(self) -> float:
        """Points per second."""
        return _CHART_WIDTH / self.end_s

    def _box(self, stage: int, top: float) -> float:
        """Upper edge of the boxes of a stage."""
        return top + stage * self.row + 0.07 * self.row

    def _span(self, stage: int, top: float, start_s: float, end_s: float) -> list[Point]:
        x = _LABEL_WIDTH + start_s * self._scale
        return rectangle(x, self._box(stage, top), (end_s - start_s) * self._scale, self._high)

    def _index(self, micro_batch: int) -> int:
        """Number of a micro-batch that is shown: those in the middle may be left out."""
        left_out = self.point.plan.num_micro_batches - self.shown
        return micro_batch if micro_batch < self.shown // 2 else micro_batch + left_out


def pipeline_panel(point: PlanPointDoc) -> PipelinePanel:
    """Lay out the chart of a plan; of many micro-batches the first and the last are shown."""
    stages = point.stages
    if point.plan.virtual_stages > 1:
        shown = min(point.plan.num_micro_batches, 2 * len(stages))
        passes = _of_parts(point, shown)
    else:
        shown = min(point.plan.num_micro_batches, max(8, 2 * len(stages) + 2))
        passes = schedule([stage.forward_s for stage in stages], [stage.backward_s for stage in stages], shown)
    left_out = point.plan.num_micro_batches - shown
    row = max(_LEAST_ROW, min(_ROW, _MOST_HEIGHT / len(stages)))
    return PipelinePanel(
        point=point,
        passes=passes,
        shown=shown,
        row=row,
        end_s=_end_s(passes, stages),
        width=_LABEL_WIDTH + _CHART_WIDTH + _GAP + _MEMORY_WIDTH,
        height=1.6 * LINE_PT + row * len(stages) + _AXIS + (_FOOT if left_out else 0.5 * _FOOT),
    )


def _of_parts(point: PlanPointDoc, num_micro_batches: int) -> tuple[Pass, ...]:
    """Passes of the parts of all stages, by stage, then time; a part takes its share of the stage's time."""
    plan, pp = point.plan, len(point.stages)
    order = schedule_of(plan.schedule, pp, plan.virtual_stages, num_micro_batches)
    share = np.full((plan.virtual_stages, pp), 1.0 / plan.virtual_stages)
    forward_s, backward_s, weight_s = (
        of_parts(order, np.array([getattr(stage, name) for stage in point.stages]), share)
        for name in ("forward_s", "backward_s", "weight_s")
    )
    found = simulate(order, StageTimes(forward_s=forward_s, backward_s=backward_s, weight_s=weight_s))
    passes = [
        Pass(
            stage=int(order.device_of(np.array(virtual))),
            micro_batch=k,
            backward=kind is not PassKind.FORWARD,
            weight=kind is PassKind.WEIGHT,
            start_s=float(found.start_s[kind, virtual, k]),
            end_s=float(found.end_s[kind, virtual, k]),
        )
        for kind in list(PassKind)[: order.num_kinds]
        for virtual in range(order.num_virtual)
        for k in range(num_micro_batches)
    ]
    return tuple(sorted(passes, key=lambda one: (one.stage, one.start_s)))


def _name_of(one: Pass) -> str:
    """Kind of a pass as a word."""
    return "weight" if one.weight else "backward" if one.backward else "forward"


def _end_s(passes: Sequence[Pass], stages: Sequence[StageDetailDoc]) -> float:
    """When the last stage is done, optimiser included."""
    return max(
        one.end_s + stages[one.stage].exposed_reduction_s + stages[one.stage].optimizer_s
        for one in passes
        if one.backward
    )


def _tick_step(end_s: float) -> float:
    """A 1-2-5 step with at most eight ticks."""
    steps = (factor * 10.0**power for power in range(-7, 9) for factor in (1, 2, 5))
    return next(step for step in steps if end_s / step <= 8)


def _time(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 or seconds == 0 else f"{seconds * _MS_PER_S:g} ms"
