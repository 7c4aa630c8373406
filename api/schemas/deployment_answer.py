"""What clients see of a deployment: its life, its runs, and how far the training is."""

from datetime import datetime

from api.schemas.base import Document
from api.schemas.parallel_plan import ParallelPlanDoc
from executor.change import RunChange
from executor.launch.base import RunState
from executor.lifecycle import Cause, Phase


class DeadRankDoc(Document):
    """A rank that ended badly."""

    rank: int
    host: str
    exit_code: int | None
    signal: str | None
    last_lines: tuple[str, ...]
    """Of its output."""


class StallDoc(Document):
    """What a training waited for before the first step of a run, by part; seconds, which add up to its cost."""

    transfer_s: float
    """Until the ranks of the run before had handed the state over, or that had failed."""
    saving_s: float
    """Until the run before had written its last checkpoint."""
    handover_s: float
    """Until the next run, prepared beside it, was let go: the one before left its devices."""
    launch_s: float
    """Until rank 0 of the next run was there, where it was not: agents, a scheduler, the interpreter."""
    imports_s: float
    meeting_s: float
    """Of the ranks."""
    building_s: float
    """Model and optimiser."""
    conversion_s: float
    """A checkpoint was looked for, and put into another layout where it had to be."""
    loading_s: float
    other_s: float


class MovementDoc(Document):
    """Bytes of the state that the ranks of the run before handed over to those of a run."""

    moved_bytes: int
    """To a rank in another place, which is another GPU."""
    between_hosts_bytes: int
    """Of these: over the network."""
    kept_bytes: int
    """To the rank in the same place."""
    least_bytes: int
    """What had to move, since the rank in the place had it not."""
    state_bytes: int
    """Of a checkpoint."""


class RunDoc(Document):
    """One run; a change of plan or a restart after a fault makes the next one."""

    number: int
    plan: str
    cause: Cause
    started: datetime
    from_step: int
    """Steps done when it began."""
    cost_s: float | None
    """From the end of the last step before it, or its own launch where that was later, to its first step."""
    stall: StallDoc | None
    """Parts of that; null where it is not known, or an own training program does not tell."""
    change: RunChange | None
    """Kind of the change, when its cost is known."""
    movement: MovementDoc | None
    """What of the state moved; null where it came from a checkpoint."""
    detail: str
    """What made it necessary."""


class ProjectionDoc(Document):
    """What the projection to a symmetric plan costs, as predicted."""

    asked: str
    before_s: float
    """Iteration time of the plan that was asked for."""
    after_s: float
    loss: float
    """Share of the throughput that is lost."""


class DeploymentLinksDoc(Document):
    """Where to go from here (paths)."""

    self: str
    logs: str
    job_performance: str


class DeploymentDoc(Document):
    """A deployment: its life, its runs, and how far the training is."""

    id: str
    job_id: str
    phase: Phase
    detail: str
    run_state: RunState
    run_detail: str
    unavailable_nodes: tuple[str, ...]
    """Nodes that Slurm lets the job wait for although they are down or drained: `run_detail` says why. Move the
    deployment to a plan without them, unless `launch.spares` has enough for them."""
    plan: ParallelPlanDoc
    notation: str
    projection: ProjectionDoc | None
    step: int
    num_steps: int
    synthetic_data: bool
    """No data were given: good for trials only."""
    loss: float | None
    step_s: float | None
    """Seconds of the newest step."""
    not_measured: str | None
    """Why what its ranks measure calibrates nothing; null: it does, see `links.job_performance`."""
    runs: tuple[RunDoc, ...]
    dead: tuple[DeadRankDoc, ...]
    """The ranks that broke a run last."""
    dead_run: int | None
    """The run that they broke."""
    restart_cost_s: float | None
    """The newest measured cost of a change; plans of this job use it as its restart cost."""
    change_costs_s: dict[RunChange, float]
    """The newest measured cost of every kind of change."""
    backend: str
    time_limit_s: float | None
    """After this long the scheduler ends a run (`launch.time_limit_s`); null where there is no scheduler."""
    host: str
    """Machine of the service that looks after it."""
    folder: str
    """On that machine; README.txt in it says how to start it by hand."""
    links: DeploymentLinksDoc


class DeploymentList(Document):
    """All deployments, newest first."""

    deployments: tuple[DeploymentDoc, ...]
