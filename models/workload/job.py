"""Jobs: what each asks for, where it runs, and what policies are told of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from models.forecast.lasting import Lasting
from models.parallel_plan import ParallelPlan
from models.parallelism.training import AS_THE_MODEL_SAYS, Choices
from models.performance.goodput.spec import Performance
from models.performance.iteration.coefficients import Calibration
from models.transformer import JobModel, OperatorModel, Transformer
from stowplan.living import Living
from stowplan.pickling import quickly_pickled


class Adaptivity(StrEnum):
    """What a planner may change (Sia section 3.4).

    elastic: GPU count, type and batch size; strong_scaling: count and type at a fixed batch size; rigid: type only.
    """

    ELASTIC = "elastic"
    STRONG_SCALING = "strong_scaling"
    RIGID = "rigid"


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """GPU indices (0-based, ascending) on one node."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """GPUs that a job must get in this plan (Sia section 3.4, preemption and reservation); one that runs on as many of
    the type keeps its configuration with it, and may be moved."""

    gpu_type: str
    num_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Degrees of a 3D-parallel job: tensor, pipeline, data."""

    tp: int
    pp: int
    dp: int

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole job."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """GPUs that an earlier plan added to a running job beyond its basic demand (Suika section 3.2.3).

    `benefit`: the marginal benefit B for which they were given.
    """

    gpus: tuple[NodeGpus, ...]
    benefit: float


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Living):
    """One job of the snapshot.

    `current` is where the job runs now (None: it waits). `gpu_types` restricts the GPU types (None: any).
    `weight` multiplies the job's terms of the objective. `age_s`, `num_restarts`, `restart_cost_s` feed the
    restart factor (Sia Eq. 3). A non-preemptible job that runs keeps its GPUs.
    `performance` is what Sia needs, `parallelism` and `transformer` what Arnold needs. Arena and Suika need
    `transformer`, `operators` or a throughput table; at most one of `transformer` and `operators`. `choices`: what of
    the model's training is left to policies that make 3D plans; each of these plans says what it is then.
    Arena: `priority` (1 is launched first), `deadline_s` from now, `remaining_iterations`.
    Gang: `min_gpus` is its size, `priority` as for Arena, `remaining_s` how long it is expected to run from now, or
    from its start while it waits (0: it is overdue, None: not known), `queue` whose quota it counts against,
    `attained_gpu_s` GPUs x seconds for which it had GPUs.
    Gavel: `min_gpus` is its size, `attained_s` seconds for which it had GPUs of each type (None: it had none yet); for
    the makespan `remaining_iterations`, or `remaining_s` of a job without performance.
    ElasticFlow: a throughput table, `deadline_s` with `remaining_iterations`, `attained_gpu_s` (above 0: it has begun).
    Suika: `min_gpus` is the basic demand, `parallelism` the plan to start with, `parallel_plan` the one that runs, on
    exactly the GPUs of `current`; `expansions` are what the last plans added, oldest first.
    `calibration`: coefficients inverted from measurements, in place of those from data sheets.
    Horizon: `queue` as for Gang; without `remaining_iterations` as much is left as a job does in the mean of `lasting`,
    or in `remaining_s`.
    `lasting` is how long the job lasts from now, or from its start while it waits, as quantiles; `calendar_entry` names
    the reservation that it belongs to. A job that is planned ahead starts from `earliest_start_s` to `latest_start_s`
    from now (None: as late as the horizon).
    For forecasters, and for no policy: `user` and `application` (the model or program) beside `queue`, `time_limit_s`
    that its user gave the job at most, and `running_s` for which it has run (None: not known, or it waits).
    """

    id: str
    min_gpus: int = 1
    max_gpus: int | None = None
    adaptivity: Adaptivity = Adaptivity.ELASTIC
    gpu_types: tuple[str, ...] | None = None
    preemptible: bool = True
    reservation: Reservation | None = None
    weight: float = 1.0
    current: tuple[NodeGpus, ...] | None = None
    age_s: float = 0.0
    num_restarts: int = 0
    restart_cost_s: float = 0.0
    performance: Performance | None = None
    parallelism: Parallelism | None = None
    transformer: Transformer | None = None
    operators: OperatorModel | None = None
    priority: int = 1
    deadline_s: float | None = None
    remaining_iterations: float | None = None
    parallel_plan: ParallelPlan | None = None
    expansions: tuple[Expansion, ...] = ()
    calibration: Calibration | None = None
    remaining_s: float | None = None
    queue: str | None = None
    attained_gpu_s: float = 0.0
    attained_s: Mapping[str, float] | None = None
    lasting: Lasting | None = None
    calendar_entry: str | None = None
    earliest_start_s: float = 0.0
    latest_start_s: float | None = None
    user: str | None = None
    application: str | None = None
    time_limit_s: float | None = None
    running_s: float | None = None
    choices: Choices = AS_THE_MODEL_SAYS

    @property
    def model(self) -> JobModel | None:
        """What the job trains, where it says so."""
        return self.transformer or self.operators
