"""3D-parallel plans on a terminal: the points, where the time of the best one goes, its stages."""

import math

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from api.common.wording import duration
from api.schemas.parallel_answer import MissingPointDoc, ParallelPlanAnswer, PlanPointDoc, TunerDoc
from models.wording import counted, size_of

_MS_PER_S = 1e3
_MAX_STAGES = 24
# Numbers of plans from here on are told as powers of ten.
_MANY = 1e7
_PARTS = (
    ("compute", "compute_s"),
    ("tensor parallel", "tensor_s"),
    ("ring attention", "ring_s"),
    ("all-to-all", "all_to_all_s"),
    ("data parallel", "data_s"),
    ("optimiser", "optimizer_s"),
    ("bubble", "bubble_s"),
    ("send", "send_s"),
    ("stragglers", "straggling_s"),
)


def print_answer(console: Console, answer: ParallelPlanAnswer) -> None:
    """Everything that fits a terminal."""
    job, best = answer.job, answer.best
    for issue in answer.warnings:
        console.print(f"[yellow]warning:[/] {escape(issue.pointer or '/')}: {escape(issue.detail)}", soft_wrap=True)
    console.print(
        f"[bold]{escape(job.name)}[/]: {job.num_parameters / 1e9:.3g} billion parameters, "
        f"{counted(job.num_layers, 'layer')}, global batch {job.global_batch}; planner {answer.planner.value}, "
        f"{duration(answer.elapsed_ms)}"
    )
    console.print()
    console.print(_points(answer))
    if len(answer.points) > 1:
        console.print("* the best of these: most samples per second; what follows is about it")
    console.print()
    console.print(f"[bold]best[/]: {escape(best.notation)} on {best.num_gpus} {escape(best.gpu_type)}")
    if best.bound_s is not None:
        console.print(_bound(best))
    if answer.alternatives:
        console.print(_alternatives(answer))
        console.print()
    if not best.fits:
        needed, usable = size_of(best.needed_bytes), size_of(best.usable_bytes)
        console.print(f"[red]does not fit[/]: {needed} per GPU are needed, {usable} usable")
    if efficiency := _efficiency(best):
        console.print(efficiency)
    console.print(_breakdown(best))
    console.print()
    console.print(_stages(best))
    if answer.measure_next is not None:
        found = answer.measure_next
        console.print(f"[bold]measure next[/]: {escape(found.notation)}: {escape(found.detail)}", soft_wrap=True)
    if answer.tuner is not None:
        console.print(tuner_words(answer.tuner), soft_wrap=True)


def tuner_words(tuner: TunerDoc) -> str:
    """What measuring would cost without the search, and with it."""
    before = tuner.num_before
    known = f"about 10^{math.log10(before):.0f}" if before >= _MANY else f"{before:,.0f}"
    return (
        f"to be sure by measuring: {counted(tuner.num_after, 'plan')} of the {known} that differ in layers, degrees or "
        f"GPUs of a stage on {tuner.num_gpus} {escape(tuner.gpu_type)}; the model has ruled out the others"
    )


def _alternatives(answer: ParallelPlanAnswer) -> Table:
    """Ways to train on the GPUs of the best point, the best one first."""
    best = answer.best
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("checkpointing")
    table.add_column("ZeRO", justify="right")
    table.add_column("iteration", justify="right")
    table.add_column("plan", overflow="fold")
    for other in answer.alternatives:
        if (other.gpu_type, other.num_gpus) == (best.gpu_type, best.num_gpus):
            table.add_row(
                "by stage" if other.training.by_stage else str(other.training.checkpointing or "-"),
                str(other.training.zero_stage),
                "-" if other.iteration_s is None else duration(other.iteration_s * _MS_PER_S),
                escape(other.notation or f"no plan: {other.why}"),
            )
    return table


def _points(answer: ParallelPlanAnswer) -> Table:
    """A row per number of GPUs, those without a plan too."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("type", "left"), ("GPUs", "right"), ("samples/s", "right"), ("iteration", "right")):
        table.add_column(name, justify="right" if justify == "right" else "left")
    table.add_column("per GPU", justify="right")
    table.add_column("plan", overflow="fold")
    rows: list[PlanPointDoc | MissingPointDoc] = [*answer.points, *answer.missing]
    types = list(dict.fromkeys(row.gpu_type for row in rows))
    for row in sorted(rows, key=lambda row: (types.index(row.gpu_type), row.num_gpus)):
        table.add_row(escape(row.gpu_type), str(row.num_gpus), *_cells(row, answer.best))
    return table


def _cells(row: PlanPointDoc | MissingPointDoc, best: PlanPointDoc) -> tuple[str, ...]:
    if isinstance(row, MissingPointDoc):
        return "-", "-", "-", escape(_why(row))
    low, high = (duration(seconds * _MS_PER_S) for seconds in (row.iteration_low_s, row.iteration_high_s))
    return (
        f"{row.throughput:.4g}",
        duration(row.iteration_s * _MS_PER_S) + (" measured" if row.measured else f" ({low} to {high})"),
        f"{row.throughput / row.num_gpus:.3g}",
        escape(row.notation) + (" *" if row == best else ""),
    )


def _why(missing: MissingPointDoc) -> str:
    if not missing.rejections:
        return "no plan"
    closest = missing.rejections[0]
    if closest.needed_bytes is None or closest.usable_bytes is None:
        return f"no plan: {closest.detail}"
    needed, usable = size_of(closest.needed_bytes), size_of(closest.usable_bytes)
    return f"no plan: {needed} per GPU at least, {usable} usable"


def _efficiency(point: PlanPointDoc) -> str:
    found = point.efficiency
    parts = [
        None if found.mfu is None else f"MFU {100 * found.mfu:.1f} %",
        None if found.tokens_per_s_per_gpu is None else f"{found.tokens_per_s_per_gpu:.4g} tokens/s per GPU",
        None if found.days is None else f"{found.days:.3g} days",
        None if found.joules_per_token is None else f"{found.joules_per_token:.3g} J per token (GPUs)",
        None if found.total_kwh is None else f"{found.total_kwh:,.0f} kWh",
    ]
    return ", ".join(part for part in parts if part is not None)


def _bound(best: PlanPointDoc) -> str:
    if not best.gap:
        return "no symmetric plan with even layers is predicted to be faster"
    return f"symmetric plans with even layers are predicted to be faster by {100 * best.gap:.2g} % at most"


def _breakdown(point: PlanPointDoc) -> Table:
    """Where the predicted time goes."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    for name, field in _PARTS:
        seconds = getattr(point.breakdown, field)
        if seconds > 0:
            table.add_row(name, duration(seconds * _MS_PER_S), f"{100 * seconds / point.breakdown.total_s:.1f} %")
    return table


def _stages(point: PlanPointDoc) -> Table:
    """Layers, degrees, times of a micro-batch and memory of every stage."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    own = any(stage.recomputing for stage in point.stages)
    names = ("stage", "layers", "DP", "TP", "forward", "backward", "memory of a GPU", "usable")
    for name in (*names, *(("recomputes",) if own else ())):
        table.add_column(name, justify="right")
    for i, stage in enumerate(point.stages[:_MAX_STAGES]):
        table.add_row(
            *(str(i), str(stage.num_layers), str(stage.dp), str(stage.tp)),
            duration(stage.forward_s * _MS_PER_S),
            duration(stage.backward_s * _MS_PER_S),
            size_of(stage.total_bytes),
            size_of(stage.usable_bytes),
            *((stage.recomputing,) if own else ()),
        )
    if len(point.stages) > _MAX_STAGES:
        table.add_row(f"+{len(point.stages) - _MAX_STAGES}", *[""] * 7)
    return table
