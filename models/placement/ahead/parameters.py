"""What a user may tune in planning ahead."""

import math
from dataclasses import dataclass, fields

from models.epsilon import raise_for_epsilon
from models.placement.arnold.parameters import CharacterisationRecord, SchedulingUnit
from models.policy import Parameters
from stowplan.errors import InputError

# No forecast reaches further, and no calendar is that long.
LONGEST_HORIZON_DAYS = 3650.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadParameters(Parameters):
    """Parameters of planning ahead; prices are per job of weight 1.

    alpha, scheduling_unit, minipod_tier, records, spare_nodes_per_minipod: as in Arnold. spread_price: of Eq. 4.
    lateness_price_per_day: of every day after a job's earliest start. eviction_price_per_node: of a node that is
    expected to be in use still when the job starts; restart_price_per_gpu_hour: of what the jobs there lose by their
    restart, also where they are moved. idle_price_per_node_hour: of an hour in which a node is expected to be free and
    kept so for the job.

    start_change_price: of another start than that of the reservation that the job already has; node_change_price: of
    every node that it does not name.
    moved_nodes: running jobs on at most so many nodes may be moved to free ones before a start (0: nobody is moved).
    start_probability: all nodes of a job must be free at its start with at least this probability, taken as
    independent: each with the n-th root of it, for n nodes. None: evictions are priced, and nothing else.
    end_probability: nodes are kept for as long as the job lasts with this probability. epsilon: also the probability
    with which a job that cannot be preempted may still be where another one is to start.
    horizon_days: latest start of jobs that name none. num_starts: starts that are looked at for each job, at most.
    num_plans: 3D plans that are looked at for jobs that leave theirs open, the fastest ones. node_mtbf_hours: mean time
    between failures of a node (None: nothing fails), failure_restart_s: from a failure until the job works again,
    checkpoint_s: for how long a checkpoint stops the work; they make durations that follow from the model longer.

    Raises
    ------
    InputError
        When a price is negative or not finite, a probability or alpha is none, or a number is out of range.
    """

    alpha: float | None = None
    scheduling_unit: SchedulingUnit = SchedulingUnit.PP
    minipod_tier: str | None = None
    records: tuple[CharacterisationRecord, ...] = ()
    spare_nodes_per_minipod: int = 0
    spread_price: float = 1.0
    lateness_price_per_day: float = 1.0
    eviction_price_per_node: float = 0.1
    restart_price_per_gpu_hour: float = 0.01
    idle_price_per_node_hour: float = 0.001
    start_change_price: float = 1000.0
    node_change_price: float = 1.0
    moved_nodes: int = 4
    start_probability: float | None = None
    end_probability: float = 0.9
    horizon_days: float = 56.0
    num_starts: int = 64
    num_plans: int = 3
    node_mtbf_hours: float | None = None
    failure_restart_s: float = 900.0
    checkpoint_s: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if "price" in field.name and not (math.isfinite(value) and value >= 0):
                raise InputError(f"{field.name} is {value}; must be finite and at least 0")
        raise_for_epsilon(self.epsilon)
        for name in ("alpha", "start_probability", "end_probability"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"{name} is {value}; must lie in [0, 1]")
        if not 0 < self.horizon_days <= LONGEST_HORIZON_DAYS:
            raise InputError(f"horizon_days is {self.horizon_days}; above 0, at most {LONGEST_HORIZON_DAYS:.0f}")
        for name in ("node_mtbf_hours", "checkpoint_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value}; must be finite and above 0")
        for name, least in (
            ("spare_nodes_per_minipod", 0),
            ("moved_nodes", 0),
            ("num_starts", 1),
            ("num_plans", 1),
            ("failure_restart_s", 0),
        ):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}; must be at least {least}")
