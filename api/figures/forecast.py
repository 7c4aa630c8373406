"""Forecasters: how often jobs were over within their quantiles, and how far off these were, beside other predictors."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from api.figures.render import save
from api.figures.request import ForecastFigure
from api.figures.style import (
    FAINT_INK,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    draw_frame,
    drawing_style,
    fill,
    fitted,
    write,
)
from models.forecast.report import FORECASTER, ForecastReport
from solver.monitor import SolveMonitor

_WIDTH, _HEIGHT = 620.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 14.0, 62.0, 48.0
_PANEL, _GAP = 226.0, 84.0
_POINTS_PER_INCH = 72.0
_NAME_WIDTH = 90.0
_BAR = 0.8
# Names below bars stand at an angle when there are more.
_UPRIGHT = 4


def figure_task(request: ForecastFigure, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's convention
    """Entry point of workers."""
    return render(request)


def render(request: ForecastFigure) -> bytes:
    """Give the bytes of one page: calibration on the left, pinball loss on the right."""
    reports = request.reports
    with drawing_style():
        figure = Figure(figsize=(_WIDTH / _POINTS_PER_INCH, _HEIGHT / _POINTS_PER_INCH), facecolor="white")
        page = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(_HEIGHT, 0))
        page.axis("off")
        num_tested = sum(report.num_tested for report in reports.values())
        title = next(iter(reports)) if len(reports) == 1 else f"{len(reports)} histories"
        write(page, _LEFT, 18, fitted(title, TITLE_SIZE, _WIDTH / 2, bold=True), TITLE_SIZE, weight="bold")
        text = f"{num_tested:,} jobs, the last of each history; forecasts when they were submitted"
        write(page, _LEFT, 34, text, color=FAINT_INK)
        height = _HEIGHT - _TOP - _BOTTOM
        place = (_LEFT / _WIDTH, _BOTTOM / _HEIGHT, _PANEL / _WIDTH, height / _HEIGHT)
        _calibration(figure.add_axes(place), reports)
        width = _WIDTH - _LEFT - _PANEL - _GAP - _RIGHT
        place = ((_LEFT + _PANEL + _GAP) / _WIDTH, _BOTTOM / _HEIGHT, width / _WIDTH, height / _HEIGHT)
        _losses(figure.add_axes(place), reports)
        return save(figure, request.format)


def _calibration(axes: Any, reports: Mapping[str, ForecastReport]) -> None:
    """Said against observed; dashed: what was said came true."""
    axes.plot([0, 1], [0, 1], color=FAINT_INK, linewidth=0.8, linestyle="--")
    for k, (name, report) in enumerate(reports.items()):
        own = report.of(FORECASTER)
        axes.plot(
            report.probabilities,
            own.observed,
            color=fill(k).colour,
            linewidth=1.2,
            marker="o",
            markersize=2.5,
            label=fitted(name, SMALL_SIZE, _NAME_WIDTH),
        )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    draw_frame(axes, "probability that was said", "share of jobs over within the quantile")
    axes.legend(loc="upper left", fontsize=SMALL_SIZE, frameon=False)


def _losses(axes: Any, reports: Mapping[str, ForecastReport]) -> None:
    """A bar for every predictor, by history."""
    predictors = [score.predictor for score in next(iter(reports.values())).scores]
    width = _BAR / len(predictors)
    for k, predictor in enumerate(predictors):
        places = [n + (k - (len(predictors) - 1) / 2) * width for n in range(len(reports))]
        values = [report.of(predictor).pinball for report in reports.values()]
        axes.bar(places, values, width=0.9 * width, color=fill(k).colour, label=predictor)
    slanted = {} if len(reports) <= _UPRIGHT else {"rotation": 30, "ha": "right"}
    draw_frame(axes, "", "pinball loss (log of time)")
    axes.set_xticks(
        range(len(reports)), [fitted(name, SMALL_SIZE, _NAME_WIDTH) for name in reports], fontsize=SMALL_SIZE, **slanted
    )
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=TEXT_SIZE - 1, frameon=False)
