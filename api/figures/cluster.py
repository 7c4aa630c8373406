"""The cluster by tier and node, one cell per GPU, coloured by what runs on it."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.patches import FancyBboxPatch

from api.common.wording import degree_words
from api.figures.layout import Frame, Layout, lay_out
from api.figures.legend import Entry, Legend, lay_out_legend, state_line
from api.figures.style import (
    FAINT_INK,
    FRAME,
    FREE,
    IN_USE,
    INK,
    LINE_PT,
    OUT_OF_SERVICE,
    SMALL_SIZE,
    TEXT_SIZE,
    Fill,
    Point,
    add_polygons,
    fill,
    fitted,
    printable,
    rectangle,
    text_width,
    write,
    write_over,
)
from models.parallel_plan import Gpu
from models.plan import JobAllocation, Plan
from models.wording import counted
from models.workload import NodeGpus, Snapshot
from topology.cluster import Cluster, NodeState

_FREE = Fill(colour=FREE, hatch="", ink=INK)
_IN_USE = Fill(colour=IN_USE, hatch="", ink="#FFFFFF")
_OUT_OF_SERVICE = Fill(colour="#FFFFFF", hatch="//////", ink=OUT_OF_SERVICE)
# Room that is kept for the legend; it takes more where the cluster leaves more.
_MIN_LEGEND_ROWS = 7
_GAP = 8.0
_INSET = 0.05
_SMALLEST_TEXT = 4.5

Cells = Mapping[Gpu, Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellGroup:
    """GPUs that are filled alike; `gid` identifies their element in an SVG. Without a label: not in the legend."""

    gid: str
    entry: Entry
    slices: tuple[NodeGpus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPanel:
    """The cluster with its legend, ready to draw within `width` x `height`.

    `node_texts`: node id -> words written over its cells and the fill below them. `unit_fills`: unit path -> fill
    that marks its frame.
    """

    layout: Layout
    groups: tuple[CellGroup, ...]
    states: tuple[CellGroup, ...]
    legend: Legend
    waiting: str
    width: float
    height: float
    node_texts: Mapping[str, tuple[str, Fill]]
    unit_fills: Mapping[tuple[str, ...], Fill]

    def draw(self, axes: Any) -> None:
        """Draw on axes whose data units are points, y downwards."""
        cells = _cells(self.layout)
        for frame in self.layout.frames:
            _draw_frame(axes, frame, self.unit_fills)
        self._draw_nodes(axes)
        for group in (*self.states, *self.groups):
            corners = [cells[place] for place in _places(group)]
            _draw_cells(axes, group.gid, group.entry.fill, corners, self.layout.metrics.cell)
        self._draw_keys(axes, cells)
        y = self.layout.height + _GAP
        self.legend.draw(axes, 0.0, y, "jobs")
        y += self.legend.height + (_GAP / 2 if self.legend.entries else 0.0)
        if self.states:
            state_line(axes, 0.0, y + LINE_PT / 2, [state.entry for state in self.states])
            y += LINE_PT
        write(axes, 0.0, y + LINE_PT / 2, self.waiting)

    def _draw_nodes(self, axes: Any) -> None:
        strip = self.layout.metrics.node_strip
        for state, style in ((NodeState.UP, "solid"), (NodeState.DRAINED, "dashed"), (NodeState.DOWN, "dotted")):
            boxes = [box for box in self.layout.boxes if box.node.state is state]
            corners = [rectangle(box.x, box.y + strip, box.width, box.height - strip) for box in boxes]
            width = min(0.6, 0.06 * self.layout.metrics.cell)
            add_polygons(
                axes, f"nodes-{state}", corners, facecolor="#FFFFFF", edgecolor=FRAME, linewidth=width, linestyle=style
            )
        for box in self.layout.boxes:
            if box.label:
                write(axes, box.x + box.width / 2, box.y + 0.45 * strip, box.label, SMALL_SIZE - 1, ha="center")

    def _draw_keys(self, axes: Any, cells: Cells) -> None:
        """Numbers that tie cells to the legend and ranks on nodes, where they fit."""
        cell = self.layout.metrics.cell
        size = _key_size(self.layout)
        boxes = {box.node.id: box for box in self.layout.boxes}
        for group in self.groups:
            for slice_ in group.slices if group.entry.key else ():
                x, y = _anchor([cells[slice_.node, gpu] for gpu in slice_.gpus], cell)
                write_over(axes, x, y, group.entry.key, size, group.entry.fill)
        strip = self.layout.metrics.node_strip
        for node, (text, fill_) in self.node_texts.items():
            box = boxes[node]
            size = min(TEXT_SIZE, 1.2 * cell)
            if size >= _SMALLEST_TEXT and text_width(text, size) <= box.width - 2.0:
                x, y = box.x + box.width / 2, box.y + (box.height + strip) / 2
                write_over(axes, x, y, text, size, fill_, band=(box.columns - 2 * _INSET) * cell)


def job_groups(plan: Plan) -> tuple[CellGroup, ...]:
    """The allocations of a plan, each job in a colour of its own."""
    return tuple(
        CellGroup(
            gid=f"job-{k}",
            entry=Entry(
                fill=fill(k),
                label=f"{job.job_id}  ({_about(job)})",
                key=str(k + 1),
                size=job.num_gpus,
            ),
            slices=job.gpus,
        )
        for k, job in enumerate(plan.allocations)
    )


def _about(job: JobAllocation) -> str:
    """What the job gets, and with which degrees it runs where a 3D plan says so."""
    words = [f"{job.num_gpus} {job.gpu_type}", job.change.value]
    if job.parallel_plan is not None:
        words.append(degree_words([(stage.dp, stage.tp) for stage in job.parallel_plan.stages]))
    return ", ".join(words)


def cluster_panel(
    snapshot: Snapshot,
    plan: Plan,
    groups: Sequence[CellGroup],
    max_width: float,
    max_height: float,
    min_width: float = 0.0,
    node_texts: Mapping[str, tuple[str, Fill]] | None = None,
    unit_fills: Mapping[tuple[str, ...], Fill] | None = None,
) -> ClusterPanel:
    """Lay out the cluster of `snapshot` under `plan` with the cells of `groups` filled."""
    states = _states(snapshot.cluster, {place for group in groups for place in _places(group)})
    num_lines = _MIN_LEGEND_ROWS + bool(states) + bool(plan.unplaced)
    fixed = 1.5 * _GAP + num_lines * LINE_PT
    layout = lay_out(snapshot.cluster, max_width, max_height - fixed)
    width = max(layout.width, min_width)
    keyed = _key_size(layout) >= _SMALLEST_TEXT
    groups = [group if keyed else replace(group, entry=replace(group.entry, key="")) for group in groups]
    entries = [group.entry for group in groups if group.entry.label]
    room = max_height - layout.height - (fixed - _MIN_LEGEND_ROWS * LINE_PT)
    legend = lay_out_legend(entries, width, int(room / LINE_PT))
    return ClusterPanel(
        layout=layout,
        groups=tuple(groups),
        states=states,
        legend=legend,
        waiting=_waiting(plan, width),
        width=width,
        height=layout.height + fixed - (_MIN_LEGEND_ROWS - legend.num_rows) * LINE_PT,
        node_texts=node_texts or {},
        unit_fills=unit_fills or {},
    )


def capacity_words(cluster: Cluster) -> str:
    """The GPUs of a cluster in words: `64 GPUs (24 t4, 40 a100)` or `16 a100 GPUs`."""
    counts: Counter[str] = Counter()
    for node in cluster.nodes:
        counts[node.gpu_type] += node.num_gpus
    if len(counts) == 1:
        return "".join(counted(count, f"{kind} GPU") for kind, count in counts.items())
    parts = ", ".join(f"{counts[kind.name]} {kind.name}" for kind in cluster.gpu_types if counts[kind.name])
    return f"{counted(counts.total(), 'GPU')} ({parts})"


def _waiting(plan: Plan, width: float) -> str:
    """Names of the jobs that get nothing, as many as fit one line."""
    names = [printable(job.job_id) for job in plan.unplaced]
    if not names:
        return ""

    def line(shown: int) -> str:
        rest = f", +{len(names) - shown} more" if shown < len(names) else ""
        return f"waiting ({len(names)}): " + ", ".join(names[:shown]) + rest

    # Every name takes more than a point: of thousands, only the first need to be measured.
    if len(names) <= width and text_width(line(len(names)), TEXT_SIZE) <= width:
        return line(len(names))
    counts = range(1, min(len(names), int(width)))
    if shown := bisect_right(counts, width, key=lambda shown: text_width(line(shown), TEXT_SIZE)):
        return line(shown)
    return fitted(f"{len(names)} waiting", TEXT_SIZE, width)


def _places(group: CellGroup) -> Iterator[Gpu]:
    """Node and index of every GPU of the group."""
    for slice_ in group.slices:
        for gpu in slice_.gpus:
            yield slice_.node, gpu


def _states(cluster: Cluster, taken: Collection[Gpu]) -> tuple[CellGroup, ...]:
    """GPUs that nobody in `taken` has, by why: free, used by other work, out of service."""
    slices: dict[str, list[NodeGpus]] = {"free": [], "other work": [], "drained or down": []}
    for node in cluster.nodes:
        idle = "free" if node.state is NodeState.UP else "drained or down"
        for words, in_use in ((idle, False), ("other work", True)):
            gpus = tuple(
                gpu
                for gpu in range(node.num_gpus)
                if (gpu in node.gpus_in_use) is in_use and (node.id, gpu) not in taken
            )
            slices[words].append(NodeGpus(node=node.id, gpus=gpus))
    sizes = {words: sum(len(part.gpus) for part in parts) for words, parts in slices.items()}
    return tuple(
        CellGroup(
            gid=words.replace(" ", "-"),
            entry=Entry(fill=fill_, label=f"{words} ({sizes[words]})"),
            slices=tuple(slices[words]),
        )
        for words, fill_ in zip(slices, (_FREE, _IN_USE, _OUT_OF_SERVICE), strict=True)
        if sizes[words]
    )


def _key_size(layout: Layout) -> float:
    """Font size of what is written on single cells."""
    return min(SMALL_SIZE, 0.55 * layout.metrics.cell)


def _cells(layout: Layout) -> dict[Gpu, Point]:
    """Upper left corner of the cell of every (node, GPU)."""
    metrics = layout.metrics
    return {
        (box.node.id, gpu): (
            box.x + metrics.node_padding + gpu % box.columns * metrics.cell,
            box.y + metrics.node_strip + metrics.node_padding + gpu // box.columns * metrics.cell,
        )
        for box in layout.boxes
        for gpu in range(box.node.num_gpus)
    }


def _anchor(corners: Sequence[Point], cell: float) -> Point:
    """Where to write on the cells: their middle if they form a rectangle, else the middle of the first."""
    xs, ys = {x for x, _ in corners}, {y for _, y in corners}
    spans = max(xs) - min(xs) < (len(xs) - 0.5) * cell and max(ys) - min(ys) < (len(ys) - 0.5) * cell
    if not (spans and len(xs) * len(ys) == len(corners)):
        xs, ys = {corners[0][0]}, {corners[0][1]}
    return (min(xs) + max(xs) + cell) / 2, (min(ys) + max(ys) + cell) / 2


def _draw_frame(axes: Any, frame: Frame, unit_fills: Mapping[tuple[str, ...], Fill]) -> None:
    mark = next((unit_fills[unit] for unit in frame.group.units if unit in unit_fills), None)
    radius = min(4.0, 0.1 * min(frame.width, frame.height))
    axes.add_artist(
        FancyBboxPatch(
            (frame.x + radius, frame.y + radius),
            frame.width - 2 * radius,
            frame.height - 2 * radius,
            boxstyle=f"round,pad={radius}",
            facecolor=(0.0, 0.0, 0.0, 0.025),
            edgecolor=mark.colour if mark else FRAME,
            clip_on=False,
            linewidth=1.8 if mark else (0.9 if frame.depth == 0 else 0.5),
        )
    )
    if frame.strip < SMALL_SIZE:
        return
    room = frame.width - 6.0
    long = f"{printable(frame.group.label)} · {counted(len(frame.group.nodes), 'node')}"
    words = long if text_width(long, SMALL_SIZE) <= room else fitted(frame.group.label, SMALL_SIZE, room)
    write(axes, frame.x + 4.0, frame.y + 0.62 * frame.strip, words, SMALL_SIZE, color=INK if mark else FAINT_INK)


def _draw_cells(axes: Any, gid: str, fill_: Fill, corners: Sequence[Point], cell: float) -> None:
    inset = _INSET * cell
    polygons = [rectangle(x + inset, y + inset, cell - 2 * inset, cell - 2 * inset) for x, y in corners]
    hatched = {"hatch": fill_.hatch, "edgecolor": fill_.ink} if fill_.hatch else {"edgecolor": "none"}
    add_polygons(axes, gid, polygons, facecolor=fill_.colour, linewidth=0.0, **hatched)
