"""Tasks of workers: learning, forecasting, and the picture of a report."""

import json

from api.convert.forecast import forecasts
from api.convert.reading import read_document
from api.forecasts.task import Asked, AskedSnapshot, Drawn, Trained, Training
from api.schemas.forecast import FORECAST_BODY, ForecastsDoc
from models.forecast.forecaster import Forecaster
from models.forecast.known import SnapshotForecasts
from models.forecast.learning import train
from models.forecast.report import ForecastReport
from models.forecast.snapshots import forecast_jobs
from solver.monitor import SolveMonitor
from stowplan.records import from_document, to_json


def train_task(training: Training, monitor: SolveMonitor) -> Trained:  # noqa: ARG001 - the pool's convention
    """Learn; ends before its time only by being killed.

    Raises
    ------
    InputError
        When nothing better than the quantiles of the history comes of it.
    """
    forecaster = train(training.trace)
    return Trained(
        record=to_json(forecaster),
        report=to_json(forecaster.report),
        digest=forecaster.digest,
        origin_s=forecaster.origin_s,
        trained_until_s=forecaster.trained_until_s,
    )


def predict_task(asked: Asked, monitor: SolveMonitor) -> str:  # noqa: ARG001 - the pool's convention
    """Answer a request to a forecaster, as JSON text.

    Raises
    ------
    MalformedJsonError
        When the body is not JSON.
    InputError
        When the request is wrong.
    """
    body = read_document(FORECAST_BODY, asked.body)
    forecaster = from_document(Forecaster, json.loads(asked.record), "forecaster")
    found = forecasts(forecaster, body)
    return ForecastsDoc(forecaster=asked.name, forecasts=found).model_dump_json()


def snapshot_task(asked: AskedSnapshot, monitor: SolveMonitor) -> SnapshotForecasts:  # noqa: ARG001 - see above
    """Say how much longer jobs of a snapshot last."""
    forecaster = from_document(Forecaster, json.loads(asked.record), "forecaster")
    return forecast_jobs(forecaster, asked.jobs, asked.at_s)


def figure_task(drawn: Drawn, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's convention
    """Draw a report."""
    # Only now: nothing else here draws.
    from api.figures.forecast import render
    from api.figures.request import ForecastFigure

    report = from_document(ForecastReport, json.loads(drawn.report), "report")
    return render(ForecastFigure(reports={drawn.name: report}, format=drawn.format))
