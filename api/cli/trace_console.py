"""The summary of a trace on a terminal."""

from collections.abc import Mapping
from datetime import UTC, datetime

from rich.markup import escape
from rich.table import Table

from api.cli import console
from models.wording import counted
from workloads.summary import Spread, TraceSummary

_UNITS = (("days", 86400.0), ("h", 3600.0), ("min", 60.0))
_MAX_ROWS = 12


def print_summary(summary: TraceSummary, cluster_gpus: int | None) -> None:
    """Everything that fits a terminal; the load as a share of a cluster's GPUs where these are known."""
    output = console.output()
    output.print(f"[bold]{escape(summary.name)}[/]")
    output.print(_facts(summary, cluster_gpus))
    output.print()
    output.print(_sizes(summary))
    named = {
        "states": summary.states,
        "queues": summary.queues,
        "GPU types": summary.gpu_types,
        "applications": summary.applications,
    }
    for title, counts in named.items():
        if counts:
            output.print(f"[bold]{title}[/]: {escape(_listed(counts))}", soft_wrap=True)
    if summary.missing:
        output.print(f"[bold]missing[/]: {_missing(summary)}", soft_wrap=True)
    if summary.left_out:
        output.print(f"[bold]left out[/]: {_listed(summary.left_out)}", soft_wrap=True)


def _facts(summary: TraceSummary, cluster_gpus: int | None) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    jobs = f"{summary.num_jobs:,}, {summary.num_gpu_jobs:,} with GPUs"
    table.add_row("jobs", jobs + (f", of {counted(summary.num_users, 'user')}" if summary.num_users else ""))
    if summary.origin_s is not None and summary.first_submit_s is not None and summary.last_submit_s is not None:
        first, last = (day(summary.origin_s + at_s) for at_s in (summary.first_submit_s, summary.last_submit_s))
        table.add_row("submitted", f"{first} to {last} UTC")
    rate = "" if summary.gpu_jobs_per_h is None else f", {summary.gpu_jobs_per_h:.3g} jobs with GPUs an hour"
    table.add_row("span", f"{time_words(summary.span_s)}{rate}")
    table.add_row("GPU hours", f"{summary.gpu_hours:,.1f}")
    if summary.mean_wanted_gpus is not None:
        share = (
            "" if cluster_gpus is None else f", {100 * summary.mean_wanted_gpus / cluster_gpus:.1f} % of the cluster"
        )
        at_most = f"{summary.most_wanted_gpus:,} at the busiest moment had no job waited"
        table.add_row("load", f"{summary.mean_wanted_gpus:,.1f} GPUs on average{share}; {at_most}")
    for name, spread in (("duration", summary.duration_s), ("waited", summary.waited_s)):
        if spread is not None:
            table.add_row(name, _spread(spread))
    if summary.num_sharing:
        table.add_row(
            "shared GPUs", f"{counted(summary.num_sharing, 'job')} asked for parts of GPUs, which count as whole ones"
        )
    if summary.num_cut_off:
        table.add_row(
            "cut off", f"{counted(summary.num_cut_off, 'job')} ran when last seen: may take longer than their durations"
        )
    return table


def _sizes(summary: TraceSummary) -> Table:
    """A row per number of GPUs; where there are many, those with the most jobs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("GPUs", "jobs", "share", "GPU hours"):
        table.add_column(name, justify="right")
    shown = sorted(summary.sizes, key=lambda size: -size.num_jobs)[:_MAX_ROWS]
    for size in sorted(shown, key=lambda size: size.num_gpus):
        share = f"{100 * size.num_jobs / summary.num_jobs:.1f} %"
        table.add_row(str(size.num_gpus), f"{size.num_jobs:,}", share, f"{size.gpu_hours:,.1f}")
    rest = len(summary.sizes) - len(shown)
    if rest:
        jobs = summary.num_jobs - sum(size.num_jobs for size in shown)
        table.add_row(f"{rest} others", f"{jobs:,}", f"{100 * jobs / summary.num_jobs:.1f} %", "")
    return table


def _spread(spread: Spread) -> str:
    figures = (("median", spread.median), ("mean", spread.mean), ("p95", spread.p95), ("most", spread.most))
    return ", ".join(f"{name} {time_words(value)}" for name, value in figures)


def _listed(counts: Mapping[str, int]) -> str:
    shown = [f"{name} {count:,}" for name, count in list(counts.items())[:_MAX_ROWS]]
    rest = len(counts) - len(shown)
    return ", ".join([*shown, f"and {rest} more"] if rest else shown)


def _missing(summary: TraceSummary) -> str:
    """Fields that no job with GPUs has, and those that some lack."""
    of_all = [name for name, count in summary.missing.items() if count == summary.num_gpu_jobs]
    of_some = {name: count for name, count in summary.missing.items() if count < summary.num_gpu_jobs}
    parts = [f"of all jobs with GPUs {', '.join(of_all)}"] if of_all else []
    return "; ".join([*parts, f"of some {_listed(of_some)}"] if of_some else parts)


def time_words(value_s: float) -> str:
    """A time in the largest unit of which it is at least two."""
    for unit, length_s in _UNITS:
        if value_s >= 2 * length_s:
            return f"{value_s / length_s:.1f} {unit}"
    return f"{value_s:.1f} s"


def day(epoch_s: float) -> str:
    """A moment since 1970, in UTC."""
    return datetime.fromtimestamp(epoch_s, tz=UTC).strftime("%Y-%m-%d %H:%M")
