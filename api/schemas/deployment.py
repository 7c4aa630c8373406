"""What clients ask for of deployments: how ranks are started, and which plan they get."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.base import MAX_BYTES, MAX_COUNT, MAX_ITEMS, Count, Document, Name, OneOf
from api.schemas.model import TransformerDoc
from api.schemas.parallel_plan import ParallelPlanDoc
from api.schemas.snapshot import ClusterDoc
from api.schemas.training import FilePath, TrainingOptionsDoc
from executor.deployment import DEFAULT_PORT, MAX_PORT
from executor.launch.backends import BACKENDS
from executor.launch.slurm_options import MAX_SIGNAL_S, GpuRequest

VALUE_PATTERN = r"^[^\x00]*$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
_Value = Annotated[str, Field(max_length=4096, pattern=VALUE_PATTERN)]
_Variable = Annotated[str, Field(max_length=256, pattern=VARIABLE_PATTERN)]


class SlurmOptionsDoc(Document):
    """What a Slurm cluster wants to be told of a job beyond its hosts."""

    partition: Name | None = None
    account: Name | None = None
    qos: Name | None = None
    reservation: Name | None = None
    constraint: Name | None = None
    """Features of the nodes."""
    gpu_request: GpuRequest = GpuRequest.GRES
    """gres: `--gres=gpu:8`; gpus-per-node: `--gpus-per-node=8`; none: GPUs come with the node."""
    gpu_type: Name | None = None
    """As Slurm calls it, where it is to be named: `--gres=gpu:h100:8`."""
    exclusive: bool = True
    """Whole nodes, with all their CPUs and memory."""
    cpus_per_node: Count | None = None
    """Null: all with `exclusive`, else what the cluster gives."""
    memory_bytes: Annotated[int, Field(ge=1, le=MAX_BYTES)] | None = None
    """Of a node; null: as for CPUs."""
    checkpoint_s: Annotated[float, Field(ge=1, le=MAX_SIGNAL_S)] = 600.0
    """That long before the time limit, but not before half of it, a checkpoint is written; the next run goes on from
    it."""
    extra_lines: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    """Further lines of the script, such as `#SBATCH --licenses=nvme:1`: an option each, of those that say when and
    with what a job runs."""


class LaunchOptionsDoc(Document):
    """How ranks are started. Of interpreters, variables and hosts a service takes those that its operator names."""

    backend: Annotated[str, OneOf(BACKENDS)] = "local"
    """kubernetes: the manifest is written, you apply it."""
    addresses: dict[Name, Name] = Field(default_factory=dict, max_length=100_000)
    """Node of the plan -> host name or address, where they differ."""
    master_port: Annotated[int, Field(ge=1, le=MAX_PORT)] = DEFAULT_PORT
    """Port of rank 0's host on which the ranks meet, with the nine above it."""
    spares: Annotated[tuple[Name, ...], Field(max_length=MAX_ITEMS)] = ()
    """Nodes like those of the plan, kept free for it, such as `communication.spares` of Arnold. Where Slurm lets the
    job wait for a node that is down or drained, one of these takes its place, in a new job."""
    python: FilePath | None = None
    """Interpreter on the hosts (null: python3; local: that of the service)."""
    command: Annotated[tuple[_Value, ...], Field(min_length=1, max_length=1000)] | None = None
    """A training program of your own and its arguments, in place of our trainer, on every rank: variables as torchrun
    sets them, the plan in `$STOWPLAN_PLAN`, metrics by `stowplan_metrics` or as lines in `$STOWPLAN_METRICS`. It ends
    with 0 when it is done; when it breaks, it is started again, and goes on from a checkpoint of its own. A service
    takes what its operator names."""
    image: Name | None = None
    """Kubernetes: the image of the pods (null: that of the `Dockerfile`). A service takes those that its operator
    names."""
    environment: dict[Name, _Value] = Field(default_factory=dict, max_length=1000)
    """Variables for all ranks, such as NCCL_SOCKET_IFNAME."""
    secrets: Annotated[tuple[_Variable, ...], Field(max_length=1000)] = ()
    """Variables for all ranks whose values the operator keeps in files of the same names, on every host under the same
    path. They stand in no record; write none into `environment`."""
    grace_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """From being told to end to being killed."""
    time_limit_s: Annotated[float, Field(gt=0, le=MAX_COUNT)] = 86_400.0
    """Slurm and Kubernetes end a run after this."""
    slurm: SlurmOptionsDoc = SlurmOptionsDoc()


class PlanChoice(Document):
    """The plan to deploy: as a document, or the one of a job in a plan that this service made."""

    plan: ParallelPlanDoc | None = None
    """Such as `best.plan` in an answer of /v1/parallel-plans."""
    plan_id: Name | None = None
    """A plan of this service that holds a parallel plan for `job_id`."""
    cluster: ClusterDoc | None = None
    """With a plan of your own: facts of its nodes, to see whether the plan fits, and to compare measured times with
    predicted ones. Not needed for GPU types of the catalogue under one switch. A cluster once given holds for later
    plans of the deployment, until you give another."""
    ignore_memory: bool = False
    """Deploy the plan although it is predicted to run out of GPU memory."""
    project: bool = False
    """With the engine deepspeed, deploy the best symmetric plan where the plan is not symmetric; the answer says what
    that costs."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.plan is None) == (self.plan_id is None):
            raise PydanticCustomError("one_of", "give exactly one of plan and plan_id")
        if self.cluster is not None and self.plan is None:
            raise PydanticCustomError("one_of", "cluster goes with plan; a plan_id brings its own")
        return self


class DeploymentBody(PlanChoice):
    """A job to be trained after a plan."""

    job_id: Name
    """As in snapshots. Slurm and Kubernetes know the job by it where it is of lower-case letters, digits and dashes,
    else by a name that is made of it."""
    job: TransformerDoc | None = None
    """The model. With `plan_id` it is the job's in that plan, unless you give it."""
    training: TrainingOptionsDoc = TrainingOptionsDoc()
    launch: LaunchOptionsDoc = LaunchOptionsDoc()

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if self.plan is not None and self.job is None:
            raise PydanticCustomError("missing_field", "lacks job: with a plan of your own, say what it trains")
        return self


class ReconfigureBody(PlanChoice):
    """The plan to move a deployment to, or to go on with; model, batch and training stay."""
