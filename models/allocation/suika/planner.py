"""What Suika asks about one job at a time; `models.allocation.suika.agent` answers from the performance model."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from models.parallel_plan import Gpu, ParallelPlan
from models.workload import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A scale-out that a job can have: the GPUs that are new, the throughput (samples/s), and how to get the plan,
    which few candidates need."""

    added: frozenset[Gpu]
    throughput: float
    build: Callable[[], ParallelPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """All candidates of a job. `horizon`: the released GPUs that were looked at; while these are all released, others
    that come or go further away change nothing."""

    candidates: tuple[Candidate, ...]
    horizon: frozenset[Gpu]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """Plan of a job's basic demand on one GPU type, on virtual nodes; throughput in samples/s."""

    gpu_type: str
    plan: ParallelPlan
    throughput: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """Why a job has no plan on any of its GPU types; `counts` are the numbers behind it, `remedy` what would help."""

    reason: str
    detail: str
    counts: Mapping[str, int]
    remedy: str


class Planner(Protocol):
    """The view of all jobs' agents (Suika section 3)."""

    def start_plans(self, job: Job) -> Sequence[StartPlan]:
        """Plans for the basic demand, at most one per GPU type, fastest first; empty when none is legal."""

    def why_no_plan(self, job: Job) -> NoPlan:
        """Explain a job without start plans."""

    def derived_plan(self, job: Job, gpus: Collection[Gpu]) -> ParallelPlan | None:
        """A plan on exactly these GPUs for a job that does not say how it runs; None when none is legal."""

    def assessed(self, job: Job, plan: ParallelPlan) -> float | None:
        """Samples per second of a plan of somebody else's; None when the model of the job finds that it cannot run."""

    def throughput(self, job: Job, plan: ParallelPlan) -> float:
        """Samples per second."""

    def expand(self, job: Job, plan: ParallelPlan, released: Sequence[Gpu]) -> Offer:
        """What the job can have of the released GPUs, which are of its type (Algorithm 1)."""

    def outlook(self, job: Job, plan: ParallelPlan) -> Sequence[tuple[int, float]]:
        """(New GPUs, samples per second), step by step, that the job could have if these GPUs were where it likes them:
        an estimate, hardly ever below what it gets."""

    def shrink(self, job: Job, plan: ParallelPlan, lost: Collection[Gpu]) -> ParallelPlan | None:
        """A plan without the lost GPUs, which may leave more idle; None when what is left holds no legal plan."""
