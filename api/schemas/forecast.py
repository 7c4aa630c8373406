"""Forecasters as clients ask for them, and jobs of which they ask how long they take."""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from api.schemas.base import MAX_GPUS, MAX_ITEMS, Document, ForecasterName, Fraction, Name
from api.schemas.replay import Origin, Seconds, SomeSeconds
from api.schemas.request import MAX_TIME_LIMIT_S
from workloads.trace import JobState


class KnownJobDoc(Document):
    """What is known of a job when it is submitted; what names its owner tells most."""

    id: Name
    num_gpus: Annotated[int, Field(ge=0, le=MAX_GPUS)]
    gpu_share: Fraction = 1.0
    """The part of each of its GPUs that it asked for."""
    user: Name | None = None
    queue: Name | None = None
    """Virtual cluster, partition or class of service."""
    application: Name | None = None
    """The model or program; jobs of one application are alike."""
    time_limit_s: SomeSeconds | None = None
    """What its user gave it at most."""


class HistoryJobDoc(KnownJobDoc):
    """A job of a history. One without a duration, or with none at all, never began, and says nothing."""

    submit_s: Seconds
    """From time zero of the history."""
    duration_s: Seconds | None = None
    """How long it ran; of one that still does, so far."""
    waited_s: Seconds | None = None
    """From its submission until it began; null: it began at once, as far as is known."""
    state: JobState | None = None
    """How it ended; `running`: it has not, and takes longer than `duration_s`. Null: it has ended."""


class HistoryDoc(Document):
    """Jobs of a site, by submission."""

    name: Name
    origin_s: Origin | None = None
    """Time zero in seconds since 1970 (UTC): hours and weekdays are known by it."""
    jobs: Annotated[tuple[HistoryJobDoc, ...], Field(min_length=1, max_length=MAX_ITEMS)]


class ForecasterBody(Document):
    """A history to learn from, and how what is learned is called."""

    name: ForecasterName
    history: HistoryDoc
    time_limit_s: Annotated[float, Field(gt=0, le=MAX_TIME_LIMIT_S)] | None = None
    """Wall-clock limit of training (null: that of the service)."""


class AskedJobDoc(KnownJobDoc):
    """A job of which is asked how long it takes."""

    submit_s: Seconds | None = None
    """From time zero; null: `age_s` before the last moment of its history."""
    age_s: Seconds = 0.0
    """How long it has run."""


class ForecastBody(Document):
    """Jobs, and what has become of others since the forecaster was trained."""

    jobs: Annotated[tuple[AskedJobDoc, ...], Field(min_length=1, max_length=MAX_ITEMS)]
    origin_s: Origin | None = None
    """Time zero of their submissions in seconds since 1970; null: that of the history the forecaster was trained on."""
    since: HistoryDoc | None = None
    """Jobs that were submitted, and ended, since then: the more it is told, the better it follows the site. Those that
    it knows by their ids say what became of them; its `origin_s` is null where that of the history was."""


FORECASTER_BODY = TypeAdapter(ForecasterBody)
FORECAST_BODY = TypeAdapter(ForecastBody)


class LastingDoc(Document):
    """How much longer a job lasts: over within `seconds[k]` with probability `probabilities[k]`."""

    probabilities: tuple[float, ...]
    seconds: tuple[float, ...]


class ForecastDoc(Document):
    """How much longer a job lasts; null: longer than anything that was seen."""

    id: str
    lasting: LastingDoc | None


class ForecastsDoc(Document):
    """Forecasts in the order in which was asked."""

    forecaster: str
    forecasts: tuple[ForecastDoc, ...]


# Too few to learn from: it shows how they are written.
FORECASTER_EXAMPLE: dict[str, Any] = {
    "name": "site",
    "history": {
        "name": "march",
        "origin_s": 1772323200,
        "jobs": [
            {"id": "1", "submit_s": 0, "num_gpus": 8, "duration_s": 7200, "user": "ann", "state": "completed"},
            {"id": "2", "submit_s": 60, "num_gpus": 1, "duration_s": 300, "user": "bo", "state": "failed"},
            {"id": "3", "submit_s": 90, "num_gpus": 8, "duration_s": 5000, "user": "ann", "state": "running"},
        ],
    },
}
FORECAST_EXAMPLE: dict[str, Any] = {
    "jobs": [
        {"id": "new", "num_gpus": 8, "user": "ann"},
        {"id": "3", "num_gpus": 8, "user": "ann", "submit_s": 90, "age_s": 6000},
    ],
}
