"""What clients ask for: a plan, a validation, the check of a placement."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter
from pydantic_core import PydanticCustomError

from api.schemas.base import MAX_ITEMS, Document, GpuMap, Name, NonNegative, Positive, Text
from api.schemas.snapshot import SnapshotDoc, SnapshotReference
from models.allocation.sia.parameters import SiaObjective
from models.placement.arnold.parameters import SchedulingUnit, SpreadObjective
from solver.options import SolverName

MAX_TIME_LIMIT_S = 86_400.0
MAX_THREADS = 1024


def _not_zero(value: float) -> float:
    if value == 0:
        raise PydanticCustomError("out_of_range", "is 0; must be above or below 0 (the paper uses -0.5)")
    return value


def _which_snapshot(value: Any) -> str:
    stored = "snapshot_id" in value if isinstance(value, dict) else isinstance(value, SnapshotReference)
    return "stored" if stored else "inline"


SnapshotSource = Annotated[
    Annotated[SnapshotDoc, Tag("inline")] | Annotated[SnapshotReference, Tag("stored")],
    Discriminator(_which_snapshot),
]


class SiaParametersDoc(Document):
    """Parameters of Sia, with the paper's defaults."""

    fairness_power: Annotated[float, Field(ge=-10, le=10), AfterValidator(_not_zero)] = -0.5
    """p of the objective, not 0; a negative power minimises."""
    queue_penalty: Annotated[float, Field(ge=0, le=1e9)] = 1.1
    """lambda: the price of leaving a job without GPUs."""
    double_at_most: bool = False
    """A running job gets at most twice its GPUs, a waiting one its minimum."""
    objective: SiaObjective = SiaObjective.GOODPUT
    """goodput: Eq. 4 of the paper; given_costs: values of goodput tables are costs to minimise."""
    prices: dict[Name, NonNegative] = Field(default_factory=dict, max_length=10_000)
    """`prices` of an earlier plan, a start for solvers that price capacity. They change no optimum."""


class CharacterisationRecordDoc(Document):
    """One characterised job: the relative gains of a DP-aligned and of a PP-aligned placement (Arnold section 5.2)."""

    gpu_type: Name
    r1: Positive
    """Micro-batch times volume of a weight over the volumes of DP and PP."""
    r2: Positive
    """Volume of DP over volume of PP."""
    j_dp: NonNegative
    j_pp: NonNegative
    model: Name
    source: Text
    """Where the numbers come from."""


class ArnoldParametersDoc(Document):
    """Parameters of Arnold."""

    alpha: Annotated[float, Field(ge=0, le=1)] | None = None
    """Affinity of the DP groups; 1 - alpha is that of the PP groups. Null: looked up from characterisation records."""
    scheduling_unit: SchedulingUnit = SchedulingUnit.PP
    """The communication group that is kept together as the unit of placement."""
    minipod_tier: Name | None = None
    """Tier to use as minipods instead of the one that the cluster marks."""
    records: Annotated[tuple[CharacterisationRecordDoc, ...], Field(max_length=10_000)] = ()
    """Your own characterisation records; where they cover the GPU type, the published ones are not asked."""
    strengthen: bool = False
    """Add rows that cut off no optimum of the paper's model but help the solver to prove it."""
    spread_objective: SpreadObjective = SpreadObjective.EQ4
    """eq4: minipods used and spread of the scheduling unit; eq2: the spreads of rows and columns themselves."""
    tier_weights: dict[Name, Annotated[float, Field(ge=0, le=1e9)]] | None = None
    """Weights of Eq. 4 on the units of several tiers. Null: the minipod tier alone, as in the paper."""
    spare_nodes_per_minipod: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Wholly free nodes kept back in every minipod that is used, as backups on failure."""


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


PlanBody = Annotated[SiaPlanBody | ArnoldPlanBody, Field(discriminator="policy")]
PLAN_BODY: TypeAdapter[PlanBody] = TypeAdapter(PlanBody)
POLICY_NAMES = ("sia", "arnold")


class AllocationDoc(Document):
    """The GPUs that one job is said to get."""

    job_id: Name
    gpus: GpuMap


class VerifyBody(Document):
    """A placement by anybody, and the snapshot it is for."""

    snapshot: SnapshotSource
    allocations: Annotated[tuple[AllocationDoc, ...], Field(max_length=MAX_ITEMS)]
