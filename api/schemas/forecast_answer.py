"""Forecasters as clients see them: their life, what they were trained on, and how well they did."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.base import Document
from api.schemas.plan import FailureDoc


class ForecasterStatus(StrEnum):
    """Life of a forecaster: queued, running (it learns), and then one of the final states.

    succeeded: it can be asked. failed: see `failure`; also when it is no better than the quantiles of its history.
    timed_out: its limit of wall-clock time struck. canceled: by a client; interrupted: the service stopped meanwhile.
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (ForecasterStatus.QUEUED, ForecasterStatus.RUNNING)


class ForecasterTimesDoc(Document):
    """When each state was reached (UTC); null: not reached."""

    queued: datetime
    running: datetime | None = None
    finished: datetime | None = None


class ForecasterLinksDoc(Document):
    """Where to go from here (paths); null until it has succeeded."""

    self: str
    report: str | None = None
    record: str | None = None
    figure: str | None = None
    figure_png: str | None = None


class ForecasterSummary(Document):
    """One line of the list of forecasters."""

    name: str
    status: ForecasterStatus
    history: str
    """Name of the history."""
    times: ForecasterTimesDoc
    links: ForecasterLinksDoc


class ForecasterDoc(ForecasterSummary):
    """A forecaster."""

    num_jobs: int
    """Jobs of the history that say how long jobs take."""
    time_limit_s: float
    input_hash: str = Field(examples=["sha256:9f2c"])
    """SHA-256 of the request with defaults filled in."""
    version: str
    """Version of Stowplan that trained it."""
    digest: str | None = None
    """SHA-256 of the history, as CSV."""
    origin_s: float | None = None
    """Time zero of the history in seconds since 1970."""
    trained_until_s: float | None = None
    """The last moment of which the history says something, from its time zero."""
    failure: FailureDoc | None = None


class ScoreDoc(Document):
    """How good a predictor was."""

    predictor: str
    pinball: float
    """Mean over jobs and `probabilities` of the pinball loss of the logarithm of time."""
    pinball_min: float
    """The same of minutes."""
    coverage_90: float
    """Share of jobs over within the quantile of 90 %."""
    rmse_classes: float
    """Root mean squared error of the median, in classes of `class_s` seconds, the last of which is open."""
    observed: tuple[float, ...]
    """Share of jobs over within the quantile of each of `probabilities`."""


class ForecasterReportDoc(Document):
    """How a forecaster did on the last tenth of its history, beside predictors that need no learning."""

    num_learned: int
    num_held_out: int
    """Calibrate, and tell how long to learn."""
    num_tested: int
    num_running: int
    """Ran when the history ended: known to last at least so long, and not tested."""
    left_out: dict[str, int]
    """Jobs that say nothing of durations, by reason."""
    scores: tuple[ScoreDoc, ...]
    """Of the forecaster first."""
    probabilities: tuple[float, ...]
    covered: float
    class_s: float
    num_classes: int


class ForecasterPageQuery(BaseModel):
    """Query parameters of the list of forecasters. Not strict: what stands in a URL is text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """Forecasters per page."""
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """Cursor of the next page; see `next`."""


class ForecasterList(Document):
    """A page of forecasters, newest first."""

    forecasters: tuple[ForecasterSummary, ...]
    next: str | None
    """Path of the next page; null on the last one."""
