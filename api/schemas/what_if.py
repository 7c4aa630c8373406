"""What if: what clients change in a plan's request, and what differs then."""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic.config import JsonDict

from api.schemas.base import MAX_COUNT, MAX_GPUS_PER_NODE, MAX_ITEMS, Document, GpuMap, Name, NonNegative
from api.schemas.calendar import CalendarEntryDoc
from api.schemas.parameters import PARAMETERS
from api.schemas.placement import SpreadDoc
from api.schemas.plan import PlanDoc
from api.schemas.problem import IssueDoc
from api.schemas.request import PolicyName
from api.schemas.snapshot import JobDoc
from models.what_if.difference import JobChange

MAX_VARIANTS = 16
_SCHEMAS = "#/components/schemas/"
_PARAMETERS: JsonDict = {
    "anyOf": [{"$ref": f"{_SCHEMAS}{kind.__name__}"} for kind in dict.fromkeys(PARAMETERS.values())]
}
_Names = Annotated[tuple[Name, ...], Field(max_length=MAX_ITEMS)]


class AddedNodesDoc(Document):
    """Nodes that the cluster gets, all alike. They are called added-1, added-2 and so on."""

    num_nodes: Annotated[int, Field(ge=1, le=MAX_ITEMS)]
    gpu_type: Name
    """A GPU type that the cluster knows."""
    num_gpus: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)]
    path: Annotated[tuple[Name, ...], Field(max_length=16)] = ()
    """The unit of each tier, coarsest first."""


class PlaceDoc(Document):
    """Why not there? One of `nodes` and `start_s`."""

    job: Name
    nodes: GpuMap | None = None
    """Exactly these GPUs. A pre-training job (arnold, ahead) gets nodes among these, all of their GPUs."""
    start_s: NonNegative | None = None
    """A job that is planned ahead: its start, in seconds from the snapshot. `difference` and `price` count lateness
    from its earliest start; the plan itself, in which this is the earliest start, has none."""


class VariantDoc(Document):
    """What is other than in the request of the plan; everything else stays."""

    name: Name
    drain: _Names = ()
    """Nodes that take no new work: by id, or a unit of the fabric by its path joined by "/", for all of its nodes."""
    down: _Names = ()
    """Nodes on which nothing runs."""
    up: _Names = ()
    """Nodes that take work again."""
    add_nodes: Annotated[tuple[AddedNodesDoc, ...], Field(max_length=256)] = ()
    jobs: Annotated[dict[Name, dict[str, Any]], Field(max_length=MAX_ITEMS)] = Field(
        default_factory=dict, examples=[{"llm": {"priority": 1, "max_gpus": 64}}]
    )
    """Job id -> fields with their new values, as a job of the snapshot has them."""
    add_jobs: Annotated[tuple[JobDoc, ...], Field(max_length=MAX_ITEMS)] = ()
    remove_jobs: _Names = ()
    policy: PolicyName | None = None
    """Plan with another policy (null: with the same)."""
    parameters: dict[str, Any] = Field(default_factory=dict, json_schema_extra=_PARAMETERS)
    """Those that change; with a policy of other parameters, those that are not its defaults."""
    add_entries: Annotated[tuple[CalendarEntryDoc, ...], Field(max_length=MAX_ITEMS)] = ()
    """Entries of the calendar; the snapshot must say when it was taken."""
    remove_entries: _Names = ()
    place: PlaceDoc | None = None
    """A job is asked for at a place or a time: the answer is the rules that forbid it, or its price."""


class WhatIfBody(Document):
    """Variants of the request of a plan, side by side."""

    variants: Annotated[tuple[VariantDoc, ...], Field(min_length=1, max_length=MAX_VARIANTS)]


WHAT_IF_BODY = TypeAdapter(WhatIfBody)
VARIANT = TypeAdapter(VariantDoc)


class ValueDifferenceDoc(Document):
    """A number in both plans."""

    name: str
    base: float
    other: float
    difference: float
    """Of the other plan from the base."""


class JobPlaceDoc(Document):
    """What a job has in a plan."""

    gpu_type: str
    num_gpus: int
    nodes: dict[str, int]
    """Node id -> number of GPUs."""
    start_s: float | None
    """Planned ahead: its start in seconds from the snapshot."""
    goodput: float | None


class JobDifferenceDoc(Document):
    """A job that the plans treat differently."""

    job_id: str
    change: JobChange
    """started, stopped: it has GPUs, or a start, in the other plan only, or in the base only. retyped: other GPU type.
    rescaled: other count. moved: it runs now, and gets other nodes. elsewhere: other nodes for one that waits: nobody
    is moved, and both may be equally good. later, earlier: another start. same: other goodput in the same place."""
    base: JobPlaceDoc | None
    """Null: it gets nothing."""
    other: JobPlaceDoc | None
    reason: str | None
    """Why the other plan leaves it out."""


class PlacementFiguresDoc(Document):
    """How far a pre-training job is spread."""

    minipod_spread: SpreadDoc
    distance: SpreadDoc
    num_minipods_used: int
    objective_eq4: float
    objective_eq2: float


class SpreadDifferenceDoc(Document):
    """A pre-training job that is spread otherwise; null: it has no placement."""

    job_id: str
    base: PlacementFiguresDoc | None
    other: PlacementFiguresDoc | None


class ObjectiveDifferenceDoc(Document):
    """The objectives of both plans."""

    base: float | None
    other: float | None
    difference: float | None
    """Null where the objectives are not of one function: of another policy, under other parameters, or where the terms
    of a job that is asked for at a place count otherwise."""
    least: float | None
    most: float | None
    """Between these lies the difference of the best plans that there are, by the bounds of both."""
    notes: tuple[str, ...]
    """Why there is no difference, or what of it is not done by the plans."""


class PlanDifferenceDoc(Document):
    """What differs between two plans; only what differs is listed."""

    same: bool
    """Both plans give every job the same nodes, and have the same terms."""
    objective: ObjectiveDifferenceDoc
    terms: tuple[ValueDifferenceDoc, ...]
    """Of the objective: the sum over the jobs for each term, without the job that is asked for at a place."""
    jobs: tuple[JobDifferenceDoc, ...]
    num_by_change: dict[JobChange, Annotated[int, Field(le=MAX_COUNT)]]
    gpus: tuple[ValueDifferenceDoc, ...]
    """GPUs that jobs have, by type."""
    spreads: tuple[SpreadDifferenceDoc, ...]
    goodput_ratio: float | None
    """Geometric mean of other to base, over the jobs whose goodput both plans tell."""


class VariantAnswer(Document):
    """What comes of a variant, beside its plan."""

    variant: VariantDoc
    forbidden: tuple[IssueDoc, ...] = ()
    """The rules that forbid the place that is asked for; there is no plan then. Pointers are relative to `variant`."""
    difference: PlanDifferenceDoc | None = None
    """From the base; null where one of the two has no plan (yet)."""
    price: float | None = None
    """What the place that is asked for costs in the objective, above 0 where the plan is worse: of a pre-training job
    all of it, otherwise what the terms of the other jobs lose; below 0 they gain, as where it gets less than in the
    base."""


class PlannedVariantDoc(VariantAnswer):
    """A variant and its plan, which is a plan like others."""

    plan: PlanDoc | None
    figure: str | None
    """Path of the picture of the difference; null where there is none."""
    figure_png: str | None = None


class WhatIfDoc(Document):
    """Variants beside the plan that they are variants of."""

    base: PlanDoc
    variants: tuple[PlannedVariantDoc, ...]
