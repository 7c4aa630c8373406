"""One training run as the workers see it: model, layout, batch, schedule, data, checkpoints. One JSON file.

Every stage works on the same micro-batches; its replicas share the samples of each. Sample n of a training is the same
whatever the layout and the batch (`executor.token_stream`), so a run may change both between two steps and goes on with
the same data.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from executor.data.sources import Data, Source, TokenType, document_faults, sources_of
from executor.layout_faults import degree_faults, layout_faults
from executor.progress import ScalingRule, scaling_faults
from executor.records import read_record, write_record
from executor.routing import Routing, routing_faults
from executor.trainable import model_faults
from executor.training_layout import Layout
from executor.training_options import Compiler, Device, EngineName, Schedule, fault, schedule_faults
from executor.weights.families import family_of
from models.numerics import Numerics
from stowplan.errors import Issue, raise_for_errors

# Of a training's state, while it is handed over: large enough that nothing waits for the first byte of it.
DEFAULT_CHUNK_BYTES = 1 << 26
LEAST_CHUNK_BYTES = 1 << 12
# Value of `resume`: go on from the last good checkpoint, or start anew where there is none.
LAST = "last"
# Said wherever such a run is begun.
SYNTHETIC_DATA = "SYNTHETIC DATA: no data are given, so that the model learns made-up sequences; good for trials only"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob(Layout):
    """What every rank reads before it starts.

    Beside what `Layout` has:

    Compiler. `compiler`: of the layers, under the native engine; None: they are not compiled.

    Weights. `numerics`: what the model computes with beside its sizes; `routing`: how its experts are chosen.
    `initial_weights`: a folder of Hugging Face with the weights that a training begins with, unless it goes on from a
    checkpoint; None: they are drawn. `final_weights`: where the weights are written in that format behind the last
    step.

    Data. `data`, or a `token_file` of `token_type` alone; without either, a seeded synthetic stream.

    Checkpoints. Written to `checkpoint_folder` every `checkpoint_interval` steps (0: none but at the end) and at the
    end; the newest `keep_checkpoints` stay. All ranks share the folder. `resume`: a tag in it, `"last"`, or None to
    start anew.

    Hangs. A rank hangs when a step takes longer than `hang_limit_steps` times the median step, but at least
    `hang_limit_s`; where that is more than 1.5 times the longest of the limits in seconds, the others give up waiting
    for it before, and there is no stack of it. Each thing before the second step (loading the libraries, meeting the
    other ranks, building the model, loading a checkpoint, the first step) may take `start_limit_s`, writing to disk
    between steps and at the end `save_limit_s`; a checkpoint that is converted may take as long as it likes, but not
    that long without getting anywhere.

    Changes of plan. `transfer_chunk_bytes`: when the ranks of the run before hand their state over, without a
    checkpoint, each holds so much of it a second time; 0: they do not.

    `metrics_folder`: where each rank writes its `metrics-rank<r>.jsonl`. `tensorboard_folder`: where rank 0 writes them
    for TensorBoard; `wandb_folder`: below which, in `wandb`, for a project of Weights & Biases.

    Raises
    ------
    InputError
        When the trainer cannot run the job as it stands.
    """

    num_steps: int
    compiler: Compiler | None = None
    device: Device = Device.CUDA
    schedule: Schedule = field(default_factory=Schedule)
    seed: int = 0
    numerics: Numerics = field(default_factory=Numerics)
    routing: Routing = field(default_factory=Routing)
    initial_weights: str | None = None
    final_weights: str | None = None
    token_file: str | None = None
    token_type: TokenType = TokenType.UINT16
    data: Data = field(default_factory=Data)
    checkpoint_folder: str | None = None
    checkpoint_interval: int = 0
    keep_checkpoints: int = 2
    resume: str | None = None
    transfer_chunk_bytes: int = DEFAULT_CHUNK_BYTES
    hang_limit_steps: float = 10.0
    hang_limit_s: float = 120.0
    start_limit_s: float = 1200.0
    save_limit_s: float = 1200.0
    metrics_folder: str | None = None
    tensorboard_folder: str | None = None
    wandb_folder: str | None = None
    wandb_project: str | None = None

    def __post_init__(self) -> None:
        raise_for_errors(
            [
                *layout_faults(self),
                *model_faults(self.model, self.engine),
                *degree_faults(self),
                *_input_faults(self),
                *_run_faults(self),
            ],
            "training job",
        )

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where the data come from; none: they are synthetic."""
        return sources_of(self.token_file, self.token_type, self.data)

    @property
    def document_mask(self) -> bool:
        """Whether attention stays within documents."""
        return self.data.document_mask

    @property
    def eod_mask_loss(self) -> bool:
        """Whether the loss leaves out first tokens of documents."""
        return self.data.eod_mask_loss

    @property
    def initial_batch(self) -> int:
        """Sequences of one step as `num_steps` counts them."""
        return self.schedule.initial_batch or self.model.global_batch

    @property
    def num_samples(self) -> int:
        """Where the training ends: what its samples must be worth."""
        return self.num_steps * self.initial_batch

    @property
    def measures_micro_batches(self) -> bool:
        """Whether noise is measured between micro-batches: one rank that accumulates, of a batch that may change."""
        return self.schedule.scaling is not ScalingRule.NONE and self.num_ranks == 1 and self.num_micro_batches > 1

    @property
    def small_batch(self) -> int:
        """Sequences of a step per replica, where replicas are most; all where a stage has one replica only, but those
        of a micro-batch where noise is measured between these."""
        if self.measures_micro_batches:
            return self.micro_batch
        degrees = [stage.dp for stage in self.stages]
        return self.global_batch // max(degrees) if min(degrees) > 1 else self.global_batch


def read_training_job(path: Path) -> TrainingJob:
    """Read a job file; raise InputError when it is none."""
    return read_record(TrainingJob, path, "training job")


def write_training_job(job: TrainingJob, path: Path) -> None:
    """Write the file that `read_training_job` reads."""
    write_record(job, path)


def _input_faults(job: TrainingJob) -> Iterator[Issue]:
    """What does not go together of data and weights."""
    if job.token_file is not None and job.data.sources:
        yield fault("training_data", "token_file", "is given beside data.sources; name it there, with its token_type")
    for issue in document_faults(job.sources, job.data, job.model.vocabulary_size):
        yield replace(issue, pointer=f"/data{issue.pointer}")
    for name in ("initial_weights", "final_weights"):
        if getattr(job, name) is None:
            continue
        if job.layers_hook is not None:
            yield fault("hook", name, "is given beside layers_hook: of your own layers nobody else knows the weights")
        elif family_of(job.model, job.numerics) is None:
            types = "gpt2, llama, qwen2, qwen3, mixtral, qwen2_moe or qwen3_moe"
            detail = f"needs a model that transformers has as {types}; this one is none of them"
            yield fault("no_family", name, detail)


def _run_faults(job: TrainingJob) -> Iterator[Issue]:
    if job.compiler is not None and job.engine is EngineName.DEEPSPEED:
        detail = f"is {job.compiler}; under DeepSpeed layers are not compiled, under the engine native they may be"
        yield fault("compiler", "compiler", detail)
    yield from schedule_faults(job.schedule)
    yield from routing_faults(job.routing, "/routing")
    yield from scaling_faults(job.schedule.scaling, job.schedule.initial_batch, job.model.optimizer)
    yield from _range_faults(job)
    for name in ("checkpoint_interval", "resume"):
        if getattr(job, name) and job.checkpoint_folder is None:
            yield fault("no_folder", "checkpoint_folder", f"is missing; {name} needs it")
    if job.layers_hook is not None and len(job.layers_hook.split(":")) != 2:
        yield fault("hook", "layers_hook", f"is {job.layers_hook!r}; must read module:function")


def _range_faults(job: TrainingJob) -> Iterator[Issue]:
    """Numbers that no run can have."""
    for name in ("num_steps", "keep_checkpoints"):
        if getattr(job, name) < 1:
            yield fault("not_positive", name, f"is {getattr(job, name)}; at least 1")
    if job.checkpoint_interval < 0:
        yield fault("negative", "checkpoint_interval", f"is {job.checkpoint_interval}; at least 0")
    if 0 != job.transfer_chunk_bytes < LEAST_CHUNK_BYTES:
        detail = f"is {job.transfer_chunk_bytes}; at least {LEAST_CHUNK_BYTES}, or 0 for changes through checkpoints"
        yield fault("transfer_chunk_bytes", "transfer_chunk_bytes", detail)
    for name in ("hang_limit_steps", "hang_limit_s", "start_limit_s", "save_limit_s"):
        if getattr(job, name) < 1:
            yield fault("hang_limit", name, f"is {getattr(job, name)}; at least 1")
    if not 0 <= job.seed < 2**31:
        yield fault("seed", "seed", f"is {job.seed}; must be in [0, 2**31)")
