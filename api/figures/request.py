"""What to draw. Light, so that the serving process can ask for a picture without loading what draws it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from api.figures.picture_format import PictureFormat
from api.schemas.comparison import ComparisonResultDoc
from api.schemas.parallel_answer import ParallelPlanAnswer
from executor.simulation.figures import ReplayResult
from models.forecast.report import ForecastReport
from models.plan import PlanOutcome
from models.what_if.difference import Planned
from models.workload import Snapshot
from topology.calendar import CalendarEntry
from topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRequest:
    """What to draw, and as what."""

    snapshot: Snapshot
    outcome: PlanOutcome
    format: PictureFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonFigure:
    """The comparison to draw, and as what."""

    result: ComparisonResultDoc
    format: PictureFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelFigure:
    """The 3D-parallel plans to draw, and as what."""

    answer: ParallelPlanAnswer
    format: PictureFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFigure:
    """Replays of one trace on one cluster, each under a name of its own."""

    cluster: Cluster
    replays: Mapping[str, ReplayResult]
    format: PictureFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastFigure:
    """Reports of forecasters, each under the name of its history."""

    reports: Mapping[str, ForecastReport]
    format: PictureFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarFigure:
    """The calendar of a cluster to draw, with times from `taken_at`, and as what."""

    name: str
    cluster: Cluster
    entries: tuple[CalendarEntry, ...]
    taken_at: datetime
    format: PictureFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceFigure:
    """A plan, and by name others that differ from it, to draw beside each other, and as what."""

    base: Planned
    others: tuple[tuple[str, Planned], ...]
    format: PictureFormat
