"""What is deployed: a plan, the model that it trains, and where and how the ranks are started."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from executor.data.sources import Data, Source, TokenType, sources_of
from executor.hosts import HOST, HOST_FORM
from executor.launch.backends import BACKENDS
from executor.launch.slurm_options import SlurmOptions
from executor.progress import ScalingRule
from executor.rank_table import Rank, rank_table, ranks_of
from executor.routing import Routing
from executor.training_job import DEFAULT_CHUNK_BYTES, LAST, TrainingJob
from executor.training_layout import StageLayout
from executor.training_options import Compiler, Device, EngineName, Schedule
from models.numerics import Numerics
from models.parallel_plan import ParallelPlan
from models.transformer import Transformer
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors

DEFAULT_PORT = 29_500
# Runs of a deployment take ten ports in turn.
MAX_PORT = 65_526
_NAME = re.compile(r"[A-Za-z0-9-]{1,63}")
# Names that stay as they are; those that end like a digest do not, so that no two jobs get one name.
_PLAIN = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9:][A-Za-z0-9._:%-]{0,252}")
_DIGEST_LENGTH = 12
_DIGESTED = re.compile(rf".*-[0-9a-f]{{{_DIGEST_LENGTH}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What a user chooses of a training run beyond model and plan; the fields are those of `TrainingJob`.

    `final_weights`: whether they are written, into `weights` beside the checkpoints. `tensorboard`, and a project of
    Weights & Biases: whether metrics are written for them, into `tensorboard` and `wandb` there.
    """

    num_steps: int = 1000
    seed: int = 0
    engine: EngineName = EngineName.DEEPSPEED
    compiler: Compiler | None = None
    device: Device = Device.CUDA
    schedule: Schedule = field(default_factory=Schedule)
    numerics: Numerics = field(default_factory=Numerics)
    routing: Routing = field(default_factory=Routing)
    initial_weights: str | None = None
    final_weights: bool = False
    token_file: str | None = None
    token_type: TokenType = TokenType.UINT16
    data: Data = field(default_factory=Data)
    checkpoint_interval: int = 100
    keep_checkpoints: int = 2
    transfer_chunk_bytes: int = DEFAULT_CHUNK_BYTES
    hang_limit_steps: float = 10.0
    hang_limit_s: float = 120.0
    start_limit_s: float = 1200.0
    save_limit_s: float = 1200.0
    layers_hook: str | None = None
    tensorboard: bool = False
    wandb_project: str | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where the data come from; none: they are synthetic."""
        return sources_of(self.token_file, self.token_type, self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """How ranks are started.

    `addresses`: node of the plan -> host name or address, where they differ; with SSH also `user@host`. `master_port`:
    port of rank 0's host on which the ranks meet; later runs of the deployment use the nine above it in turn.
    `spares`: nodes like those of the plan, which are all alike, that may take the place of one that Slurm says takes no
    job. `python`: interpreter on the hosts. `environment`: variables for all ranks. `secrets`: variable -> file with
    its value, which agents read on every host, so that it is in no record. `command`: own trainer in place of ours; it
    gets the path of job.json as its last argument, and has the exit codes of `executor.outcome`. `program`: a training
    program of the user's own, which knows nothing of us but the variables of its environment (`executor.launch.agent`);
    it ends with 0 when it is done. `grace_s`: from being told to end to being killed. `time_limit_s` is for Slurm and
    Kubernetes, `slurm` and `image` for one of them.
    """

    backend: str = "local"
    addresses: Mapping[str, str] = field(default_factory=dict)
    master_port: int = DEFAULT_PORT
    spares: tuple[str, ...] = ()
    python: str = "python3"
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] | None = None
    program: tuple[str, ...] | None = None
    grace_s: float = 10.0
    time_limit_s: float = 86_400.0
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    image: str = "stowplan-executor:latest"

    @property
    def run_limit_s(self) -> float | None:
        """After this long a scheduler ends a run; None where there is no scheduler."""
        return self.time_limit_s if self.backend in ("slurm", "kubernetes") else None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"backend is {self.backend!r}; must be one of {', '.join(BACKENDS)}")
        if not 0 < self.master_port <= MAX_PORT:
            raise InputError(f"master_port is {self.master_port}; must be from 1 to {MAX_PORT}")
        if self.program is not None and not (self.program and self.program[0]):
            raise InputError("the program is empty; give it and its arguments, a word each")
        if wrong := [name for name in self.environment if not name or "=" in name or "\0" in name]:
            raise InputError(f"environment names {wrong[0]!r}; the name of a variable has no = and is not empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A plan for one job, to be written into a folder and started from there.

    `name` is a word of letters, digits and dashes, such as `deployment_name` makes of a job id: it becomes a name in
    Slurm and Kubernetes.

    Raises
    ------
    AsymmetricPlanError
        When the plan is not symmetric and the engine is DeepSpeed.
    InputError
        When plan and model do not fit together, or the trainer cannot run them.
    """

    name: str
    model: Transformer
    plan: ParallelPlan
    training: TrainingOptions = field(default_factory=TrainingOptions)
    launch: LaunchOptions = field(default_factory=LaunchOptions)

    def __post_init__(self) -> None:
        raise_for_errors(list(_faults(self)), "deployment")
        # Both refuse what cannot be run; what a program of the user's own can run, we do not know.
        self.ranks()
        if self.launch.program is None:
            self.training_job(Path(), Path())

    def ranks(self) -> tuple[Rank, ...]:
        """Rank table of the plan."""
        return ranks_of(self.plan) if self.engine is None else rank_table(self.plan, self.engine)

    @property
    def engine(self) -> EngineName | None:
        """What runs the plan; None: a program of the user's own."""
        return self.training.engine if self.launch.program is None else None

    def changed_to(self, plan: ParallelPlan) -> "Deployment":
        """The same training by another plan; where its learning rate follows the batch, with that of the plan.

        Raises
        ------
        InputError
            When the plan has another batch or does not fit otherwise.
        """
        return replace(self, plan=plan, model=self.model_of(plan))

    def model_of(self, plan: ParallelPlan) -> Transformer:
        """What is trained by another plan."""
        return batched(self.model, plan, self.training.schedule)

    def training_job(self, folder: Path, checkpoints: Path) -> TrainingJob:
        """What the ranks read when the run lies in `folder`; `checkpoints` outlive it."""
        options = self.training
        return TrainingJob(
            model=self.model,
            stages=tuple(
                StageLayout(
                    num_layers=stage.num_layers,
                    tp=stage.tp,
                    batches=tuple(replica.local_batch for replica in stage.replicas),
                    checkpointing=stage.checkpointing,
                    recomputed_layers=stage.recomputed_layers,
                )
                for stage in self.plan.stages
            ),
            num_micro_batches=self.plan.num_micro_batches,
            num_steps=options.num_steps,
            engine=options.engine,
            virtual_stages=self.plan.virtual_stages,
            expert_parallel=self.plan.expert_parallel,
            pipeline_schedule=self.plan.schedule,
            compiler=options.compiler,
            device=options.device,
            schedule=options.schedule,
            seed=options.seed,
            numerics=options.numerics,
            routing=options.routing,
            initial_weights=options.initial_weights,
            final_weights=str(checkpoints.parent / "weights") if options.final_weights else None,
            token_file=options.token_file,
            token_type=options.token_type,
            data=options.data,
            checkpoint_folder=str(checkpoints),
            checkpoint_interval=options.checkpoint_interval,
            keep_checkpoints=options.keep_checkpoints,
            resume=LAST,
            transfer_chunk_bytes=options.transfer_chunk_bytes,
            hang_limit_steps=options.hang_limit_steps,
            hang_limit_s=options.hang_limit_s,
            start_limit_s=options.start_limit_s,
            save_limit_s=options.save_limit_s,
            metrics_folder=str(folder / "metrics"),
            layers_hook=options.layers_hook,
            tensorboard_folder=str(checkpoints.parent / "tensorboard") if options.tensorboard else None,
            wandb_folder=str(checkpoints.parent) if options.wandb_project else None,
            wandb_project=options.wandb_project,
        )


def batched(model: Transformer, plan: ParallelPlan, schedule: Schedule) -> Transformer:
    """A model with the batch of a plan, where the learning rate follows that; else as it is."""
    if schedule.scaling is ScalingRule.NONE:
        return model
    return replace(model, global_batch=plan.global_batch)


def deployment_name(job_id: str) -> str:
    """Name for files, Slurm and Kubernetes: another one for every job id, whatever is in it.

    Ids that are names in all of them stay; of others the letters and digits are kept, and a digest tells them apart.
    """
    if _PLAIN.fullmatch(job_id) and not _DIGESTED.fullmatch(job_id):
        return job_id
    readable = re.sub(r"[^a-z0-9]+", "-", job_id.lower())[:40].strip("-")
    digest = hashlib.sha256(job_id.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{readable or 'job'}-{digest}"


def _faults(deployment: Deployment) -> Iterator[Issue]:
    name = deployment.name
    if not _NAME.fullmatch(name):
        detail = f"is {name!r}; must be of letters a to z, digits and dashes, 63 at most"
        yield Issue(code="bad_name", pointer="/name", detail=detail)
    yield from _host_faults(deployment)
    yield from misfits(deployment.plan, deployment.model)


def misfits(plan: ParallelPlan, model: Transformer) -> Iterator[Issue]:
    """What keeps a plan from being one of a model; pointers below `/plan`."""
    if model.global_batch != plan.global_batch:
        detail = (
            f"the plan makes {plan.global_batch} sequences a step, the model's global batch is {model.global_batch}; "
            "schedule.scaling of the training says how its learning rate follows the batch"
        )
        yield Issue(code="global_batch", pointer="/plan", detail=detail)
    if model.num_layers != plan.num_layers:
        detail = f"the plan has {plan.num_layers} layers, the model {model.num_layers}"
        yield Issue(code="stage_layers", pointer="/plan/stages", detail=detail)


def _host_faults(deployment: Deployment) -> Iterator[Issue]:
    nodes = {
        pointer_of("plan", "stages", i, "replicas", j, "node"): replica.node
        for i, stage in enumerate(deployment.plan.stages)
        for j, replica in enumerate(stage.replicas)
    } | {pointer_of("launch", "spares", k): spare for k, spare in enumerate(deployment.launch.spares)}
    for pointer, node in nodes.items():
        if not HOST.fullmatch(node):
            yield Issue(code="bad_node_name", pointer=pointer, detail=f"{node!r} is no host name; {HOST_FORM}")
    yield from _type_faults(deployment.plan)
    types = {replica.gpu_type for stage in deployment.plan.stages for replica in stage.replicas}
    if deployment.launch.spares and len(types) > 1:
        named = ", ".join(map(repr, sorted(types)))
        detail = f"must be left out: nobody knows which of the types of the plan a spare has, {named}"
        yield Issue(code="spares", pointer="/launch/spares", detail=detail)
    for node, address in deployment.launch.addresses.items():
        if not _ADDRESS.fullmatch(address):
            detail = f"{address!r} is no address; must be a host name or IP address, with SSH also user@host"
            yield Issue(code="bad_address", pointer=pointer_of("launch", "addresses", node), detail=detail)


def _type_faults(plan: ParallelPlan) -> Iterator[Issue]:
    """Replicas on a node whose GPUs are said to be of another type by one before."""
    types: dict[str, str] = {}
    for i, stage in enumerate(plan.stages):
        for j, replica in enumerate(stage.replicas):
            known = types.setdefault(replica.node, replica.gpu_type)
            if known != replica.gpu_type:
                pointer = pointer_of("plan", "stages", i, "replicas", j, "gpu_type")
                detail = (
                    f"is {replica.gpu_type!r}; the GPUs of a node are of one type, those of {replica.node} {known!r}"
                )
                yield Issue(code="gpu_type", pointer=pointer, detail=detail)
