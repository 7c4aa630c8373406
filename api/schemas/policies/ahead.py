"""Parameters of planning ahead."""

from typing import Annotated, Any

from pydantic import Field

from api.schemas.base import Epsilon, Name, NonNegative, Positive
from api.schemas.policies.arnold import CharacterisationRecordDoc
from api.schemas.policies.base import ParametersDoc
from models.epsilon import EPSILON
from models.placement.ahead.parameters import LONGEST_HORIZON_DAYS, AheadParameters
from models.placement.arnold.parameters import CharacterisationRecord, SchedulingUnit

_Probability = Annotated[float, Field(ge=0, le=1)]


class AheadParametersDoc(ParametersDoc):
    """Parameters of planning ahead. Prices are in one unit of your choice."""

    planner = AheadParameters
    asks_for = "When large pre-training jobs start within weeks, on which nodes, in which rank order."

    alpha: _Probability | None = None
    """Affinity of the DP groups; 1 - alpha is that of the PP groups. Null: looked up from characterisation records."""
    scheduling_unit: SchedulingUnit = SchedulingUnit.PP
    """The communication group that is kept together as the unit of placement."""
    minipod_tier: Name | None = None
    """Tier to use as minipods instead of the one that the cluster marks."""
    records: Annotated[tuple[CharacterisationRecordDoc, ...], Field(max_length=10_000)] = ()
    """Your own characterisation records; where they cover the GPU type, the published ones are not asked."""
    spare_nodes_per_minipod: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Nodes kept as backups in every minipod that is used."""
    spread_price: NonNegative = 1.0
    """Of Eq. 4: alpha times the minipods used plus beta times the most that a scheduling unit touches."""
    lateness_price_per_day: NonNegative = 1.0
    """Of every day after `earliest_start_s`."""
    eviction_price_per_node: NonNegative = 0.1
    """Of a node that is expected to be in use still at the start."""
    restart_price_per_gpu_hour: NonNegative = 0.01
    """Of what jobs that are evicted or moved lose: `restart_cost_s` on each of their GPUs."""
    idle_price_per_node_hour: NonNegative = 0.001
    """Of an hour in which a node is expected to be free and kept for the job."""
    start_change_price: NonNegative = 1000.0
    """Of another start than that of the reservation that the job already has: one that it names, of its name, or that
    it owns."""
    node_change_price: NonNegative = 1.0
    """Of every node that this reservation does not name."""
    moved_nodes: Annotated[int, Field(ge=0)] = 4
    """Running jobs on at most so many nodes may be moved to free ones before a start; 0: nobody is."""
    start_probability: _Probability | None = None
    """All nodes must be free at the start with at least this probability, taken as independent: each with the n-th root
    of it, for n nodes. Null: evictions are priced, not forbidden."""
    end_probability: _Probability = 0.9
    """Nodes are kept for as long as the job lasts with this probability."""
    epsilon: Epsilon = EPSILON
    """Probability with which a job may still run when an entry of the calendar closes its nodes, and one that cannot be
    preempted where another one is to start."""
    horizon_days: Annotated[float, Field(gt=0, le=LONGEST_HORIZON_DAYS)] = 56.0
    """Latest start of jobs without `latest_start_s`."""
    num_starts: Annotated[int, Field(ge=1, le=1000)] = 64
    """Starts that are looked at for each job, at most."""
    num_plans: Annotated[int, Field(ge=1, le=20)] = 3
    """3D plans that are looked at for jobs without `parallelism`: the fastest ones on `min_gpus` GPUs."""
    node_mtbf_hours: Positive | None = None
    """Mean time between failures of a node (null: nothing fails); durations that follow from the model are longer."""
    failure_restart_s: NonNegative = 900.0
    """From a failure until the job works again."""
    checkpoint_s: Positive = 60.0
    """For how long a checkpoint stops the work; checkpoints are as far apart as is best (Young)."""

    def values(self) -> dict[str, Any]:
        """Fields of the planner's type."""
        records = tuple(CharacterisationRecord(**vars(record)) for record in self.records)
        return {**super().values(), "records": records}
