"""Deployments: what clients ask for, and what they see of it."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.base import MAX_BYTES, MAX_COUNT, MAX_ITEMS, Count, Document, Name, NonNegative, OneOf, Positive
from api.schemas.model import TransformerDoc
from api.schemas.parallel_plan import ParallelPlanDoc
from api.schemas.snapshot import ClusterDoc
from executor.change import RunChange
from executor.data.sources import TokenType
from executor.deployment import DEFAULT_PORT, MAX_PORT
from executor.launch.backends import BACKENDS
from executor.launch.base import RunState
from executor.launch.slurm_options import MAX_SIGNAL_S, GpuRequest
from executor.lifecycle import Cause, Phase
from executor.progress import ScalingRule
from executor.routing import MAX_LOSS_FACTOR
from executor.training_job import DEFAULT_CHUNK_BYTES
from executor.training_options import Compiler, Decay, Device, EngineName
from models.numerics import Activation
from models.transformer import MAX_CAPACITY_FACTOR

PATH_PATTERN, VALUE_PATTERN = r"^[^\x00-\x1f]+$", r"^[^\x00]*$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
_Path = Annotated[str, Field(min_length=1, max_length=4096, pattern=PATH_PATTERN)]
_Samples = Annotated[int, Field(ge=1, le=2**53)]
_Value = Annotated[str, Field(max_length=4096, pattern=VALUE_PATTERN)]
_Variable = Annotated[str, Field(max_length=256, pattern=VARIABLE_PATTERN)]


class ScheduleDoc(Document):
    """Learning rate and the other settings of AdamW: linear warm-up, then a decay. Lengths are said in steps or in
    samples (sequences)."""

    learning_rate: Positive = 3e-4
    decay: Decay = Decay.COSINE
    """wsd: the learning rate stays, and falls along a line at the end."""
    warmup_steps: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    warmup_samples: _Samples | None = None
    decay_steps: Count | None = None
    """Where the decay ends; null: the steps of the job."""
    decay_samples: _Samples | None = None
    cooldown_steps: Count | None = None
    """How long wsd falls; null: the last tenth."""
    cooldown_samples: _Samples | None = None
    scaling: ScalingRule = ScalingRule.NONE
    """How the learning rate follows the batch of a plan: square_root, for adam; adascale, for sgd (native engine). With
    either the batch may change from plan to plan, and samples of larger batches count by what measured gradient noise
    says that they are worth."""
    initial_batch: Count | None = None
    """Sequences of a step for which the learning rate was chosen, and in which steps are counted, here and in
    `num_steps`; null: those of the model."""
    final_ratio: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Of the learning rate, at the end of the decay."""
    weight_decay: NonNegative = 0.01
    """Of all parameters but norms and biases."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of sgd: the momentum."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    epsilon: Positive = 1e-8
    gradient_clipping: NonNegative = 1.0
    """Largest norm of the gradient; 0: no limit."""


class RotaryScalingDoc(Document):
    """How rotary positions are stretched as in LLaMA 3.1 (`rope_type` llama3)."""

    factor: Positive
    low_factor: Positive = 1.0
    high_factor: Positive = 4.0
    original_length: Count
    """Tokens of a sequence before that."""


class NumericsDoc(Document):
    """What the model computes with that changes neither size nor time."""

    rotary_base: Positive = 10_000.0
    rotary_scaling: RotaryScalingDoc | None = None
    norm_epsilon: Positive = 1e-5
    activation: Activation | None = None
    """Of the feed-forward part; null: silu where it is gated, else gelu."""
    normalised_routing: bool = True
    """Whether the weights of the experts that a token has chosen add up to 1 (Mixtral), or are the probabilities that
    they had among all (`norm_topk_prob` false)."""
    gated_shared_expert: bool = False
    """Whether what the shared expert gives is multiplied by a sigmoid of the token (Qwen2-MoE)."""


class RoutingDoc(Document):
    """How the tokens of a training find their experts. All is of one sequence each, so that no number depends on the
    plan."""

    balance_loss: Annotated[float, Field(ge=0, le=MAX_LOSS_FACTOR)] = 0.01
    """Factor of the loss of balance, which is 1 in every layer whose experts have as many tokens (Switch Transformer).
    It is learned from, and not in the loss that is told."""
    router_loss: Annotated[float, Field(ge=0, le=MAX_LOSS_FACTOR)] = 0.0
    """Factor of the z-loss of the router's logits (ST-MoE); likewise."""
    capacity: Annotated[float, Field(gt=0, le=MAX_CAPACITY_FACTOR)] | None = None
    """An expert works on so many times its mean share of a sequence at most, and what is beyond is dropped; null:
    nothing is."""


class SourceDoc(Document):
    """One corpus of a training."""

    path: _Path
    """On every host: a file of tokens of `token_type`, or of a dataset of Megatron-LM the path of its .bin and .idx
    without these endings. A service reads below the folders that its operator names."""
    weight: Positive = 1.0
    """Share of the samples, beside the weights of the other sources."""
    token_type: TokenType | None = None
    """Null: a dataset of Megatron-LM."""


class DataDoc(Document):
    """What a training reads: sources, blended, each sample at the same place of the training whatever the plan."""

    sources: Annotated[tuple[SourceDoc, ...], Field(max_length=1000)] = ()
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of every source, at its end: never trained on."""
    evaluation_interval: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """Steps between evaluations; 0: none. There is one behind the last step, too."""
    evaluation_batches: Count = 10
    """Global batches of an evaluation, always the same ones; fewer where there are no more."""
    document_mask: bool = False
    """Attention stays within the documents that were packed into a sequence, and positions begin again in each."""
    eod_token: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    """Id of the token behind every document. Null: documents end where the .idx of a dataset of Megatron-LM says so;
    files of tokens need it. With it they end in both places."""
    eod_mask_loss: bool = False
    """The loss leaves out the first token of every document, which nothing in the one before foretells."""


class TrainingOptionsDoc(Document):
    """What you choose of a training run beyond model and plan."""

    num_steps: Count = 1000
    """Optimiser steps of the whole job at its initial batch, runs before a change of plan included."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    engine: EngineName = EngineName.DEEPSPEED
    """deepspeed: symmetric plans only. native: any plan, on torch's own pipeline schedules. A deployment keeps its
    engine, since neither reads checkpoints of the other."""
    compiler: Compiler | None = None
    """Backend of `torch.compile` for the layers, with the engine native (null: they are not compiled). inductor: makes
    kernels, and needs a C++ compiler on every host. aot_eager: traces the passes and runs the usual kernels."""
    device: Device = Device.CUDA
    schedule: ScheduleDoc = ScheduleDoc()
    initial_weights: _Path | None = None
    """Folder of Hugging Face, on every host and here, whose weights the training begins with: config.json and
    safetensors of gpt2, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3 or qwen3_moe. Null: they are drawn. A service
    reads below the folders that its operator names."""
    numerics: NumericsDoc | None = None
    """Null: as config.json of `initial_weights` says, else the usual ones."""
    routing: RoutingDoc = RoutingDoc()
    """Of a mixture of experts, which the engine native trains."""
    final_weights: bool = False
    """Whether the weights are written for Hugging Face behind the last step, into `weights` in the deployment's
    folder."""
    token_file: _Path | None = None
    """Tokens without a header, little-endian, on every host (null: a seeded synthetic stream). A service reads below
    the folders that its operator names."""
    token_type: TokenType = TokenType.UINT16
    data: DataDoc = DataDoc()
    """In place of a token file: a blend of several sources, and what of it is kept for validation."""
    tensorboard: bool = False
    """Whether metrics are written for TensorBoard, into `tensorboard` in the deployment's folder."""
    wandb_project: Name | None = None
    """Whether, and in which project, they are written for Weights & Biases, into `wandb` there, to be sent with `wandb
    sync`."""
    checkpoint_interval: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 100
    """Steps between checkpoints; one is written at the end in any case."""
    keep_checkpoints: Annotated[int, Field(ge=1, le=1000)] = 2
    transfer_chunk_bytes: Annotated[int, Field(ge=0, le=MAX_BYTES)] = DEFAULT_CHUNK_BYTES
    """When the plan changes under the engine native, and the next ranks are ready beside the old ones, these hand the
    state over to them without a checkpoint; each rank holds so much of it a second time meanwhile. 0: it always goes
    through a checkpoint."""
    hang_limit_steps: Annotated[float, Field(ge=1, le=MAX_COUNT)] = 10.0
    """A step that takes longer than so many median steps is a hang: the stacks are written and the run starts again.
    Steps of minutes need a higher `hang_limit_s`: after 1.5 times the longest of the limits below, ranks give up
    waiting for one that hangs, and there is no stack of it."""
    hang_limit_s: Annotated[float, Field(ge=1, le=MAX_COUNT)] = 120.0
    """But not before so many seconds."""
    start_limit_s: Annotated[float, Field(ge=1, le=MAX_COUNT)] = 1200.0
    """Nor may each of these take longer: loading the libraries, meeting the other ranks, building the model, loading a
    checkpoint, the first step."""
    save_limit_s: Annotated[float, Field(ge=1, le=MAX_COUNT)] = 1200.0
    """And writing a checkpoint."""

    layers_hook: Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    """`module:function` with layers of your own for the trainer (`executor.trainer.layers`), importable on every host.
    A service takes those that its operator names."""


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
    python: _Path | None = None
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
