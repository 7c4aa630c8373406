"""Plans as other launchers and frameworks read them."""

from typing import Annotated

from pydantic import Field

from api.schemas.base import Document, Name, OneOf, Text
from api.schemas.model import TransformerDoc
from api.schemas.parallel_plan import ParallelPlanDoc
from api.schemas.problem import IssueDoc
from executor.export import FORMATS, PLAN_FORMATS
from executor.export.options import MAX_OPTIONS, option_words

MAX_FORMATS, MAX_HOST_LINES = 16, 65_536


class ExportBody(Document):
    """A 3D plan, the hosts that take the places of its nodes, and what shall read it."""

    to: Annotated[tuple[Annotated[str, OneOf(FORMATS)], ...], Field(min_length=1, max_length=MAX_FORMATS)]
    """Launchers and frameworks."""
    plan: ParallelPlanDoc
    """Such as `best.plan` in an answer of /v1/parallel-plans."""
    job: TransformerDoc | None = None
    """What it trains, such as `transformer` there; null: only what needs no model can be written."""
    job_id: Name = "job"
    """Name of the job in the files."""
    hosts: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_HOST_LINES)] | None = None
    """Hosts in the order in which they take the places of the nodes of the plan: names, perhaps with their slots
    (`gpu-7 slots=8`, `gpu-7:8`), or hostlists (`gpu-[01-16]`). Null: the plan names hosts."""
    options: Annotated[
        dict[Name, Text],
        Field(max_length=MAX_OPTIONS, description=option_words(FORMATS), examples=[{"partition": "gpu"}]),
    ] = Field(default_factory=dict)


class ExportDoc(Document):
    """Files that start a job after its plan."""

    job_id: str
    files: dict[str, str]
    """Text by name of file; scripts find the others in their own folder."""


class PlanExportDoc(Document):
    """Files that hand a whole plan over to a scheduler. Nothing is done before somebody runs them."""

    plan_id: str
    files: dict[str, str]
    """Text by name of file."""
    notes: tuple[IssueDoc, ...]
    """What the scheduler cannot be told; pointers into the plan, or below `/snapshot` into what was planned."""


class PlanExportBody(Document):
    """Which scheduler a plan is handed over to, and what it is told beside the plan."""

    to: Annotated[str, OneOf(PLAN_FORMATS)]
    """The scheduler."""
    options: Annotated[dict[Name, str], Field(max_length=MAX_OPTIONS)] = Field(default_factory=dict)
    """By name, those of `GET /v1/plans/{id}/export`; what is a document there is its text."""
