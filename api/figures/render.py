"""From an outcome to the bytes of its picture."""

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from matplotlib.figure import Figure

from api.common.wording import number, percent, termination_words
from api.figures.ahead import ahead_figure
from api.figures.cluster import CellGroup, capacity_words, cluster_panel, job_groups
from api.figures.head import Head
from api.figures.legend import Entry
from api.figures.matrix import matrix_panel
from api.figures.picture_format import PictureFormat
from api.figures.request import FigureRequest
from api.figures.style import (
    INK,
    LINE_PT,
    TEXT_SIZE,
    Fill,
    drawing_style,
    printable,
    text_width,
    write,
)
from models.plan import JobAllocation, Plan, PlanOutcome, PretrainingPlacement
from models.wording import counted
from models.workload import NodeGpus, Snapshot
from solver.monitor import SolveMonitor

_MARGIN = 14.0
_PANEL_GAP = 26.0
_MAX_WIDTH = 830.0
_MAX_PAIR_WIDTH = 980.0
_MAX_HEIGHT = 620.0
_MIN_WIDTH = 380.0
_PNG_DPI = 144
_POINTS_PER_INCH = 72.0
_MAX_CONFLICTS = 12
_OTHER = Fill(colour="#B8B8B8", hatch="", ink=INK)


class Panel(Protocol):
    """A part of the picture that knows its size."""

    @property
    def width(self) -> float:
        """Points."""
        ...

    @property
    def height(self) -> float:
        """Points."""
        ...

    def draw(self, axes: Any) -> None:
        """Draw on axes whose data units are points, y downwards."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextPanel:
    """Lines of text."""

    lines: tuple[str, ...]

    @property
    def width(self) -> float:
        return max(text_width(line, TEXT_SIZE) for line in self.lines)

    @property
    def height(self) -> float:
        return len(self.lines) * LINE_PT

    def draw(self, axes: Any) -> None:
        for k, line in enumerate(self.lines):
            write(axes, 0.0, (k + 0.5) * LINE_PT, line)


def figure_task(request: FigureRequest, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's calling convention
    """Entry point of workers."""
    return render(request)


def render(request: FigureRequest) -> bytes:
    """Draw the outcome; the same request gives the same bytes."""
    snapshot, outcome = request.snapshot, request.outcome
    with drawing_style(), warnings.catch_warnings():
        # Names may hold characters that the font lacks; they become boxes in a PNG and stay themselves in an SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        if outcome.plan is None:
            panels: list[Panel] = [_TextPanel(lines=_explanation(outcome))]
            title = f"No plan: {outcome.termination.replace('_', ' ')}"
        elif outcome.plan.pretraining is not None:
            panels = _pretraining_panels(snapshot, outcome.plan, outcome.plan.pretraining)
            title = _pretraining_title(outcome.plan, snapshot, outcome.plan.pretraining)
        elif outcome.plan.ahead:
            return save(ahead_figure(snapshot, outcome.plan.ahead, _outcome_words(outcome)), request.format)
        else:
            groups = job_groups(outcome.plan)
            panels = [cluster_panel(snapshot, outcome.plan, groups, _MAX_WIDTH, _MAX_HEIGHT, _MIN_WIDTH)]
            title = _allocation_title(snapshot, outcome.plan)
        return save(compose(title, _outcome_words(outcome), panels), request.format)


def compose(title: str, subtitle: str, panels: Sequence[Panel]) -> Figure:
    """Panels side by side under a title; one data unit of every axes is one point."""
    inner = max(sum(panel.width for panel in panels) + (len(panels) - 1) * _PANEL_GAP, _MIN_WIDTH)
    head = Head.of(inner, title, subtitle)
    width, height = inner + 2 * _MARGIN, head.height + max(panel.height for panel in panels) + 2 * _MARGIN
    figure = Figure(figsize=(width / _POINTS_PER_INCH, height / _POINTS_PER_INCH), facecolor="white")
    head.draw(page_axes(figure, _MARGIN, _MARGIN, inner, head.height))
    x = _MARGIN
    for panel in panels:
        panel.draw(page_axes(figure, x, _MARGIN + head.height, panel.width, panel.height))
        x += panel.width + _PANEL_GAP
    return figure


def page_axes(figure: Figure, x: float, y: float, width: float, height: float) -> Any:
    """Axes without decoration whose upper left corner is at (x, y) of the page."""
    page_width, page_height = (_POINTS_PER_INCH * inches for inches in figure.get_size_inches())
    rectangle = (x / page_width, 1 - (y + height) / page_height, width / page_width, height / page_height)
    axes = figure.add_axes(rectangle, xlim=(0.0, width), ylim=(height, 0.0))
    axes.set_axis_off()
    return axes


def save(figure: Figure, format_: PictureFormat) -> bytes:
    """The bytes of a picture; equal pictures have equal bytes."""
    buffer = io.BytesIO()
    # Dates and versions in the metadata would make equal pictures differ.
    metadata = {"Date": None, "Creator": "stowplan"} if format_ == "svg" else {"Software": "stowplan"}
    figure.savefig(buffer, format=format_, dpi=_PNG_DPI, metadata=metadata)
    return buffer.getvalue()


def _pretraining_panels(snapshot: Snapshot, plan: Plan, placement: PretrainingPlacement) -> list[Panel]:
    """Matrix and cluster; the job's nodes have the same minipod colours and ranks in both."""
    matrix = matrix_panel(placement, _MAX_HEIGHT)
    minipod_of = {
        node: minipod
        for nodes, minipods in zip(placement.cells, placement.minipods, strict=True)
        for node, minipod in zip(nodes, minipods, strict=True)
    }
    cluster = cluster_panel(
        snapshot,
        plan,
        _minipod_groups(plan, placement, matrix.fills, minipod_of) + _other_jobs(plan, placement),
        _MAX_PAIR_WIDTH - matrix.width - _PANEL_GAP,
        _MAX_HEIGHT,
        node_texts={node: (str(rank), matrix.fills[minipod_of[node]]) for rank, node in enumerate(placement.hosts)},
        unit_fills=_unit_fills(snapshot, matrix.fills),
    )
    return [matrix, cluster]


def _minipod_groups(
    plan: Plan, placement: PretrainingPlacement, fills: Mapping[str, Fill], minipod_of: Mapping[str, str]
) -> list[CellGroup]:
    """The GPUs of the pre-training job by minipod. The matrix has the legend."""
    pieces = next(job.gpus for job in plan.allocations if job.job_id == placement.job_id)
    return [
        CellGroup(
            gid=f"minipod-{k}",
            entry=Entry(fill=fill_, label=""),
            slices=tuple(piece for piece in pieces if minipod_of[piece.node] == minipod),
        )
        for k, (minipod, fill_) in enumerate(fills.items())
    ]


def _other_jobs(plan: Plan, placement: PretrainingPlacement) -> list[CellGroup]:
    """Everything else that has GPUs, in one colour: the picture is about the pre-training job."""
    others = [job for job in plan.allocations if job.job_id != placement.job_id]
    if not others:
        return []
    label = f"{counted(len(others), 'other job')} ({counted(sum(job.num_gpus for job in others), 'GPU')})"
    return [CellGroup(gid="other-jobs", entry=Entry(fill=_OTHER, label=label), slices=_slices(others))]


def _slices(jobs: Sequence[JobAllocation]) -> tuple[NodeGpus, ...]:
    return tuple(piece for job in jobs for piece in job.gpus)


def _unit_fills(snapshot: Snapshot, fills: Mapping[str, Fill]) -> dict[tuple[str, ...], Fill]:
    """Fills by unit path; minipods are named by their path joined with slashes."""
    paths = {node.path[: k + 1] for node in snapshot.cluster.nodes for k in range(len(node.path))}
    return {path: fills["/".join(path)] for path in paths if "/".join(path) in fills}


def _pretraining_title(plan: Plan, snapshot: Snapshot, placement: PretrainingPlacement) -> str:
    """The job with its degrees of parallelism."""
    job = next(job for job in snapshot.jobs if job.id == placement.job_id)
    degrees = f": TP {job.parallelism.tp}, PP {job.parallelism.pp}, DP {job.parallelism.dp}" if job.parallelism else ""
    gpus = next(job.num_gpus for job in plan.allocations if job.job_id == placement.job_id)
    return f"{job.id}{degrees} ({counted(gpus, 'GPU')}, {counted(len(placement.hosts), 'node')})"


def _allocation_title(snapshot: Snapshot, plan: Plan) -> str:
    used = sum(job.num_gpus for job in plan.allocations)
    placed = f"{len(plan.allocations)} of {counted(len(snapshot.jobs), 'job')}"
    return f"{placed} on {used} of {capacity_words(snapshot.cluster)}"


def _outcome_words(outcome: PlanOutcome) -> str:
    """How good the answer is, in one line."""
    words = [termination_words(outcome)]
    if outcome.objective is not None:
        words.append(f"objective {number(outcome.objective)} ({outcome.sense})")
    if outcome.bound is not None:
        words.append(f"bound {number(outcome.bound)}")
    if outcome.relative_gap is not None:
        words.append(f"gap {percent(outcome.relative_gap)}")
    return " · ".join([*words, f"{outcome.solver} {outcome.solver_version}"])


def _explanation(outcome: PlanOutcome) -> tuple[str, ...]:
    """Why there is no plan."""
    if not outcome.conflicts:
        return ("The solve ended without a feasible point; nothing is allocated.",)
    shown = outcome.conflicts[:_MAX_CONFLICTS]
    rest = len(outcome.conflicts) - len(shown)
    lines = [line for name in shown for line in textwrap.wrap(f"- {printable(name)}", 90, subsequent_indent="  ")]
    more = [f"- and {rest} more"] if rest else []
    return ("These constraints exclude each other:", *lines, *more)
