"""What is asked of the planners of 3D plans for a single job, and what they answer. Light: imports no planner."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.efficiency import Efficiency
from models.parallelism.grid.options import GridOptions
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.results import Grid, PlanEstimate, Rejection
from models.parallelism.training import Choices, Training
from models.performance.iteration.breakdown import IterationBreakdown
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.interval import TimeInterval
from models.pipeline_schedule import PipelineSchedule
from models.transformer import JobModel
from models.workload import NodeGpus
from stowplan.errors import Issue
from topology.cluster import Cluster, GpuType


class Planner(StrEnum):
    """grid: Arena's grids. exhaustive: every plan, on few GPUs. incremental: Suika's Algorithm 1 for a running plan.
    given: no search, the degrees are those of the request."""

    GRID = "grid"
    EXHAUSTIVE = "exhaustive"
    INCREMENTAL = "incremental"
    GIVEN = "given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """A symmetric plan in short; `layers` None: spread evenly. `virtual_stages`: parts of a stage. `dp`: groups of
    replicas with sequences of their own, each of `context_parallel` replicas. `schedule`: of the pipeline.
    `recomputed_layers`: of every part the
    first so many (all, where it has fewer) are recomputed in full, and others keep everything; None: as the job's
    model says."""

    pp: int
    dp: int
    tp: int
    num_micro_batches: int
    layers: tuple[int, ...] | None = None
    virtual_stages: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    recomputed_layers: int | None = None
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B

    @property
    def num_gpus(self) -> int:
        """GPUs of the plan."""
        return self.pp * self.dp * self.context_parallel * self.tp


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """A measured iteration time of a symmetric plan without virtual stages whose replicas share nothing, and whose
    stages all recompute as the job says; `num_micro_batches` None: whatever their number."""

    gpu_type: str
    pp: int
    dp: int
    tp: int
    iteration_s: float
    num_micro_batches: int | None = None

    @classmethod
    def of(cls, degrees: Degrees, gpu_type: str, iteration_s: float) -> "MeasuredPlan | None":
        """The time of a plan in short; None where it has more than is said here."""
        parts = degrees.virtual_stages, degrees.context_parallel, degrees.expert_parallel
        if parts != (1, 1, 1) or degrees.recomputed_layers is not None:
            return None
        return cls(
            gpu_type=gpu_type,
            pp=degrees.pp,
            dp=degrees.dp,
            tp=degrees.tp,
            iteration_s=iteration_s,
            num_micro_batches=degrees.num_micro_batches,
        )

    def matches(self, plan: ParallelPlan) -> bool:
        """Whether the time is that of `plan`."""
        first = plan.stages[0]
        return (
            plan.is_symmetric
            and plan.virtual_stages == plan.context_parallel == plan.expert_parallel == 1
            and not plan.has_own_checkpointing
            and (self.pp, self.dp, self.tp) == (plan.pp, first.dp, first.tp)
            and self.gpu_type == first.replicas[0].gpu_type
            and self.num_micro_batches in (None, plan.num_micro_batches)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """GPUs of one type on equal nodes, and how many of them may be used.

    `nodes`: the nodes of the cluster that have them, None for virtual nodes under one switch; each count then takes
    the first nodes, of which all but the last give `gpus_per_node`.
    """

    gpu_type: GpuType
    gpus_per_node: int
    counts: tuple[int, ...]
    nodes: tuple[NodeGpus, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelRequest:
    """A job and the GPUs that it may get.

    `cluster` None: the nodes are virtual. `degrees` belong to the planner `given`; `running` and `released`, (node,
    GPU), to `incremental`, which needs a cluster and no offers. `choices`: what of the model's training the search
    decides; `num_tokens`: to train on, for how long that takes; measurements and coefficients are of one way to train,
    and exclude it. `warnings`: what was noticed while it was read, with pointers relative to that.
    """

    model: JobModel
    choices: Choices = field(default_factory=Choices)
    planner: Planner = Planner.GRID
    offers: tuple[Offer, ...] = ()
    cluster: Cluster | None = None
    degrees: Degrees | None = None
    running: ParallelPlan | None = None
    released: tuple[Gpu, ...] = ()
    measured: tuple[MeasuredPlan, ...] = ()
    calibration: Calibration | None = None
    grid: GridOptions = field(default_factory=GridOptions)
    incremental: IncrementalOptions = field(default_factory=IncrementalOptions)
    num_tokens: int | None = None
    warnings: tuple[Issue, ...] = ()

    def measured_s(self, plan: ParallelPlan) -> float | None:
        """Measured iteration time of a plan, None where there is none."""
        return next((measured.iteration_s for measured in self.measured if measured.matches(plan)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPoint:
    """The best plan on a number of GPUs of a type; `usable_bytes` per stage: memory that the plan may use.

    `breakdown` is of the predicted time, also where the time was measured. `gpu_type` joins types by `+`. `model`: as
    it is trained. `symmetric`: the best symmetric plan beside one that is not. `interval`: where the time is 9 times of
    10, None where nobody asked. `bound_s`: no plan that `even.even_plans` ranks, trained in any way that is open, takes
    less by prediction on equal nodes; None where there is none, or that was not searched for.
    """

    gpu_type: str
    num_gpus: int
    model: JobModel
    estimate: PlanEstimate
    breakdown: IterationBreakdown
    usable_bytes: tuple[float, ...]
    efficiency: Efficiency
    symmetric: "PlanPoint | None" = None
    interval: TimeInterval | None = None
    bound_s: float | None = None

    @property
    def gap(self) -> float | None:
        """Share of the time that such a plan may be faster by."""
        return None if self.bound_s is None else max(0.0, 1.0 - self.bound_s / self.seconds)

    @property
    def seconds(self) -> float:
        """Of an iteration."""
        return self.estimate.iteration.total_s

    @property
    def fullest(self) -> tuple[float, float]:
        """Bytes that are needed and usable on a GPU of the stage that comes closest to its limit, or is furthest
        above it."""
        needed = (memory.total_bytes for memory in self.estimate.memory)
        return max(zip(needed, self.usable_bytes, strict=True), key=lambda pair: pair[0] / pair[1])

    @property
    def fits(self) -> bool:
        """Whether the memory is enough; only given and running plans may be without."""
        needed, usable = self.fullest
        return needed <= usable


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureNext:
    """The plan whose measurement is expected to help the choice most.

    gain: share of the iteration time that is expected to be saved. rival: the fastest other plan; ratio: predicted time
    over that of the rival, with the standard deviations of its logarithm before and after the measurement.
    """

    plan: ParallelPlan
    gpu_type: str
    interval: TimeInterval
    gain: float
    rival: ParallelPlan
    ratio: float
    deviation: float
    deviation_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPoint:
    """A number of GPUs of a type without a legal plan, and why; the closest out-of-memory candidate comes first."""

    gpu_type: str
    num_gpus: int
    rejections: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The best plan of one way to train on a number of GPUs; None: there is none, `why`."""

    gpu_type: str
    num_gpus: int
    training: Training
    estimate: PlanEstimate | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerWork:
    """What a tuner that measures must still try on `num_gpus` (Arena section 3.6): only plans of `pp` stages whose
    computation bias is at most `max_bias`, `num_after` of the `num_before` plans of all grids."""

    gpu_type: str
    num_gpus: int
    pp: int
    max_bias: float
    num_before: int
    num_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelAnswer:
    """Points by GPU type, then count; the fastest is `best`. `grids` are those of the grid planner.

    For a running job the points are its plan and those with more and more GPUs. `tuner` is for the GPUs of the best
    point, None where no grid has a frontier, or more plans are left than are counted. `measure_next` None: there is
    nothing to learn. `alternatives`: what every way to train brings, where the search chose; the best first.
    `warnings`: those of the request and of planning. `elapsed_s`: wall-clock time. `bounds_s`: (GPU type, count) ->
    `PlanPoint.bound_s` of one way to train, infinite where it has no symmetric plan.
    """

    points: tuple[PlanPoint, ...]
    missing: tuple[MissingPoint, ...]
    grids: tuple[Grid, ...] = ()
    tuner: TunerWork | None = None
    measure_next: MeasureNext | None = None
    alternatives: tuple[Alternative, ...] = ()
    warnings: tuple[Issue, ...] = ()
    elapsed_s: float = 0.0
    bounds_s: Mapping[tuple[str, int], float] = field(default_factory=dict)

    @property
    def best(self) -> PlanPoint:
        """The point of highest throughput, of those that fit if there are any; of equals, the one on fewer GPUs."""
        return max(self.points, key=lambda point: (point.fits, point.estimate.throughput, -point.num_gpus))
