"""Forecasts of how long jobs last, on published traces: Microsoft Philly, clusters of Microsoft ITP, Alibaba's openb.

By submission, the first 80 % of the jobs are learned from, the next 10 % calibrate, the last 10 % test: each is
forecast when it is submitted, knowing what had become of the jobs before it. Beside the forecaster: quantiles of the
history (all jobs that had ended when the test began), of the same group (queue and number of GPUs), and of the last 100
jobs of that group that had ended. pinball: mean over 13 probabilities from 0.05 to 0.99 of the loss of the logarithm of
time; pinball_min: of minutes, which the few longest jobs decide; rmse_classes: classes of 10 minutes, the last one of
25 open (from 4 h on).

Promises: at 200 random instants of the test, the jobs that run then are asked for the time within which they are over
with 95 %, given for how long they have run; kept is the share that were, of those that had such a time.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from api.figures.forecast import render
from api.figures.request import ForecastFigure
from benchmarks.paths import PUBLISHED, RESULTS
from benchmarks.rows import Row, show, write
from models.forecast.boosting import curves
from models.forecast.features import features_of
from models.forecast.history import LEAST_S, History, history_of
from models.forecast.learning import Learned, forecaster_of, learn_from, report_of
from models.forecast.report import ForecastReport
from stowplan.errors import InputError
from stowplan.records import to_json
from workloads.readers import read_trace

TRACES = ("philly.csv", *(f"itp/cluster{k:02d}.csv" for k in (1, 2, 4, 5, 7, 8, 10)), "openb_pods.csv")
PROTOCOL = __doc__
_INSTANTS = 200
_PROMISED = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """At random instants: jobs that were promised an end, the share of which kept it, and jobs of which nobody knew."""

    num_promised: int
    kept: float | None
    num_unknown: int


def main(
    traces: Annotated[list[str] | None, typer.Option(help="Files below the published traces; all by default.")] = None,
    seed: Annotated[int, typer.Option(help="Of the random instants.")] = 0,
) -> None:
    """Train forecasters of durations on published traces and test them on the last tenth."""
    rows: list[Row] = []
    promised: list[Row] = []
    reports: dict[str, ForecastReport] = {}
    for file in traces or TRACES:
        path = PUBLISHED / "traces" / file
        name = path.stem if path.parent.name == "traces" else f"{path.parent.name} {path.stem}"
        begin_s = time.process_time()
        trace = read_trace(path)
        learned = learn_from(history_of(trace))
        report = reports[name] = report_of(learned)
        cpu_s = time.process_time() - begin_s
        rows += _rows(name, report)
        record = to_json(forecaster_of(learned, report, trace))
        kept = promises(learned, np.random.default_rng(seed))
        promised.append(
            {
                "trace": name,
                "jobs": len(learned.history.jobs),
                "tested": report.num_tested,
                "accepted": _accepted(report),
                "promised": kept.num_promised,
                "kept": kept.kept,
                "nobody knows": kept.num_unknown,
                "training and test, CPU s": cpu_s,
                "record, MB": len(record) / 1e6,
            }
        )
    show("forecasts", rows)
    show(f"promises of {_PROMISED:.0%} at {_INSTANTS} random instants", promised)
    if traces is None:
        write("forecasts", PROTOCOL or "", [*rows, *promised])
        (RESULTS / "forecasts.svg").write_bytes(render(ForecastFigure(reports=reports, format="svg")))


def promises(learned: Learned, rng: np.random.Generator) -> Promises:
    """Ask at random instants when the jobs that run will be over."""
    history = learned.history
    begin_s, end_s = float(history.submit_s[learned.tested]), float(history.submit_s[-1])
    # Of those that were learned from, the model knows that they lasted until the test began, as in use.
    present = np.flatnonzero(history.end_s > begin_s)
    rows = features_of(history, learned.names)[present]
    own = curves(learned.hazards, rows)
    num_promised = num_kept = num_unknown = 0
    for at_s in np.sort(rng.uniform(begin_s, end_s, _INSTANTS)).tolist():
        running = np.flatnonzero((history.start_s[present] <= at_s) & (history.end_s[present] > at_s))
        # Whose ends are not known in the end cannot be judged.
        running = running[history.ended[present[running]]]
        ages_s = np.maximum(at_s - history.start_s[present[running]], 2 * LEAST_S)
        calibration = learned.calibration(_submitted(history, at_s), at_s)
        within_s = calibration.quantiles(own, running, ages_s, np.array([_PROMISED]))[:, 0]
        known = within_s < np.inf
        num_unknown += int((~known).sum())
        num_promised += int(known.sum())
        num_kept += int((history.lasted_s[present[running]] <= within_s)[known].sum())
    kept = num_kept / num_promised if num_promised else None
    return Promises(num_promised=num_promised, kept=kept, num_unknown=num_unknown)


def _submitted(history: History, at_s: float) -> int:
    return int(np.searchsorted(history.submit_s, at_s, side="right"))


def _accepted(report: ForecastReport) -> bool:
    try:
        report.refuse_worse()
    except InputError:
        return False
    return True


def _rows(name: str, report: ForecastReport) -> Iterator[Row]:
    for score in report.scores:
        yield {
            "trace": name,
            "predictor": score.predictor,
            "pinball": score.pinball,
            "pinball_min": score.pinball_min,
            "coverage of 90 %": score.coverage_90,
            "rmse_classes": score.rmse_classes,
        }
