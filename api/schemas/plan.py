"""A plan as clients see it."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.ahead import AheadPlacementDoc
from api.schemas.base import Document
from api.schemas.launch import LaunchDoc
from api.schemas.parallel_plan import ExpansionDoc, ParallelPlanDoc
from api.schemas.placement import CommunicationMatrixDoc
from api.schemas.problem import IssueDoc
from models.plan import Change
from solver.result import Limit, TerminationReason
from solver.sense import Sense


class PlanStatus(StrEnum):
    """Life of a plan: queued, building, solving, and then one of the final states.

    succeeded: there is a plan. infeasible: proven that there is none. timed_out: a limit struck before any plan was
    found. canceled: by a client; the best plan found so far is kept. interrupted: the service stopped
    meanwhile; the best plan found so far is kept, and without any the plan goes on when the service is back.
    """

    QUEUED = "queued"
    BUILDING = "building"
    SOLVING = "solving"
    SUCCEEDED = "succeeded"
    INFEASIBLE = "infeasible"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (PlanStatus.QUEUED, PlanStatus.BUILDING, PlanStatus.SOLVING)


class StatusTimes(Document):
    """When each state was reached (UTC); null: not reached, or passed too quickly to be seen."""

    queued: datetime
    building: datetime | None = None
    solving: datetime | None = None
    finished: datetime | None = None


class TerminationDoc(Document):
    """Why the solve ended, and which limit ended it early: null for a proof, and for a heuristic that has ended by
    itself with a wider gap than was asked for."""

    reason: TerminationReason
    limit: Limit | None


class ScoreTermDoc(Document):
    """One summand of the objective; all terms add up to it."""

    term: str
    job_id: str | None
    value: float


class RankedHost(Document):
    """GPUs of one host of a job; they hold ranks `first_rank` onwards, in the order given."""

    node: str
    first_rank: int
    gpus: tuple[int, ...]


class ChangeReasonDoc(Document):
    """Why a running job changes."""

    detail: str
    counts: dict[str, int] = Field(examples=[{"ends_s": 2460, "stays_ends_s": 3300, "others_lose_s": 720}])
    """The numbers behind it; `horizon`: when the job ends, when it would if it stayed, and what others would lose by
    that of their time, all together (below 0: they would gain)."""


class JobAllocationDoc(Document):
    """What one job gets."""

    job_id: str
    gpu_type: str
    num_gpus: int
    gpus: dict[str, tuple[int, ...]]
    """Node id -> GPU indices."""
    change: Change
    """Against `current`: started, kept, moved (same type and count), rescaled (other count), retyped (other type)."""
    why: ChangeReasonDoc | None = None
    """Why the GPUs of a running job are others, where the policy says so."""
    previous: dict[str, tuple[int, ...]] | None
    """`current` as it was posted."""
    batch_size: int | None
    """Samples per optimiser step of all replicas."""
    local_batch_size: int | None
    """Samples of one micro-batch of a replica."""
    accumulation_steps: int | None
    """Micro-batches of a replica per optimiser step: DeepSpeed's `gradient_accumulation_steps`."""
    expected_goodput: float | None
    """In the unit of the job's performance (samples/s for fitted models and 3D plans): on these nodes, with the
    bandwidth that the tiers of the cluster leave between them. Tables of performance know nothing of bandwidth."""
    parallel_plan: ParallelPlanDoc | None = None
    """The 3D-parallel plan on exactly these GPUs, where the policy chooses one."""
    launch: LaunchDoc | None = None
    """Ranks, hostfile and stage bounds of that plan."""
    expansions: tuple[ExpansionDoc, ...] = ()
    """Suika: GPUs beyond the basic demand, oldest first; give them back as `expansions` of the job."""
    ranks: tuple[RankedHost, ...] | None = None
    """Rank order of a pre-training job of `arnold`, and of a 3D plan, whose `launch` says the same by rank; a host
    whose ranks are not consecutive stands once for each piece."""


class UnplacedJobDoc(Document):
    """Why a job gets nothing, and what would make it fit."""

    job_id: str
    reason: str = Field(examples=["capacity"])
    detail: str
    counts: dict[str, int] = Field(examples=[{"free_gpus.a100": 3, "min_gpus": 8}])
    """The numbers behind the reason."""
    remedy: str
    preempted: bool
    """It runs now and loses its GPUs."""


class TimingsDoc(Document):
    """Milliseconds of wall-clock time, unless the name says `cpu`."""

    accept_ms: float
    """Reading, checking and storing the request."""
    queue_ms: float | None
    """Waiting for a worker; not part of any phase."""
    phases_ms: dict[str, float]
    """Per phase in the worker: validate, performance, build, solve, place, verify."""
    cpu_ms: float | None
    """CPU time of the worker."""
    first_incumbent_ms: float | None
    """From the start of the solve to the first plan found."""
    total_ms: float | None
    """From the arrival of the request to the stored answer."""


class ModelSizeDoc(Document):
    """Size of the optimisation problem and of the search."""

    num_columns: int | None
    num_rows: int | None
    num_nonzeros: int | None
    num_nodes: int | None
    """Nodes of branch and bound."""


class UsedOptionsDoc(Document):
    """The options that the solve ran with, defaults filled in."""

    solver: str
    time_limit_s: float
    relative_gap: float
    threads: int
    seed: int


class SolverDoc(Document):
    """Which solver answered."""

    name: str
    version: str


class FailureDoc(Document):
    """Why a plan failed."""

    code: str
    detail: str
    errors: tuple[IssueDoc, ...] = ()


class OutcomeDoc(Document):
    """What planning ended with; everything is null or empty until then."""

    termination: TerminationDoc | None = None
    sense: Sense | None = None
    objective: float | None = None
    bound: float | None = None
    """Proven: no plan is better than this."""
    relative_gap: float | None = None
    """|objective - bound| / |objective|."""
    proven_optimal: bool = False
    """Within the requested gap."""
    verified: bool = False
    """The plan passed a check that knows no solver. A plan that does not pass is never shown."""
    score: tuple[ScoreTermDoc, ...] = ()
    allocations: tuple[JobAllocationDoc, ...] = ()
    unplaced: tuple[UnplacedJobDoc, ...] = ()
    communication: CommunicationMatrixDoc | None = None
    ahead: tuple[AheadPlacementDoc, ...] = ()
    """When and where jobs start that are planned ahead."""
    conflicts: tuple[str, ...] = ()
    """Infeasible: names of constraints that exclude each other; `unplaced` has the job behind them, where it is one."""
    warnings: tuple[IssueDoc, ...] = ()
    """About the request, then what planning found; the latter point into the input of the plan, where the request names
    a base."""
    size: ModelSizeDoc | None = None
    solver: SolverDoc | None = None
    """What answered, such as HiGHS where `auto` was asked for."""
    certificate: str | None = None
    """What proves the answer, or what ended the solve before it was proved."""
    prices: dict[str, float] = Field(default_factory=dict)
    """What one more unit of a scarce resource is worth in the objective, by its row of the model, where the solver
    priced them. Give them to the next plan as `parameters.prices`: it starts from there."""


class LinksDoc(Document):
    """Where to go from here (paths)."""

    self: str
    input: str
    events: str
    cancel: str | None
    """Null once the plan is final."""
    figure: str | None
    """Null while there is nothing to draw."""
    figure_png: str | None
    model: str


class PlanHeader(Document):
    """What is known about a plan at any time."""

    id: str
    status: PlanStatus
    policy: str
    times: StatusTimes
    options: UsedOptionsDoc
    input_hash: str = Field(examples=["sha256:9f2c"])
    """SHA-256 of the input with defaults filled in; the same wherever the snapshot came from."""
    version: str
    """Version of Stowplan that made the plan."""
    links: LinksDoc


class PlanSummary(PlanHeader):
    """One line of the list of plans."""

    objective: float | None
    bound: float | None
    relative_gap: float | None


class PlanDoc(OutcomeDoc, PlanHeader):
    """A plan: its life, its quality, and what each job gets."""

    timings: TimingsDoc
    failure: FailureDoc | None = None


class StateEventDoc(Document):
    """Data of the event `state`."""

    status: PlanStatus
    request_id: str | None = None
    """Of the request that asked for the plan, when it was queued."""


class ProgressEventDoc(Document):
    """Data of the events `incumbent` and `bound`; null: not known yet."""

    objective: float | None
    bound: float | None
    relative_gap: float | None
    elapsed_s: float
    """From the start of the solve."""


EVENT_DATA = (StateEventDoc, ProgressEventDoc)


class PageQuery(BaseModel):
    """Query parameters of the list of plans. Not strict: what stands in a URL is text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 50
    """Plans per page."""
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """Cursor of the next page; see `next`."""
    status: tuple[PlanStatus, ...] = ()
    """Only plans of these states."""


class PlanList(Document):
    """A page of plans, newest first."""

    plans: tuple[PlanSummary, ...]
    next: str | None
    """Path of the next page; null on the last one."""
