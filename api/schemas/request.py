"""What clients ask for: a plan, a validation, the check of a placement."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag, TypeAdapter

from api.schemas.base import MAX_ITEMS, Document, GpuMap, Name
from api.schemas.parameters import ArenaParametersDoc, ArnoldParametersDoc, SiaParametersDoc, SuikaParametersDoc
from api.schemas.snapshot import SnapshotDoc, SnapshotReference
from solver.options import SolverName

MAX_TIME_LIMIT_S = 86_400.0
MAX_THREADS = 1024


def _which_snapshot(value: Any) -> str:
    stored = "snapshot_id" in value if isinstance(value, dict) else isinstance(value, SnapshotReference)
    return "stored" if stored else "inline"


SnapshotSource = Annotated[
    Annotated[SnapshotDoc, Tag("inline")] | Annotated[SnapshotReference, Tag("stored")],
    Discriminator(_which_snapshot),
]


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

    solver: SolverName = "auto"
    """auto: the exact algorithm where there is one, else HiGHS; the plan says which was used. exact: Arnold's, and
    nothing else. decomposition: Sia's; a problem of another shape goes to HiGHS. portfolio: two race, the first proof
    wins; it needs two cores."""


class SiaPlanBody(Document):
    """Which job gets how many GPUs of which type, and where."""

    policy: Literal["sia"]
    snapshot: SnapshotSource
    parameters: SiaParametersDoc = SiaParametersDoc()
    options: OptionsDoc = OptionsDoc()


class ArnoldPlanBody(Document):
    """Which nodes one large pre-training job sits on, in which rank order."""

    policy: Literal["arnold"]
    snapshot: SnapshotSource
    parameters: ArnoldParametersDoc = ArnoldParametersDoc()
    options: OptionsDoc = OptionsDoc()


class ArenaPlanBody(Document):
    """Which job gets how many GPUs of which type with which 3D plan; arena: Algorithm 1, arena-ilp: Eqs. 5-7."""

    policy: Literal["arena", "arena-ilp"]
    snapshot: SnapshotSource
    parameters: ArenaParametersDoc = ArenaParametersDoc()
    options: OptionsDoc = OptionsDoc()


class SuikaPlanBody(Document):
    """Which jobs start, and which running ones grow onto free GPUs with a new 3D plan; suika: Algorithm 2, suika-ilp:
    Problem 1."""

    policy: Literal["suika", "suika-ilp"]
    snapshot: SnapshotSource
    parameters: SuikaParametersDoc = SuikaParametersDoc()
    options: OptionsDoc = OptionsDoc()


PlanBodyDoc = SiaPlanBody | ArnoldPlanBody | ArenaPlanBody | SuikaPlanBody
PlanBody = Annotated[PlanBodyDoc, Field(discriminator="policy")]
PLAN_BODY: TypeAdapter[PlanBody] = TypeAdapter(PlanBody)
PolicyName = Literal["sia", "arnold", "arena", "arena-ilp", "suika", "suika-ilp"]
# Policy -> the document that asks for it; everything that differs between policies starts here.
PLAN_BODIES: Mapping[str, type[PlanBodyDoc]] = {
    name: body for body in get_args(PlanBodyDoc) for name in get_args(body.model_fields["policy"].annotation)
}


class AllocationDoc(Document):
    """The GPUs that one job is said to get."""

    job_id: Name
    gpus: GpuMap


class VerifyBody(Document):
    """A placement by anybody, and the snapshot it is for."""

    snapshot: SnapshotSource
    allocations: Annotated[tuple[AllocationDoc, ...], Field(max_length=MAX_ITEMS)]
