"""What the command line prints: tables, progress, errors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.columns import Columns
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table
from rich.text import Text

from api.cli.local_worker import Watcher
from api.common.examples import Example
from api.common.wording import number, percent, termination_words
from models.plan import JobAllocation, Plan, PlanOutcome, PretrainingPlacement
from models.wording import counted
from models.workload import NodeGpus
from solver.monitor import Progress
from solver.options import SolveOptions
from stowplan.errors import Issue, StowplanError

_PIPE_WIDTH = 140
_MAX_NODES_SHOWN = 4
_MAX_HOSTS_SHOWN = 32
_MAX_ISSUES_SHOWN = 40


def output() -> Console:
    """Where answers go; wide when it is no terminal."""
    return _wide(Console(highlight=False))


def errors() -> Console:
    """Where everything else goes."""
    return _wide(Console(stderr=True, highlight=False))


def print_error(error: StowplanError) -> None:
    """The detail, and a line per issue with its pointer."""
    console = errors()
    console.print(f"[bold red]error:[/] {escape(error.detail)}", soft_wrap=True)
    print_issues(console, error.issues)


def print_issues(console: Console, issues: Sequence[Issue]) -> None:
    """One line per issue, as many as can be read."""
    for issue in issues[:_MAX_ISSUES_SHOWN]:
        console.print(f"  {escape(issue.pointer or '/')}: {escape(issue.detail)}", soft_wrap=True)
    if len(issues) > _MAX_ISSUES_SHOWN:
        console.print(f"  and {len(issues) - _MAX_ISSUES_SHOWN} more")


def print_warnings(issues: Sequence[Issue]) -> None:
    """One line per warning."""
    console = errors()
    for issue in issues:
        console.print(f"[yellow]warning:[/] {escape(issue.pointer or '/')}: {escape(issue.detail)}", soft_wrap=True)


@contextmanager
def progress_line(title: str = "") -> Iterator[Watcher]:
    """A line that follows a solve, where somebody looks on; `title` stands before it."""
    console = errors()
    if not console.is_terminal:
        yield Watcher(on_progress=lambda *_: None, on_stop=lambda: None)
        return
    with console.status(f"{title}starting") as status:
        yield _watcher(status, title)


def print_outcome(console: Console, policy: str, outcome: PlanOutcome, options: SolveOptions | None = None) -> None:
    """Everything about an outcome that fits a terminal."""
    console.print(_summary(policy, outcome, options))
    if outcome.conflicts:
        console.print("these constraints exclude each other:")
        for name in outcome.conflicts:
            console.print(f"  {escape(name)}")
    if outcome.plan is not None:
        _print_plan(console, outcome.plan)


def violations_table(violations: Sequence[Issue]) -> Table:
    """Violations of a placement."""
    table = Table("rule", "where", "what", box=None, pad_edge=False, header_style="bold")
    for issue in violations:
        table.add_row(issue.code, escape(issue.pointer), escape(issue.detail))
    return table


def examples_table(known: Sequence[Example]) -> Table:
    """The packaged examples."""
    table = Table("example", "policy", "title", box=None, pad_edge=False, header_style="bold")
    for example in known:
        table.add_row(example.id, str(example.request["policy"]), escape(example.title))
    return table


def _wide(console: Console) -> Console:
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def _watcher(status: Status, title: str) -> Watcher:
    stopping = title

    def on_progress(progress: Progress | None, elapsed_s: float) -> None:
        status.update(stopping + _progress_words(progress, elapsed_s))

    def on_stop() -> None:
        nonlocal stopping
        stopping = f"{title}stopping (Ctrl-C again quits)  "
        status.update(stopping)

    return Watcher(on_progress=on_progress, on_stop=on_stop)


def _progress_words(progress: Progress | None, elapsed_s: float) -> str:
    if progress is None:
        return f"building  {elapsed_s:.1f} s"
    gap = None
    if progress.objective is not None and progress.bound is not None:
        gap = abs(progress.objective - progress.bound) / max(abs(progress.objective), 1e-10)
    return (
        f"solving  incumbent {number(progress.objective)}  bound {number(progress.bound)}  gap {percent(gap)}  "
        f"{elapsed_s:.1f} s"
    )


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
    if plan.unplaced:
        console.print()
        table = Table("without GPUs", "reason", "detail", "remedy", box=None, pad_edge=False, header_style="bold")
        for job in plan.unplaced:
            reason = f"{job.reason}, preempted" if job.preempted else job.reason
            table.add_row(*(escape(words) for words in (job.job_id, reason, job.detail, job.remedy)))
        console.print(table)
    if plan.pretraining is not None:
        _print_pretraining(console, plan.pretraining)


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
        plan = ("-" if job.parallel_plan is None else job.parallel_plan.notation(),) if planned else ()
        table.add_row(*(escape(words) for words in (*cells, *plan, _where(job.gpus))))
    return table


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
