"""Results on a terminal."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.suite import words
from benchmarks.suite.record import RunRecord, Status, SuiteResult
from benchmarks.suite.summary import REFERENCE, by_case, ratio
from benchmarks.suite.targets import verdicts

_PIPE_WIDTH = 160


def output() -> Console:
    """Standard output, wide when it is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def result_table(result: SuiteResult) -> Table:
    """One line per case and solver."""
    title = f"suite {result.protocol.suite}: CPU and wall clock from snapshot to checked plan, median (p95)"
    table = Table(box=SIMPLE_HEAD, title=title, caption=f"{words.UNPROVEN} not proven within the gap in every run")
    for name in ("case", "solver"):
        table.add_column(name, no_wrap=True)
    heads = ("runs", "CPU", "wall", f"{REFERENCE}/x", "objective", "bound", "gap", "checked", "MiB")
    for name in heads:
        table.add_column(name, justify="right")
    for of_case in by_case(result):
        base = of_case.get(REFERENCE)
        for position, summary in enumerate(of_case.values()):
            first = summary.runs[0]
            memory = summary.spread(lambda run: run.peak_memory_bytes)
            table.add_row(
                summary.case.name if position == 0 else "",
                summary.solver,
                str(len(summary.runs)),
                Text(words.cpu(summary), style="" if summary.is_proven else "yellow"),
                words.spread(summary.wall),
                words.times(ratio(base.runs, summary.runs)) if base and summary is not base else "",
                words.number(first.objective),
                words.number(first.bound),
                words.gap(summary.worst_gap),
                f"{summary.num_checked}/{len(summary.runs)}",
                words.mebibytes(None if memory is None else memory.median),
            )
    return table


def target_table(result: SuiteResult) -> Table | None:
    """Targets that the result says something about; None when there are none."""
    table = Table(title="targets: median CPU, worst case")
    table.add_column("target")
    for name in ("at most", "measured", "met"):
        table.add_column(name, justify="right")
    for verdict in verdicts([result]):
        if verdict.is_met is not None:
            table.add_row(
                verdict.target.text,
                words.seconds(verdict.target.limit_s),
                words.spread(verdict.worst),
                Text("yes", style="green") if verdict.is_met else Text("no", style="red"),
            )
    return table if table.row_count else None


def run_line(record: RunRecord) -> Text:
    """One finished run."""
    head = f"{record.case}  seed {record.seed}  run {record.run}  {record.solver:13}"
    if record.status is not Status.ANSWERED:
        return Text(f"{head} {record.status.value}: {record.message}", style="red")
    words_ = (
        f"{head} {words.seconds(record.total_cpu_s):>8} CPU  {record.termination}, gap {words.gap(record.relative_gap)}"
    )
    return Text(words_, style="" if record.is_proven else "yellow")
