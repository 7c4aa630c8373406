"""Plans beside each other: jobs that differ in colours of their own, the same in every panel, all others in grey."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from api.common.wording import number
from api.figures.cluster import CellGroup, ClusterPanel, capacity_words, cluster_panel
from api.figures.legend import Entry
from api.figures.render import compose, save
from api.figures.request import DifferenceFigure
from api.figures.style import (
    FAINT_INK,
    INK,
    LINE_PT,
    TEXT_SIZE,
    Fill,
    drawing_style,
    fill,
    fitted,
    write,
)
from models.plan import Plan
from models.what_if.difference import JobDifference, Planned, difference
from models.wording import counted
from models.workload import NodeGpus, Snapshot
from solver.monitor import SolveMonitor

# More would be too small to be read.
_MOST_OTHERS = 3
_PAGE_WIDTH, _MAX_HEIGHT, _MIN_PANEL = 1100.0, 600.0, 260.0
_HEAD = 2.4 * LINE_PT
_SAME = Fill(colour="#C4C4C4", hatch="", ink=INK)
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _TitledPanel:
    """A cluster under the name of its plan and a line about it."""

    title: str
    words: str
    cluster: ClusterPanel

    @property
    def width(self) -> float:
        return self.cluster.width

    @property
    def height(self) -> float:
        return self.cluster.height + _HEAD

    def draw(self, axes: Any) -> None:
        write(axes, 0.0, 0.5 * LINE_PT, fitted(self.title, TEXT_SIZE, self.width, bold=True), fontweight="bold")
        write(axes, 0.0, 1.5 * LINE_PT, fitted(self.words, TEXT_SIZE, self.width), color=FAINT_INK)
        figure, box = axes.figure, axes.get_position()
        share = self.cluster.height / self.height
        below = figure.add_axes(
            (box.x0, box.y0, box.width, box.height * share),
            xlim=(0.0, self.width),
            ylim=(self.cluster.height, 0.0),
        )
        below.set_axis_off()
        self.cluster.draw(below)


def figure_task(request: DifferenceFigure, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's calling convention
    """Entry point of workers."""
    return render(request)


def render(request: DifferenceFigure) -> bytes:
    """Draw the plans that there are; the same request gives the same bytes."""
    base = request.base
    there = [(name, other) for name, other in request.others if other.outcome.plan is not None]
    shown = there[:_MOST_OTHERS]
    found = [difference(base, other) for _, other in shown]
    moved: list[dict[str, JobDifference]] = [{job.job_id: job for job in each.jobs} if each else {} for each in found]
    fills = {name: fill(k) for k, name in enumerate(sorted({name for each in moved for name in each}))}
    width = max(_MIN_PANEL, _PAGE_WIDTH / (1 + len(shown)))
    with drawing_style(), warnings.catch_warnings():
        # Names may hold characters that the font lacks; they become boxes in a PNG and stay themselves in an SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        panels = [_panel("base", base, {}, fills, width)]
        panels += [_panel(name, other, jobs, fills, width) for (name, other), jobs in zip(shown, moved, strict=True)]
        rest = len(request.others) - len(shown)
        words = f"{counted(len(fills), 'job')} in colour: what they get differs; all others in grey"
        more = f" · {counted(rest, 'variant')} not drawn" if rest else ""
        title = f"What if: {', '.join(name for name, _ in shown) or 'no other plan'}"
        return save(compose(title, words + more, panels), request.format)


def _panel(
    title: str, planned: Planned, moved: Mapping[str, JobDifference], fills: Mapping[str, Fill], width: float
) -> _TitledPanel:
    plan, outcome = planned.outcome.plan, planned.outcome
    snapshot = planned.request.snapshot
    plan = plan or Plan(allocations=(), unplaced=outcome.unplaced, score=())
    later = {placed.placement.job_id for placed in plan.ahead}
    plan = replace(plan, unplaced=tuple(job for job in plan.unplaced if job.job_id not in later))
    groups = list(_groups(snapshot, plan, moved, fills))
    words = f"{planned.request.policy}, objective {number(outcome.objective)}; {capacity_words(snapshot.cluster)}"
    cluster = cluster_panel(snapshot, plan, groups, width, _MAX_HEIGHT, _MIN_PANEL)
    return _TitledPanel(title=title, words=words, cluster=cluster)


def _groups(
    snapshot: Snapshot, plan: Plan, moved: Mapping[str, JobDifference], fills: Mapping[str, Fill]
) -> Iterator[CellGroup]:
    """Jobs that differ nowhere together, then those that do, each with its number in all panels: what starts later
    lies over what runs there now."""
    placed = list(_placed(snapshot, plan))
    alike = [gpus for name, _, gpus, _ in placed if name not in fills]
    if alike:
        slices = tuple(part for gpus in alike for part in gpus)
        size = sum(len(part.gpus) for part in slices)
        label = f"{counted(len(alike), 'job')} alike in all  ({counted(size, 'GPU')})"
        yield CellGroup(gid="alike", entry=Entry(fill=_SAME, label=label, size=size), slices=slices)
    keys = {name: str(k + 1) for k, name in enumerate(fills)}
    for name, gpu_type, gpus, start in placed:
        if name in fills:
            size = sum(len(part.gpus) for part in gpus)
            words = [f"{size} {gpu_type}{start}"] + ([moved[name].change.value] if name in moved else [])
            entry = Entry(fill=fills[name], label=f"{name}  ({', '.join(words)})", key=keys[name], size=size)
            yield CellGroup(gid=f"job-{keys[name]}", entry=entry, slices=tuple(gpus))


def _placed(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[str, str, Sequence[NodeGpus], str]]:
    """Name, GPU type, GPUs of every job that has some, or a start, and when that is."""
    for job in plan.allocations:
        yield job.job_id, job.gpu_type, job.gpus, ""
    sizes = {node.id: node.num_gpus for node in snapshot.cluster.nodes} if plan.ahead else {}
    for placed in plan.ahead:
        gpus = [NodeGpus(node=host, gpus=tuple(range(sizes[host]))) for host in placed.placement.hosts]
        yield placed.placement.job_id, placed.gpu_type, gpus, f" from {placed.start_s / _DAY_S:.2f} d"
