"""What planning takes and gives. Every plan in a `PlanOutcome` has passed the independent check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from models.parallel_plan import Gpu, ParallelPlan
from models.policies import policy_of
from models.policy import Parameters
from models.workload import Expansion, NodeGpus, Parallelism, Snapshot
from solver.options import SolveOptions
from solver.result import Limit, SolveStatistics, TerminationReason
from stowplan.arrays import FloatVector
from stowplan.errors import Issue
from stowplan.pickling import quickly_pickled


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """One planning task; `parameters` choose the policy."""

    snapshot: Snapshot
    parameters: Parameters
    options: SolveOptions = field(default_factory=SolveOptions)

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return policy_of(self.parameters).name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resume:
    """The last incumbent (n,) and bound that a killed worker reported: enough to finish without solving again."""

    incumbent: FloatVector
    bound: float | None
    elapsed_s: float


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanTask:
    """What a worker gets: a request, and the last incumbent if an earlier worker was killed while solving it.

    `validated`: whoever sends it has asked `request_issues` and keeps the warnings.
    """

    request: PlanRequest
    resume: Resume | None = None
    validated: bool = False


class Change(StrEnum):
    """What happens to a job against `current`.

    started: waited, runs now. kept: same GPUs. moved: same type and count, other GPUs. rescaled: same type, other
    count. retyped: other GPU type.
    """

    STARTED = "started"
    KEPT = "kept"
    MOVED = "moved"
    RESCALED = "rescaled"
    RETYPED = "retyped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReason:
    """Why a running job changes, in words, and the numbers behind them (`{"ends_s": 600, "stays_ends_s": 900}`)."""

    detail: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAllocation:
    """What one job gets. `gpus` are concrete, ordered by node id (rank order for a pre-training job).

    `batch_size` = replicas x local_batch_size x accumulation_steps, or less where only smaller last shares keep within
    the job's maximum; `accumulation_steps` are micro-batches per optimiser step, as DeepSpeed counts them. All None
    where the performance kind knows no batch. `expected_goodput` is in the unit of the job's performance (samples/s
    for fitted models and 3D plans), on these nodes with the bandwidth between them. `parallel_plan` is the 3D plan on
    exactly these GPUs, where the policy chooses one; `expansions` are the GPUs beyond the basic demand, oldest first
    (Suika). `why` it changes: of a running job whose GPUs are others, where the policy says so.
    """

    job_id: str
    gpu_type: str
    num_gpus: int
    gpus: tuple[NodeGpus, ...]
    change: Change
    batch_size: int | None = None
    local_batch_size: int | None = None
    accumulation_steps: int | None = None
    expected_goodput: float | None = None
    parallel_plan: ParallelPlan | None = None
    expansions: tuple[Expansion, ...] = ()
    why: ChangeReason | None = None

    @property
    def rank_gpus(self) -> tuple[Gpu, ...]:
        """(node, GPU) of every rank: as its 3D plan says, else as they stand in `gpus`."""
        if self.parallel_plan is not None:
            return self.parallel_plan.gpus
        return tuple((part.node, gpu) for part in self.gpus for gpu in part.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedJob:
    """Why a job gets nothing.

    `reason` is a stable code (`capacity`, `no_configuration`, `outcompeted`, ...). `counts` are the numbers behind
    it (`{"free_gpus.a100": 3, "min_gpus": 8}`). `remedy` says what would make it fit. `preempted`: it runs now.
    """

    job_id: str
    reason: str
    detail: str
    counts: Mapping[str, int]
    remedy: str
    preempted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTerm:
    """One summand of the objective; the terms of a plan add up to its objective."""

    term: str
    job_id: str | None
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadPair:
    """The largest spread of the DP groups (columns) and of the PP groups (rows) over minipods."""

    dp: int
    pp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainingPlacement:
    """Arnold's answer for one job: the communication matrix with a node in every cell (paper section 5.1).

    `cells[row][column]` is a node id, `minipods[row][column]` its minipod (path joined by `/`); a row is a PP
    group, a column a DP group. `hosts` is the rank order: stage-major, GPUs of host k hold ranks
    k x GPUs per node onwards. `minipod_spread` counts minipods (Eq. 4), `distance` is Eq. 3 (one minipod is 0).
    `objective_eq4` and `objective_eq2` are the weighted sums in the two measures. `spares` are nodes kept free in the
    minipods used, as backups on failure. `parallelism`: the degrees that were placed (None: of an earlier version).
    """

    job_id: str
    scheduling_unit: str
    alpha: float
    beta: float
    affinity_source: str
    cells: tuple[tuple[str, ...], ...]
    minipods: tuple[tuple[str, ...], ...]
    hosts: tuple[str, ...]
    minipod_spread: SpreadPair
    distance: SpreadPair
    num_minipods_used: int
    max_unit_spread: int
    objective_eq4: float
    objective_eq2: float
    spares: tuple[str, ...] = ()
    parallelism: Parallelism | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNode:
    """A node that is kept for a job: with which probability nothing runs on it any more when the job starts, and for
    how long it is expected to be free before that, in seconds."""

    node: str
    free_probability: float
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCost:
    """What the job costs when it starts at another time and the others stay; None: it cannot."""

    start_s: float
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How many of the nodes kept for a job are expected to be in use by others at a time (Arnold, appendix H)."""

    at_s: float
    num_nodes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEstimate:
    """What the performance model says of a job on its plan. `mfu`: of the peak of its GPUs. `goodput`: share of the
    time in which work is done, failures and checkpoints considered."""

    num_micro_batches: int
    step_s: float
    mfu: float
    goodput: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMove:
    """A running job that makes way: from its nodes to as many free ones, at the latest `latest_s` from the snapshot, if
    it runs still. `price`: what it is expected to lose, and what it costs to keep its new nodes free."""

    job_id: str
    from_nodes: tuple[str, ...]
    to_nodes: tuple[str, ...]
    latest_s: float
    price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The reservation that a job had when it was planned, its start, and what has changed: nodes that the job gets and
    the reservation does not name, and such that it names and the job does not get."""

    reservation: str
    start_s: float
    new_nodes: tuple[str, ...]
    left_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadPlacement:
    """When and where a job starts that is planned ahead; seconds from the snapshot.

    `parallelism`: its degrees, given or chosen; `training`: where they were chosen, or the duration follows from the
    model. Nodes are kept until `end_s` (None: for ever). `nodes` are those of the placement, hosts in rank order, then
    spares. `expected_evictions`: nodes that are expected to be in use still at the start, `idle_s` the sum of those of
    the nodes. `other_starts` are the starts that were looked at, this one among them, ascending. `retention`: from now
    to the start, if nothing new is admitted. `moves`: running jobs that are moved before the start, so that nodes of
    theirs are free by then. `promise`: where the job had a reservation before.
    """

    placement: PretrainingPlacement
    parallelism: Parallelism
    gpu_type: str
    start_s: float
    end_s: float | None
    nodes: tuple[KeptNode, ...]
    expected_evictions: float
    idle_s: float
    other_starts: tuple[StartCost, ...]
    retention: tuple[Retention, ...] = ()
    training: TrainingEstimate | None = None
    moves: tuple[JobMove, ...] = ()
    promise: Promise | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A legal answer. Allocations and unplaced jobs together cover every job of the snapshot once; what starts later is
    unplaced now, and stands in `ahead`."""

    allocations: tuple[JobAllocation, ...]
    unplaced: tuple[UnplacedJob, ...]
    score: tuple[ScoreTerm, ...]
    pretraining: PretrainingPlacement | None = None
    ahead: tuple[AheadPlacement, ...] = ()


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """Wall-clock seconds per phase, in the order they ran, and CPU seconds of the whole and per phase.

    CPU seconds are those of the whole process, solver threads included; an outcome read from a document has none
    per phase. `peak_memory_bytes` is the largest resident set of the process so far, whatever it did before.
    """

    wall_s: Mapping[str, float]
    cpu_s: float
    phase_cpu_s: Mapping[str, float] = field(default_factory=dict)
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """What planning ended with; `plan` is None exactly when the termination has no incumbent.

    `conflicts` names constraints that exclude each other when infeasible, `unplaced` are the jobs behind them where
    that is known. `warnings` travel with the answer.
    `objective` and `bound` are in the policy's own sense (`sense`). `certificate` is one sentence: what proves the
    answer, or what ended the solve before it was proved. `prices` tell what one more unit of a scarce row (a GPU of a
    type, say) is worth in the objective, where the solver priced rows; they are a start for the next plan.
    """

    termination: TerminationReason
    limit: Limit | None
    sense: str
    objective: float | None
    bound: float | None
    relative_gap: float | None
    plan: Plan | None
    conflicts: tuple[str, ...]
    warnings: tuple[Issue, ...]
    times: PhaseTimes
    statistics: SolveStatistics
    solver: str
    solver_version: str
    certificate: str
    prices: Mapping[str, float] = field(default_factory=dict)
    unplaced: tuple[UnplacedJob, ...] = ()

    def __post_init__(self) -> None:
        if (self.plan is not None) != self.termination.has_incumbent:
            raise ValueError(f"{self.termination} with plan {self.plan is not None}")
