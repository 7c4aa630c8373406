"""Replays on a terminal, a column per policy."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from rich.markup import escape
from rich.table import Table

from api.cli import console
from api.cli.trace_console import time_words
from api.common.wording import duration
from executor.simulation.figures import Distribution, ReplayResult
from models.plan import Change


def print_results(results: Sequence[ReplayResult]) -> None:
    """The figures of all policies beside each other."""
    output, first = console.output(), results[0]
    output.print(f"[bold]{escape(first.trace)}[/] on {first.num_gpus:,} GPUs")
    columns: dict[str, list[ReplayResult]] = {}
    for result in results:
        columns.setdefault(result.name.replace(", ", "\n"), []).append(result)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column()
    for name in columns:
        table.add_column(escape(name), justify="right")
    for name, figure in _ROWS.items():
        table.add_row(name, *(figure(own[0]) for own in columns.values()))
    output.print(table)
    if len(columns) < len(results):
        output.print(f"\nThat was seed {first.seed}. Of {len(results) // len(columns)} seeds, mean (least to most):")
        output.print(_over_seeds(columns))
    if first.num_left_out:
        output.print(f"left out: {first.num_left_out:,} jobs of which it is not known how long they run")
    for own in columns.values():
        unfinished = max(result.num_jobs - result.num_finished for result in own)
        if unfinished:
            output.print(f"{own[0].name}: {unfinished:,} jobs did not end, and count until the end of the replay")


def _over_seeds(columns: Mapping[str, Sequence[ReplayResult]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column()
    for name in columns:
        table.add_column(escape(name), justify="right")
    for row, (of, words) in _OVER_SEEDS.items():
        cells = []
        for own in columns.values():
            values = [of(result) for result in own]
            cells.append(f"{words(fmean(values))} ({words(min(values))} to {words(max(values))})")
        table.add_row(row, *cells)
    return table


def _times(of: Callable[[ReplayResult], Distribution]) -> Callable[[ReplayResult], str]:
    def words(result: ReplayResult) -> str:
        spread = of(result)
        return " / ".join(time_words(value_s) for value_s in (spread.mean, spread.median, spread.p99))

    return words


def _kinds(result: ReplayResult) -> str:
    kinds = (Change.STARTED, Change.MOVED, Change.RESCALED, Change.RETYPED)
    return " / ".join(f"{result.restarts.get(kind.value, 0.0):.3g}" for kind in kinds)


def _decisions(result: ReplayResult) -> str:
    spread = result.decisions.cpu_s
    return " / ".join(duration(1e3 * value_s) for value_s in (spread.median, spread.p95, spread.most))


_ROWS: dict[str, Callable[[ReplayResult], str]] = {
    "jobs that ended": lambda result: f"{result.num_finished:,} of {result.num_jobs:,}",
    "submission to end: mean / median / p99": _times(lambda result: result.completion_s),
    "the same by GPUs asked for: mean": lambda result: time_words(result.weighted_completion_s),
    "each job alone: mean": lambda result: time_words(result.floor_completion_s),
    "waited: mean / median / p99": _times(lambda result: result.waited_s),
    "unfair: worst, share of jobs": lambda result: f"{result.most_unfair:.3g}, {100 * result.unfair_share:.1f} %",
    "deadlines met": lambda result: f"{result.num_deadlines_met:,} of {result.num_deadlines:,}",
    "makespan": lambda result: time_words(result.makespan_s),
    "GPUs with a job": lambda result: f"{100 * result.utilisation:.1f} %",
    "GPU hours": lambda result: f"{result.gpu_hours:,.1f}",
    "restarts a job": lambda result: f"{result.num_restarts:.3g}",
    "again / moved / rescaled / retyped": _kinds,
    "failures of jobs": lambda result: f"{result.failures:,}",
    "decisions, not needed": lambda result: f"{result.decisions.num_planned:,}, {result.decisions.num_skipped:,}",
    "CPU a decision: median / p95 / max": _decisions,
    "CPU of all decisions": lambda result: duration(1e3 * result.decisions.total_cpu_s),
    "CPU of the rest": lambda result: duration(1e3 * result.other_cpu_s),
}
_OVER_SEEDS: dict[str, tuple[Callable[[ReplayResult], float], Callable[[float], str]]] = {
    "submission to end: mean": (lambda result: result.completion_s.mean, time_words),
    "p99": (lambda result: result.completion_s.p99, time_words),
    "waited: mean": (lambda result: result.waited_s.mean, time_words),
    "makespan": (lambda result: result.makespan_s, time_words),
    "restarts a job": (lambda result: result.num_restarts, "{:.3g}".format),
    "unfair: worst": (lambda result: result.most_unfair, "{:.3g}".format),
}
