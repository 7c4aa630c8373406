"""One training run as the workers see it: model, layout, batch, schedule, data, checkpoints. One JSON file.

The global batch is micro_batch x num_micro_batches x dp sequences. Sample k of step t is the same whatever the layout
(`executor.token_stream`), so a run may change its layout between two steps and goes on with the same data.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from executor.records import read_record, write_record
from models.dimensions import Dimensions
from models.software import Software
from models.transformer import Optimizer, Positions, Precision, Transformer
from stowplan.errors import Issue, raise_for_errors

# Value of `resume`: go on from the last good checkpoint, or start anew where there is none.
LAST = "last"
# Said wherever such a run is begun.
SYNTHETIC_DATA = (
    "SYNTHETIC DATA: no token_file is given, so that the model learns made-up sequences; good for trials only"
)

# Sizes of the model that are at least 1 where they are given.
_POSITIVE = (
    *("num_layers", "hidden_size", "vocabulary_size", "sequence_length", "global_batch"),
    *("num_heads", "num_kv_heads", "head_size", "feed_forward_size"),
)

# What a transformer may have and the trainer's blocks have not.
_NOT_TRAINED = {
    "kv_rank": "latent attention",
    "query_key_norms": "norms of queries and keys",
    "attention_window": "attention within a window",
    "post_norms": "norms behind attention and feed-forward part",
}


class Device(StrEnum):
    """What the ranks compute on: CPU with gloo, CUDA with NCCL."""

    CPU = "cpu"
    CUDA = "cuda"


class TokenType(StrEnum):
    """Number format of a token file: little-endian, without a header."""

    UINT16 = "uint16"
    UINT32 = "uint32"


class Coordinates(NamedTuple):
    """Place of a rank: stage, replica, position in the tensor group."""

    pipe: int
    data: int
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Learning rate and the other settings of AdamW.

    Linear warm-up over `warmup_steps`, then a cosine down to `final_ratio` x `learning_rate` at `decay_steps` (None:
    the steps of the job), constant after that. Weight decay applies to all parameters. Gradients are clipped to the
    norm `gradient_clipping`, 0 for not at all.
    """

    learning_rate: float = 3e-4
    warmup_steps: int = 0
    decay_steps: int | None = None
    final_ratio: float = 0.1
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    gradient_clipping: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What every rank reads before it starts.

    Layout. `stage_layers`: layers of each pipeline stage (l_i); the first also holds the embedding, the last one the
    head. `dp` replicas of `tp` ranks each. `micro_batch`: sequences of one micro-batch per replica;
    `num_micro_batches` of them make a step.

    Data. `token_file` None: a seeded synthetic stream.

    Checkpoints. Written to `checkpoint_folder` every `checkpoint_interval` steps (0: none but at the end) and at the
    end; the newest `keep_checkpoints` stay. All ranks share the folder. `resume`: a tag in it, `"last"`, or None to
    start anew.

    Hangs. A rank hangs when a step takes longer than `hang_limit_steps` times the median step, but at least
    `hang_limit_s`; where that is more than 1.5 times the longest of the limits in seconds, the others give up waiting
    for it before, and there is no stack of it. Each thing before the second step (loading the libraries, meeting the
    other ranks, building the model, loading a checkpoint, the first step) may take `start_limit_s`, writing to disk
    between steps and at the end `save_limit_s`; a checkpoint that is converted may take as long as it likes, but not
    that long without getting anywhere.

    `metrics_folder`: where each rank writes its `metrics-rank<r>.jsonl`. `layers_hook`: `module:function` that gives
    the user's own layers (`executor.trainer.layers`), None for the built-in transformer.

    Raises
    ------
    InputError
        When the trainer cannot run the job as it stands.
    """

    model: Transformer
    stage_layers: tuple[int, ...]
    micro_batch: int
    num_micro_batches: int
    num_steps: int
    dp: int = 1
    tp: int = 1
    device: Device = Device.CUDA
    schedule: Schedule = field(default_factory=Schedule)
    seed: int = 0
    token_file: str | None = None
    token_type: TokenType = TokenType.UINT16
    checkpoint_folder: str | None = None
    checkpoint_interval: int = 0
    keep_checkpoints: int = 2
    resume: str | None = None
    hang_limit_steps: float = 10.0
    hang_limit_s: float = 120.0
    start_limit_s: float = 1200.0
    save_limit_s: float = 1200.0
    metrics_folder: str | None = None
    layers_hook: str | None = None

    def __post_init__(self) -> None:
        raise_for_errors(
            [*_layout_faults(self), *model_faults(self.model), *_degree_faults(self), *_run_faults(self)],
            "training job",
        )

    @property
    def pp(self) -> int:
        """Pipeline degree."""
        return len(self.stage_layers)

    @property
    def num_ranks(self) -> int:
        """Processes of the run."""
        return self.pp * self.dp * self.tp

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.micro_batch * self.num_micro_batches * self.dp

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one step."""
        return self.global_batch * self.model.sequence_length

    def coordinates(self, rank: int) -> Coordinates:
        """Place of a rank: pipe slowest, then data, tensor fastest."""
        return Coordinates(rank // (self.dp * self.tp), rank // self.tp % self.dp, rank % self.tp)


def learning_rate_at(job: TrainingJob, step: int) -> float:
    """Learning rate of step `step`, counted from 0: a function of the step alone, so that a resumed run follows it."""
    schedule = job.schedule
    if step < schedule.warmup_steps:
        return schedule.learning_rate * (step + 1) / schedule.warmup_steps
    end = schedule.decay_steps or job.num_steps
    progress = min(1.0, (step - schedule.warmup_steps) / max(1, end - schedule.warmup_steps))
    share = schedule.final_ratio + (1.0 - schedule.final_ratio) * 0.5 * (1.0 + math.cos(math.pi * progress))
    return schedule.learning_rate * share


def read_training_job(path: Path) -> TrainingJob:
    """Read a job file; raise InputError when it is none."""
    return read_record(TrainingJob, path, "training job")


def write_training_job(job: TrainingJob, path: Path) -> None:
    """Write the file that `read_training_job` reads."""
    write_record(job, path)


def _layout_faults(job: TrainingJob) -> Iterator[Issue]:
    for name in ("micro_batch", "num_micro_batches", "num_steps", "dp", "tp", "keep_checkpoints"):
        if getattr(job, name) < 1:
            yield _fault("not_positive", name, f"is {getattr(job, name)}; at least 1")
    if not job.stage_layers or min(job.stage_layers) < 1:
        yield _fault("stage_layers", "stage_layers", f"is {list(job.stage_layers)}; every stage has at least 1 layer")
    elif sum(job.stage_layers) != job.model.num_layers:
        yield _fault(
            "stage_layers",
            "stage_layers",
            f"{list(job.stage_layers)} has {sum(job.stage_layers)} layers; the model has {job.model.num_layers}",
        )
    if job.global_batch != job.model.global_batch:
        yield _fault(
            "global_batch",
            "micro_batch",
            f"{job.micro_batch} sequences x {job.num_micro_batches} micro-batches x {job.dp} replicas are "
            f"{job.global_batch}; the model's global batch is {job.model.global_batch}",
        )


def model_faults(model: Transformer) -> Iterator[Issue]:
    """What the trainer does not know of a model, whatever the plan; pointers below `/model`."""
    for name in _POSITIVE:
        value = getattr(model, name)
        if value is not None and value < 1:
            yield _fault("not_positive", f"model/{name}", f"is {value}; at least 1")
    if model.num_experts > 1:
        yield _fault("experts", "model/num_experts", f"is {model.num_experts}; the trainer knows dense models only")
    if model.positions is Positions.ALIBI:
        yield _fault("positions", "model/positions", "is alibi; the trainer knows learned and rotary positions")
    for name, what in _NOT_TRAINED.items():
        if value := getattr(model, name):
            yield _fault("attention", f"model/{name}", f"is {str(value).lower()}; the trainer has no {what}")
    yield from _computation_faults(model)
    if model.optimizer is not Optimizer.ADAM:
        yield _fault("optimizer", "model/optimizer", f"is {model.optimizer}; the trainer knows adam")
    if model.zero_stage != 1:
        why = (
            "DeepSpeed has no pipelines with stages 2 and 3, and the trainer runs every plan as a pipeline"
            if model.zero_stage > 1
            else "with stage 0 DeepSpeed clips gradients by a wrong norm where tensors are split"
        )
        detail = f"is {model.zero_stage}; the trainer runs stage 1 only, {why}: plan with stage 1"
        yield _fault("zero_stage", "model/zero_stage", detail)


def _computation_faults(model: Transformer) -> Iterator[Issue]:
    """How the trainer does not compute."""
    if model.precision is Precision.FP16 or model.precision.in_8_bits:
        yield _fault("precision", "model/precision", f"is {model.precision}; the trainer knows bf16 and fp32")
    if model.software is not Software.DEEPSPEED:
        detail = f"is {model.software}; the trainer runs under deepspeed: plan with it"
        yield _fault("software", "model/software", detail)
    if not model.fuses_attention:
        yield _fault("attention", "model/attention", "is plain; the trainer's attention is fused")
    if model.splits_sequences:
        yield _fault("sequence_parallel", "model/sequence_parallel", "is true; the trainer replicates activations")


def _degree_faults(job: TrainingJob) -> Iterator[Issue]:
    """Head counts that do not divide; a user's own layers may divide anything."""
    if job.layers_hook is not None or job.tp < 1:
        return
    sizes = Dimensions.of(job.model)
    if sizes.heads % sizes.kv_heads:
        yield _fault(
            "heads", "model/num_kv_heads", f"{sizes.heads} heads do not divide into {sizes.kv_heads} key-value heads"
        )
    if job.model.positions is Positions.ROTARY and sizes.head % 2:
        yield _fault("head_size", "model/head_size", f"is {sizes.head}; rotary positions need an even size")
    divided = (("num_heads", sizes.heads), ("num_kv_heads", sizes.kv_heads), ("feed_forward_size", sizes.feed_forward))
    for name, count in divided:
        if count % job.tp:
            yield _fault("tensor_degree", "tp", f"{job.tp} does not divide the model's {name} of {count}")


def _run_faults(job: TrainingJob) -> Iterator[Issue]:
    schedule = job.schedule
    for name in ("learning_rate", "weight_decay", "gradient_clipping", "warmup_steps", "final_ratio"):
        if getattr(schedule, name) < 0:
            yield _fault("negative", f"schedule/{name}", f"is {getattr(schedule, name)}; at least 0")
    if job.checkpoint_interval < 0:
        yield _fault("negative", "checkpoint_interval", f"is {job.checkpoint_interval}; at least 0")
    for name in ("hang_limit_steps", "hang_limit_s", "start_limit_s", "save_limit_s"):
        if getattr(job, name) < 1:
            yield _fault("hang_limit", name, f"is {getattr(job, name)}; at least 1")
    for name in ("checkpoint_interval", "resume"):
        if getattr(job, name) and job.checkpoint_folder is None:
            yield _fault("no_folder", "checkpoint_folder", f"is missing; {name} needs it")
    if not 0 <= job.seed < 2**31:
        yield _fault("seed", "seed", f"is {job.seed}; must be in [0, 2**31)")
    if job.layers_hook is not None and len(job.layers_hook.split(":")) != 2:
        yield _fault("hook", "layers_hook", f"is {job.layers_hook!r}; must read module:function")


def _fault(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=f"/{pointer}", detail=detail)
