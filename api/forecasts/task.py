"""What workers that learn, forecast and draw get and give. Light: the serving process loads nothing of LightGBM."""

from dataclasses import dataclass

from api.figures.picture_format import PictureFormat
from models.forecast.known import KnownJob
from workloads.trace import Trace

TRAIN_TASK = "api.forecasts.worker_tasks:train_task"
PREDICT_TASK = "api.forecasts.worker_tasks:predict_task"
SNAPSHOT_TASK = "api.forecasts.worker_tasks:snapshot_task"
FIGURE_TASK = "api.forecasts.worker_tasks:figure_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A history to learn from."""

    trace: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A forecaster as JSON text, its report as such, and what is shown of it."""

    record: str
    report: str
    digest: str
    origin_s: float | None
    trained_until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A forecaster as JSON text, under its name, and the body of a request to it."""

    name: str
    record: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSnapshot:
    """A forecaster as JSON text, and jobs of a snapshot that was taken at `at_s` seconds since 1970."""

    record: str
    jobs: tuple[KnownJob, ...]
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A report as JSON text, and as what to draw it."""

    name: str
    report: str
    format: PictureFormat
