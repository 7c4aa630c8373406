"""What clients ask for: a plan, a validation, the check of a placement."""

from collections.abc import Mapping
from typing import Annotated, Any, Union

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, create_model

from api.schemas.base import MAX_ITEMS, Document, Epsilon, GpuMap, Name, OneOf
from api.schemas.parameters import PARAMETERS
from api.schemas.policies.base import ParametersDoc
from api.schemas.snapshot import (
    ChangedSnapshot,
    ClusterSnapshot,
    PlannedSnapshotReference,
    SnapshotDoc,
    SnapshotReference,
)
from models.epsilon import EPSILON
from models.policies import POLICIES
from solver.registry import AUTO, SOLVER_NAMES

MAX_TIME_LIMIT_S = 86_400.0
MAX_THREADS = 1024
SolverName = Annotated[str, OneOf(SOLVER_NAMES)]


def which_snapshot(value: Any) -> str:
    """Tell a reference to a stored snapshot (`stored`) from what is brought along (`inline`)."""
    stored = "snapshot_id" in value if isinstance(value, dict) else isinstance(value, SnapshotReference)
    return "stored" if stored else "inline"


def _which_body(value: Any) -> str:
    """Tell apart the ways to say a snapshot that is not stored yet, by the names of their documents."""
    if isinstance(value, ChangedSnapshot) or (isinstance(value, dict) and "base" in value):
        return ChangedSnapshot.__name__
    if isinstance(value, ClusterSnapshot) or (isinstance(value, dict) and isinstance(value.get("cluster"), str)):
        return ClusterSnapshot.__name__
    return SnapshotDoc.__name__


def _which_source(value: Any) -> str:
    """Tell apart the ways to say a snapshot."""
    told = {ChangedSnapshot.__name__: "changed", ClusterSnapshot.__name__: "on_cluster"}
    return told.get(_which_body(value)) or which_snapshot(value)


SnapshotSource = Annotated[
    Annotated[SnapshotDoc, Tag("inline")]
    | Annotated[PlannedSnapshotReference, Tag("stored")]
    | Annotated[ClusterSnapshot, Tag("on_cluster")]
    | Annotated[ChangedSnapshot, Tag("changed")],
    Discriminator(_which_source),
]
# What is posted to be stored. Tags that are no field of any document: they stand at the top of where a fault is.
SnapshotBody = Annotated[
    Annotated[SnapshotDoc, Tag(SnapshotDoc.__name__)]
    | Annotated[ClusterSnapshot, Tag(ClusterSnapshot.__name__)]
    | Annotated[ChangedSnapshot, Tag(ChangedSnapshot.__name__)],
    Discriminator(_which_body),
]
SNAPSHOT_BODY: TypeAdapter[SnapshotDoc | ClusterSnapshot | ChangedSnapshot] = TypeAdapter(SnapshotBody)
# In the order in which they are told of.
SNAPSHOT_BODIES = (SnapshotDoc, ClusterSnapshot, ChangedSnapshot)


class LimitsDoc(Document):
    """Limits and settings of the solve; what is missing gets the default of the service."""

    time_limit_s: Annotated[float, Field(gt=0, le=MAX_TIME_LIMIT_S)] | None = None
    """Wall-clock limit of the solve; the best plan found so far is returned."""
    relative_gap: Annotated[float, Field(ge=0, le=1)] = 1e-4
    """|objective - bound| / |objective| at which a plan counts as optimal."""
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] = 1
    """With one thread the same input and seed give the same plan."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class OptionsDoc(LimitsDoc):
    """Solver, limits and settings of the solve; what is missing gets the default of the service."""

    solver: SolverName = AUTO
    """auto: the exact algorithm where there is one, else HiGHS; the plan says which was used. exact: Arnold's, and
    nothing else. decomposition: Sia's; a problem of another shape goes to HiGHS. portfolio: two race, the first proof
    wins; it needs two cores."""


class PlanBodyDoc(Document):
    """What every request for a plan has; its kinds, one for the policies that share their parameters, narrow it."""

    # The kinds have no source to read docstrings from: Pydantic would look for it in all modules that are loaded, which
    # takes as long as all other documents.
    model_config = ConfigDict(use_attribute_docstrings=False)

    policy: str
    snapshot: SnapshotSource
    parameters: ParametersDoc
    options: OptionsDoc = OptionsDoc()


def _plan_body(parameters: type[ParametersDoc]) -> type[PlanBodyDoc]:
    """The request of the policies that have these parameters."""
    policies = [name for name, known in PARAMETERS.items() if known is parameters]
    return create_model(
        parameters.__name__.removesuffix("ParametersDoc") + "PlanBody",
        __base__=PlanBodyDoc,
        __module__=__name__,
        __doc__=parameters.asks_for,
        policy=Annotated[str, OneOf(policies)],
        parameters=(parameters, parameters()),
    )


_BODY_OF: Mapping[type[ParametersDoc], type[PlanBodyDoc]] = {
    parameters: _plan_body(parameters) for parameters in dict.fromkeys(PARAMETERS.values())
}
# Policy -> the document that asks for it; everything that differs between policies starts here.
PLAN_BODIES: Mapping[str, type[PlanBodyDoc]] = {
    policy: _BODY_OF[parameters] for policy, parameters in PARAMETERS.items()
}
# A type only when the program runs: which policies there are is known then.
PlanBody: Any = Annotated[Union[tuple(_BODY_OF.values())], Field(discriminator="policy")]  # noqa: UP007
PLAN_BODY: TypeAdapter[PlanBodyDoc] = TypeAdapter(PlanBody)
PolicyName = Annotated[str, OneOf(tuple(POLICIES))]


class AllocationDoc(Document):
    """The GPUs that one job is said to get."""

    job_id: Name
    gpus: GpuMap


class VerifyBody(Document):
    """A placement by anybody, and the snapshot it is for."""

    snapshot: SnapshotSource
    allocations: Annotated[tuple[AllocationDoc, ...], Field(max_length=MAX_ITEMS)]
    epsilon: Epsilon = EPSILON
    """Probability with which a job may still run when an entry of the calendar closes its nodes."""


VERIFY_BODY = TypeAdapter(VerifyBody)
