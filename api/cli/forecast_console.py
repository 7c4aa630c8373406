"""Forecasters and forecasts on a terminal."""

import math
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from api.cli import console
from api.cli.trace_console import day, time_words
from api.schemas.forecast import ForecastDoc
from models.forecast.forecaster import Forecaster
from models.forecast.lasting import Lasting
from models.forecast.report import ForecastReport

_SHOWN = (0.1, 0.5, 0.9, 0.95)


def print_report(forecaster: Forecaster) -> None:
    """What it was trained on, and how well every predictor did."""
    output, report = console.output(), forecaster.report
    output.print(f"[bold]{escape(forecaster.history)}[/]")
    output.print(_facts(forecaster, report))
    output.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("predictor")
    for name in ("pinball loss", "in minutes", f"over within {report.covered:.0%}", "RMSE in classes"):
        table.add_column(name, justify="right")
    for score in report.scores:
        table.add_row(
            score.predictor,
            f"{score.pinball:.4f}",
            f"{score.pinball_min:.1f}",
            f"{score.coverage_90:.1%}",
            f"{score.rmse_classes:.2f}",
        )
    output.print(table)
    classes = f"{time_words(report.class_s)} each, the last of {report.num_classes} is open"
    output.print(f"pinball loss: of the logarithm of time; classes: {classes}", soft_wrap=True)


def print_forecasts(forecasts: Sequence[ForecastDoc]) -> None:
    """A row a job."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("job")
    for probability in _SHOWN:
        table.add_column(f"over within {probability:.0%}", justify="right")
    for forecast in forecasts:
        found = forecast.lasting
        lasting = None if found is None else Lasting(probabilities=found.probabilities, seconds=found.seconds)
        table.add_row(escape(forecast.id), *(_within(lasting, probability) for probability in _SHOWN))
    console.output().print(table)


def _within(lasting: Lasting | None, probability: float) -> str:
    value_s = math.inf if lasting is None else lasting.quantile(probability)
    return "nobody knows" if value_s == math.inf else time_words(value_s)


def _facts(forecaster: Forecaster, report: ForecastReport) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    until_s = forecaster.trained_until_s
    until = time_words(until_s) if forecaster.origin_s is None else f"{day(forecaster.origin_s + until_s)} UTC"
    table.add_row("trained until", until)
    jobs = f"{report.num_learned:,} learned from, {report.num_held_out:,} calibrate, {report.num_tested:,} test"
    table.add_row("jobs that ended", jobs)
    if report.num_running:
        table.add_row("that run", f"{report.num_running:,}, known to last at least so long, and not tested")
    if report.left_out:
        table.add_row("left out", ", ".join(f"{reason} {count:,}" for reason, count in report.left_out.items()))
    table.add_row("history", f"SHA-256 {forecaster.digest}")
    return table
