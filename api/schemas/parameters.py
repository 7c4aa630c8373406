"""Parameters of the policies, with the papers' defaults."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from api.schemas.base import Count, Document, Name, NonNegative, NumGpus, Positive, Text
from models.allocation.arena.parameters import ArenaObjective
from models.allocation.sia.parameters import SiaObjective
from models.allocation.suika.parameters import Queueing
from models.parallelism.incremental.options import MicroBatches
from models.placement.arnold.parameters import SchedulingUnit, SpreadObjective


def _not_zero(value: float) -> float:
    if value == 0:
        raise PydanticCustomError("out_of_range", "is 0; must be above or below 0 (the paper uses -0.5)")
    return value


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


class ArenaParametersDoc(Document):
    """Parameters of Arena section 3.5; `num_queues` and `search_depth` are the paper's."""

    objective: ArenaObjective = ArenaObjective.THROUGHPUT
    """throughput: Eq. 5; deadlines: as many deadlines as can be met (Eq. 6), by weight, then Eq. 5;
    finish_time_fairness: Eq. 7."""
    normalise: bool = True
    """Throughputs count in shares of the job's best one; without it in samples/s, and small models win."""
    num_queues: Annotated[int, Field(ge=1, le=1000)] = 3
    """Priorities are 1 (first) to this."""
    priority_ratio: Annotated[float, Field(ge=1, le=100)] = 2.0
    """How many times a job of one priority counts against a job of the next."""
    promotion_after_s: Positive | None = 3600.0
    """A waiting job rises by one queue every time that it has waited so long (null: never)."""
    search_depth: Annotated[int, Field(ge=0, le=1000)] = 3
    """Heuristic: most jobs that are scaled down to launch one."""
    max_scale_ups: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Heuristic: most jobs that are scaled up in one event (null: while it gains anything)."""
    horizon_s: Positive = 3600.0
    """Over what time a restart is paid for, and how long a job is taken to wait that is left out."""
    mean_weight: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    """Finish-time fairness: weight of the mean beside the maximum."""
    counts: Annotated[tuple[NumGpus, ...], Field(min_length=1, max_length=1000)] | None = None
    """GPU counts that may be given (null: every buddy block)."""


class IncrementalOptionsDoc(Document):
    """How far the incremental planner looks (Suika section 3.2.2)."""

    window: Annotated[int, Field(ge=1, le=10_000)] | None = 8
    """Prefixes of the released GPUs whose plans a plan may come from (null: all)."""
    unit: NumGpus | None = None
    """GPUs of one node that are added together (null: min(ceil(N / 16), 8) for a job on N GPUs)."""
    expansion_limit: Annotated[float, Field(gt=0, le=1e6)] | None = 1.0
    """Stop when the plan has grown by this multiple (null: no limit)."""
    micro_batches: MicroBatches = MicroBatches.FREE
    """Any number of micro-batches, or that of the running plan."""
    tolerance: Annotated[float, Field(ge=0, le=10)] = 0.1
    """How much slower than the best a plan may be to be built upon."""


class SuikaParametersDoc(Document):
    """Parameters of Suika section 3.2."""

    aggressiveness: Annotated[float, Field(ge=0, le=1e6)] = 1.0
    """Exponent of the threshold: 0 asks for scale-outs that are linear or better, more lets weaker ones through."""
    queueing: Queueing = Queueing.FIFO
    """Order of waiting jobs: by age (fifo), or by the time that they still take (sjf)."""
    planning: IncrementalOptionsDoc = IncrementalOptionsDoc()
    max_rounds: Count = 1000
    """Most scale-outs in one decision."""


# Policy -> its parameters.
PARAMETERS: Mapping[str, type[Document]] = {
    "sia": SiaParametersDoc,
    "arnold": ArnoldParametersDoc,
    "arena": ArenaParametersDoc,
    "arena-ilp": ArenaParametersDoc,
    "suika": SuikaParametersDoc,
    "suika-ilp": SuikaParametersDoc,
}
