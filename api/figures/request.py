"""What to draw. Light, so that the serving process can ask for a picture without loading what draws it."""

from dataclasses import dataclass
from typing import Literal

from api.schemas.comparison import ComparisonResultDoc
from api.schemas.parallel_answer import ParallelPlanAnswer
from models.plan import PlanOutcome
from models.workload import Snapshot

PictureFormat = Literal["svg", "png"]


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
