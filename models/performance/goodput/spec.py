"""What a job says about its performance: one of four kinds, told apart by their type.

Every kind answers the same question (`models.performance.goodput.matrix.evaluate`): which goodput does the job reach
on each configuration (nodes, GPUs, GPU type), and with which batch size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stowplan.living import Living
from stowplan.pickling import quickly_pickled


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputParameters:
    """Pollux/Sia throughput model of one job on one GPU type (Sia section 3.2; notation of Pollux).

    R replicas, m local batch, s accumulation steps: T_grad = alpha_c + beta_c m; T_sync = 0 for R = 1,
    alpha_r + beta_r max(R-2, 0) inside a node, alpha_n + beta_n max(R-2, 0) across nodes at full bandwidth;
    T_iter = s T_grad + (T_grad^gamma + T_sync^gamma)^(1/gamma). All in seconds, beta_c in seconds per sample.
    """

    alpha_c: float
    beta_c: float
    alpha_r: float
    beta_r: float
    alpha_n: float
    beta_n: float
    gamma: float


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class GradientStatistics:
    """Gradient noise at the initial batch: squared norm of the mean gradient and its variance (same unit)."""

    squared_norm: float
    variance: float


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRange:
    """Samples per step. The statistical efficiency is 1 at `initial`; elastic jobs may go up to `maximum`."""

    initial: int
    maximum: int


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class TypeProfile:
    """One job on one GPU type: fitted parameters and the range of local batches that memory allows.

    `single_gpu_only`: the sync terms have never been seen on this type, so multi-replica throughput is
    bootstrapped from a type where they have (Sia Eq. 1).
    `gpus_per_replica`: P of a hybrid-parallel job on this type (section 3.4); 1 is plain data parallelism.
    """

    parameters: ThroughputParameters
    max_local_batch: int
    min_local_batch: int = 1
    single_gpu_only: bool = False
    gpus_per_replica: int = 1


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputModel(Living):
    """Elastic data-parallel training: throughput times statistical efficiency, batch size chosen by the planner.

    `profiles` maps GPU type name -> profile; a type that is missing cannot run the job.
    """

    batch: BatchRange
    gradient: GradientStatistics
    profiles: Mapping[str, TypeProfile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured point: mean times of a step on `num_replicas` replicas over `num_nodes` nodes.

    `step_time_s` is one forward-backward pass with gradient synchronisation, `sync_time_s` the part of it that
    waits for synchronisation; `step_time_s - sync_time_s` is one accumulation step. `bandwidth_fraction`: the share of
    the inter-node bandwidth that the nodes had between them, below 1 where they spanned a slow tier.
    """

    gpu_type: str
    num_nodes: int
    num_replicas: int
    local_batch: int
    step_time_s: float
    sync_time_s: float
    bandwidth_fraction: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputObservations(Living):
    """Raw measurements; `models.performance.goodput.fit` turns them into a `GoodputModel`.

    `max_local_batch`: per GPU type; where missing, the largest one observed on that type.
    `gpus_per_replica`: per GPU type; where missing, 1.
    `shared_with`: an application; jobs of the same one share what they have observed (`sharing`).
    """

    batch: BatchRange
    gradient: GradientStatistics
    observations: tuple[Observation, ...]
    max_local_batch: Mapping[str, int] = field(default_factory=dict)
    gpus_per_replica: Mapping[str, int] = field(default_factory=dict)
    shared_with: str | None = None


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """A value for `num_gpus` GPUs of one type; `num_nodes` None stands for every node count."""

    gpu_type: str
    num_gpus: int
    value: float
    num_nodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputTable(Living):
    """Measured or estimated samples/s per (GPU type, count) at a fixed batch size: goodput is throughput."""

    entries: tuple[TableEntry, ...]
    batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputTable(Living):
    """Explicit goodput per (GPU type, count), any unit that is the same along the row.

    With the Sia parameter `objective = "given_costs"` the values are costs to be minimised, taken as given.
    """

    entries: tuple[TableEntry, ...]


Performance = GoodputModel | GoodputObservations | ThroughputTable | GoodputTable
