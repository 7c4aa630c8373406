"""What the planners of 3D plans give."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from models.parallel_plan import ParallelPlan
from models.performance.iteration import IterationTime
from models.performance.memory import StageMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """A plan with what the performance model says of it. `throughput` in samples/s, one memory per stage.

    `measured`: the iteration time was supplied, not predicted.
    """

    plan: ParallelPlan
    iteration: IterationTime
    memory: tuple[StageMemory, ...]
    throughput: float
    measured: bool = False


class RejectionReason(StrEnum):
    """Why a candidate is no plan: memory, tensor degree, fewer layers than stages, batch that does not divide,
    GPUs that do not make whole tensor groups inside nodes."""

    OUT_OF_MEMORY = "out_of_memory"
    TENSOR_DEGREE = "tensor_degree"
    LAYERS = "layers"
    BATCH = "batch"
    NODES = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Candidates of one kind that were rejected: `candidate` names one (`PP2 DP2 TP1 on 4 a100`), `count` how many.

    Out of memory: `needed_bytes` and `usable_bytes` of the fullest GPU of the candidate that comes closest.
    """

    reason: RejectionReason
    candidate: str
    detail: str
    count: int = 1
    needed_bytes: float | None = None
    usable_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPlan:
    """A plan of a grid's Pareto frontier: computation bias (Arena Eq. 3, GPUs) and communication load (Eq. 4, s)."""

    plan: ParallelPlan
    computation_bias: float
    communication_load_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One grid (Arena section 3.2): GPU type, GPU count, pipeline degree; its frontier and its proxy plan.

    `proxy` None: no plan of the grid is legal; `rejections` say why.
    """

    gpu_type: str
    num_gpus: int
    pp: int
    frontier: tuple[FrontierPlan, ...]
    proxy: PlanEstimate | None
    num_plans: int
    rejections: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridResult:
    """All grids of a job, and per (GPU type, GPU count) the best proxy plan; a pair without a legal plan is missing.

    Plans sit on virtual nodes named `0`, `1`, ...; `models.parallelism.binding` puts them on real ones.
    """

    grids: tuple[Grid, ...]
    best: Mapping[tuple[str, int], PlanEstimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a running job can have with the first `num_added` GPUs of its affinity order (Suika Alg. 1).

    The plan may leave some of these GPUs idle; throughput in samples/s.
    """

    num_added: int
    plan: ParallelPlan
    throughput: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalResult:
    """The affinity order of the released GPUs (node, GPU), the base throughput, and the steps by `num_added`."""

    order: tuple[tuple[str, int], ...]
    base_throughput: float
    steps: tuple[Step, ...]
