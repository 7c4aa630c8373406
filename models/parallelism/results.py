"""What the planners of 3D plans give."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from models.parallel_plan import Gpu, ParallelPlan
from models.performance.iteration.memory import StageMemory
from models.performance.iteration.times import IterationTime


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
    GPUs that do not make so many stages whose tensor groups stay inside nodes, ZeRO stage at which the software has no
    pipelines, degrees of context and expert parallelism that nothing admits, degrees that its job asks for, or that the
    time was over before it was looked at."""

    OUT_OF_MEMORY = "out_of_memory"
    TENSOR_DEGREE = "tensor_degree"
    LAYERS = "layers"
    BATCH = "batch"
    NODES = "nodes"
    ZERO_STAGE = "zero_stage"
    SHARING = "sharing"
    DEGREES = "degrees"
    TIME = "time"


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


def how_close(rejection: Rejection) -> tuple[bool, float]:
    """Order of rejections: out of memory first, by what is lacking."""
    needed, usable = rejection.needed_bytes, rejection.usable_bytes
    return (False, needed / usable) if needed is not None and usable else (True, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPlan:
    """A plan of a grid's Pareto frontier: computation bias (Arena Eq. 3, GPUs) and communication load (Eq. 4, s)."""

    plan: ParallelPlan
    computation_bias: float
    communication_load_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One grid (Arena section 3.2): GPU type, GPU count, pipeline degree; its frontier and its proxy plan.

    `proxy` None: no plan of the grid is legal; `rejections` say why. `num_plans`: partitions that were compared.
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
    """All grids of a job, and per (GPU type, GPU count) the best plan; a pair without a legal plan is missing.

    `proxies`: the best proxy plan; `best`: that, or a faster one of the frontiers where the planner was to refine.
    Plans sit on virtual nodes named `0`, `1`, ...; `models.parallelism.binding` puts them on real ones.
    """

    grids: tuple[Grid, ...]
    proxies: Mapping[tuple[str, int], PlanEstimate]
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

    order: tuple[Gpu, ...]
    base_throughput: float
    steps: tuple[Step, ...]
