"""What the command line prints of a plan."""

from collections.abc import Sequence

from rich.columns import Columns
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from api.common.wording import number, percent, termination_words
from models.parallel_plan import ParallelPlan
from models.plan import AheadPlacement, JobAllocation, Plan, PlanOutcome, PretrainingPlacement, Promise, UnplacedJob
from models.wording import counted
from models.workload import NodeGpus
from solver.options import SolveOptions

_MAX_NODES_SHOWN = 4
_MAX_HOSTS_SHOWN = 32
_MAX_MOVES_SHOWN = 8
_MAX_STARTS_SHOWN = 8
_DAY_S, _HOUR_S = 86_400.0, 3600.0


def print_outcome(console: Console, policy: str, outcome: PlanOutcome, options: SolveOptions | None = None) -> None:
    """Everything about an outcome that fits a terminal."""
    console.print(_summary(policy, outcome, options))
    _print_unplaced(console, outcome.unplaced)
    if outcome.conflicts:
        console.print("these constraints exclude each other:")
        for name in outcome.conflicts:
            console.print(f"  {escape(name)}")
    if outcome.plan is not None:
        _print_plan(console, outcome.plan)


def _summary(policy: str, outcome: PlanOutcome, options: SolveOptions | None) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    solver = f"{outcome.solver} {outcome.solver_version}"
    if options is not None:
        solver += f", {counted(options.threads, 'thread')}, seed {options.seed}"
    for name, words in (
        ("policy", policy),
        ("status", termination_words(outcome)),
        ("objective", f"{number(outcome.objective)} ({outcome.sense})"),
        ("bound", f"{number(outcome.bound)}, gap {percent(outcome.relative_gap)}"),
        ("verified", "yes, by a check that knows no solver" if outcome.plan is not None else "-"),
        ("solver", solver),
        ("certificate", outcome.certificate or "-"),
        ("time", _time_words(outcome)),
    ):
        table.add_row(f"[bold]{name}[/]", escape(words))
    return table


def _time_words(outcome: PlanOutcome) -> str:
    phases = ", ".join(f"{name} {wall_s:.3f}" for name, wall_s in outcome.times.wall_s.items())
    total_s = sum(outcome.times.wall_s.values())
    first_s = outcome.statistics.first_incumbent_s
    first = "" if first_s is None else f"; first incumbent after {first_s:.3f} s"
    return f"{total_s:.3f} s ({phases}){first}"


def _print_plan(console: Console, plan: Plan) -> None:
    if plan.allocations:
        console.print()
        console.print(_allocations_table(plan.allocations))
    _print_reasons(console, plan.allocations)
    _print_unplaced(console, plan.unplaced)
    if plan.pretraining is not None:
        _print_pretraining(console, plan.pretraining)
    if plan.ahead:
        _print_ahead(console, plan.ahead)


def _print_reasons(console: Console, allocations: Sequence[JobAllocation]) -> None:
    changed = [(job.job_id, job.why.detail) for job in allocations if job.why is not None]
    if not changed:
        return
    console.print()
    table = Table("changes", "why", box=None, pad_edge=False, header_style="bold")
    for words in changed:
        table.add_row(*map(escape, words))
    console.print(table)


def _print_unplaced(console: Console, jobs: Sequence[UnplacedJob]) -> None:
    if not jobs:
        return
    console.print()
    table = Table("without GPUs", "reason", "detail", "remedy", box=None, pad_edge=False, header_style="bold")
    for job in jobs:
        reason = f"{job.reason}, preempted" if job.preempted else job.reason
        table.add_row(*(escape(words) for words in (job.job_id, reason, job.detail, job.remedy)))
    console.print(table)


def _allocations_table(allocations: Sequence[JobAllocation]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("job", "left"), ("GPUs", "right"), ("type", "left"), ("change", "left")):
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    table.add_column("batch", justify="right")
    table.add_column("goodput", justify="right")
    planned = any(job.parallel_plan is not None for job in allocations)
    if planned:
        table.add_column("plan", overflow="fold")
    table.add_column("where", overflow="fold")
    for job in allocations:
        batch = "-" if job.batch_size is None else str(job.batch_size)
        cells = (job.job_id, str(job.num_gpus), job.gpu_type, job.change.value, batch, number(job.expected_goodput))
        plan = ("-" if job.parallel_plan is None else _plan_words(job.parallel_plan),) if planned else ()
        table.add_row(*(escape(words) for words in (*cells, *plan, _where(job.gpus))))
    return table


def _plan_words(plan: ParallelPlan) -> str:
    return plan.notation() if plan.training is None else f"{plan.notation()}; {plan.training.words}"


def _print_pretraining(console: Console, placement: PretrainingPlacement) -> None:
    spread, distance = placement.minipod_spread, placement.distance
    console.print()
    table = Table("largest spread", "minipods", "distance (Eq. 3)", box=None, pad_edge=False, header_style="bold")
    table.add_row("DP groups", str(spread.dp), str(distance.dp))
    table.add_row("PP groups", str(spread.pp), str(distance.pp))
    console.print(table)
    source = f"alpha {placement.alpha:.3g}, beta {placement.beta:.3g}: {placement.affinity_source}"
    console.print(escape(f"{source}; {counted(placement.num_minipods_used, 'minipod')} used"))
    shown = placement.hosts[:_MAX_HOSTS_SHOWN]
    rest = len(placement.hosts) - len(shown)
    console.print("[bold]hosts in rank order[/]" + (f" (the first {len(shown)}; --json lists all)" if rest else ""))
    digits = len(str(len(shown) - 1))
    console.print(Columns([Text(f"{rank:>{digits}} {node}") for rank, node in enumerate(shown)], padding=(0, 2)))
    if placement.spares:
        console.print(escape(f"spare nodes: {', '.join(placement.spares[:_MAX_HOSTS_SHOWN])}"))


def _print_ahead(console: Console, planned: Sequence[AheadPlacement]) -> None:
    """When jobs start, where, what is expected by then, and what other starts cost."""
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("planned ahead", "start", "kept until", "nodes", "TPxPPxDP", "minipods", "DP/PP spread", "evicted"):
        table.add_column(name, justify="left" if name == "planned ahead" else "right")
    table.add_column("idle", justify="right")
    for job in planned:
        placement, end = job.placement, "for ever" if job.end_s is None else _days(job.end_s)
        spread = f"{placement.minipod_spread.dp}/{placement.minipod_spread.pp}"
        degrees = f"{job.parallelism.tp}x{job.parallelism.pp}x{job.parallelism.dp}"
        table.add_row(
            *(escape(placement.job_id), _days(job.start_s), end, str(len(job.nodes)), degrees),
            *(str(placement.num_minipods_used), spread, f"{job.expected_evictions:.1f}"),
            f"{job.idle_s / _HOUR_S:.0f} node h",
        )
    console.print(table)
    for job in planned:
        if job.training is not None:
            said = f"{job.training.step_s:.3g} s a step, MFU {percent(job.training.mfu)}"
            console.print(
                escape(f"{job.placement.job_id}: {said}, {percent(job.training.goodput)} of the time at work")
            )
        if job.promise is not None:
            console.print(escape(_against(job, job.promise)))
        for move in job.moves[:_MAX_MOVES_SHOWN]:
            where = f"from {', '.join(move.from_nodes)} to {', '.join(move.to_nodes)}"
            console.print(escape(f"move {move.job_id} by {_days(move.latest_s)} {where}, at {number(move.price)}"))
        if len(job.moves) > _MAX_MOVES_SHOWN:
            console.print(f"and {counted(len(job.moves) - _MAX_MOVES_SHOWN, 'move')} more")
        busy = ", ".join(f"{_days(at.at_s)} {at.num_nodes:.0f}" for at in job.retention[::2])
        console.print(escape(f"nodes of {job.placement.job_id} still in use: {busy}"))
        shown = job.other_starts[:: -(-len(job.other_starts) // _MAX_STARTS_SHOWN)]
        starts = ", ".join(
            f"{_days(other.start_s)} {'-' if other.cost is None else number(other.cost)}" for other in shown
        )
        console.print(escape(f"cost of {job.placement.job_id} by start: {starts}"))


def _against(job: AheadPlacement, promise: Promise) -> str:
    """What has changed of a reservation."""
    start = "keeps its start" if job.start_s == promise.start_s else f"started at {_days(promise.start_s)}"
    changes = f"{counted(len(promise.new_nodes), 'new node')}, {len(promise.left_nodes)} left"
    return f"reservation {promise.reservation} of {job.placement.job_id} {start}; {changes}"


def _days(seconds: float) -> str:
    return f"{seconds / _DAY_S:.2f} d"


def _where(slices: Sequence[NodeGpus]) -> str:
    """`a100-1[0-3], a100-2[0-7]`."""
    shown = ", ".join(f"{part.node}[{_ranges(part.gpus)}]" for part in slices[:_MAX_NODES_SHOWN])
    rest = len(slices) - _MAX_NODES_SHOWN
    return shown if rest <= 0 else f"{shown}, +{counted(rest, 'node')}"


def _ranges(gpus: Sequence[int]) -> str:
    """Indices with runs drawn together: `0-3,6`."""
    runs: list[list[int]] = []
    for gpu in gpus:
        if runs and gpu == runs[-1][1] + 1:
            runs[-1][1] = gpu
        else:
            runs.append([gpu, gpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
