"""`stowplan forecast train`, `show` and `predict`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic_core import to_json as json_bytes

from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.files import load_forecaster
from api.cli.forecast_console import print_forecasts, print_report
from api.cli.json_files import read_json
from api.cli.local_worker import SLACK_S
from api.cli.options import Json, picture_format, print_document
from api.cli.paths import readable, write
from api.cli.pretty import pretty_json
from api.convert.forecast import forecasts
from api.convert.reading import read_document
from api.figures.picture_format import PictureFormat
from api.figures.request import ForecastFigure
from api.schemas.forecast import FORECAST_BODY, ForecastsDoc
from models.forecast.forecaster import Forecaster
from solver.pool import WorkerPool
from stowplan.errors import InputError
from stowplan.records import to_document, to_json
from workloads.readers import READERS, read_trace

_FIGURE_TASK = "api.figures.forecast:figure_task"

ForecasterFile = Annotated[
    Path, typer.Argument(metavar="FORECASTER", help="File that `stowplan forecast train` wrote; - for standard input.")
]
Figure = Annotated[Path | None, typer.Option(help="Draw the report into this .svg or .png file.")]


@command("train", epilog=EPILOG)
def train_command(
    file: Annotated[Path, typer.Argument(metavar="HISTORY", help="Trace of jobs, as for `stowplan trace`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the forecaster to this file, as JSON.")],
    format_: Annotated[str | None, typer.Option("--format", help=f"One of {', '.join(READERS)}.")] = None,
    columns: Annotated[str | None, typer.Option(help="What the columns of a table are.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="More help on processors that have nothing else to do.")] = 1,
    figure: Figure = None,
    json_: Json = False,
) -> None:
    """Learn from a history of jobs how long jobs last, and test it on the last tenth; refused when no better."""
    # Only now: what it learns with is not needed by `show`.
    from models.forecast.learning import train

    path, picture = readable(file), picture_format(figure)
    with busy(f"learning from {file}"):
        trace = read_trace(path, format_=format_, columns=columns, name="stdin" if path != file else file.stem)
        forecaster = train(trace, threads)
    write(output, (to_json(forecaster) + "\n").encode())
    _tell(forecaster, figure, picture, json_=json_)


@command("show", epilog=EPILOG)
def show_command(file: ForecasterFile, figure: Figure = None, json_: Json = False) -> None:
    """Print what a forecaster was trained on, and how well it did."""
    _tell(load_forecaster(readable(file)), figure, picture_format(figure), json_=json_)


@command("predict", epilog=EPILOG)
def predict_command(
    file: ForecasterFile,
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="JSON: the body of POST /v1/forecasters/NAME:predict.")],
    json_: Json = False,
) -> None:
    """Say how long jobs last, those that run for how long they have already."""
    forecaster = load_forecaster(readable(file))
    try:
        asked = read_document(FORECAST_BODY, json_bytes(read_json(readable(jobs)), inf_nan_mode="constants"))
        found = forecasts(forecaster, asked)
    except InputError as error:
        raise InputError(f"{jobs}: {error.detail}", error.issues) from error
    if json_:
        print_document(ForecastsDoc(forecaster=forecaster.history, forecasts=found))
    else:
        print_forecasts(found)


def _tell(forecaster: Forecaster, figure: Path | None, picture: PictureFormat | None, *, json_: bool) -> None:
    """The report, and its picture where it is wanted."""
    if figure is not None and picture is not None:
        request = ForecastFigure(reports={forecaster.history: forecaster.report}, format=picture)
        with busy(f"drawing {figure}"), WorkerPool(num_workers=1, max_queue=1) as pool:
            write(figure, pool.submit(_FIGURE_TASK, request, SLACK_S).result())
    if json_:
        sys.stdout.write(pretty_json(to_document(forecaster.report)) + "\n")
    else:
        print_report(forecaster)
