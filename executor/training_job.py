"""One training run as the workers see it: model, layout, batch, schedule, data, checkpoints. One JSON file.

Every stage works on the same micro-batches; its replicas share the samples of each. Sample n of a training is the same
whatever the layout and the batch (`executor.token_stream`), so a run may change both between two steps and goes on with
the same data.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from executor.data.sources import Data, Source, TokenType, document_faults, sources_of
from executor.progress import ScalingRule, scaling_faults
from executor.records import read_record, write_record
from executor.routing import Routing, routing_faults
from executor.weights.families import family_of
from models.dimensions import Dimensions
from models.numerics import Numerics
from models.parallel_plan import layers_of_parts
from models.performance.iteration.layer_sizes import LayerKind
from models.pipeline_schedule import PipelineSchedule
from models.software import Software
from models.transformer import Biases, Checkpointing, Optimizer, Positions, Precision, Transformer
from models.wording import counted
from stowplan.errors import Issue, raise_for_errors

# Of a training's state, while it is handed over: large enough that nothing waits for the first byte of it.
DEFAULT_CHUNK_BYTES = 1 << 26
LEAST_CHUNK_BYTES = 1 << 12
# Value of `resume`: go on from the last good checkpoint, or start anew where there is none.
LAST = "last"
# Said wherever such a run is begun.
SYNTHETIC_DATA = "SYNTHETIC DATA: no data are given, so that the model learns made-up sequences; good for trials only"

# Sizes of the model that are at least 1 where they are given.
_POSITIVE = (
    *("num_layers", "hidden_size", "vocabulary_size", "sequence_length", "global_batch"),
    *("num_heads", "num_kv_heads", "head_size", "feed_forward_size"),
)

# What a transformer may have and the trainer's blocks have not.
_NOT_TRAINED = {
    "kv_rank": "latent attention",
    "attention_window": "attention within a window",
    "post_norms": "norms behind attention and feed-forward part",
}


class Device(StrEnum):
    """What the ranks compute on: CPU with gloo, CUDA with NCCL."""

    CPU = "cpu"
    CUDA = "cuda"


class EngineName(StrEnum):
    """What runs the pipeline: DeepSpeed, for symmetric plans, or stages on torch's own schedules, for any plan."""

    DEEPSPEED = "deepspeed"
    NATIVE = "native"


# What plans may be made for to be run by an engine: the native one runs what is planned for DeepSpeed, too.
_SOFTWARE = {
    EngineName.DEEPSPEED: (Software.DEEPSPEED,),
    EngineName.NATIVE: (Software.DEEPSPEED, Software.TORCH_EAGER),
}


_ZERO_STAGES = {EngineName.DEEPSPEED: (1,), EngineName.NATIVE: (1, 2, 3)}
_ZERO_REASONS = {
    EngineName.DEEPSPEED: (
        "stage 1 only under DeepSpeed, as a pipeline, which it has not with 2 and 3; with 0 it clips by a wrong norm "
        "where tensors are split: plan with stage 1, or take the engine native for 1 to 3"
    ),
    EngineName.NATIVE: "stages 1, 2 and 3 under the engine native: plan with one of these",
}


class Compiler(StrEnum):
    """Backends of `torch.compile`: kernels that are made for the layers, which takes a compiler of C++ on every host;
    or the passes as they are traced ahead of time, made of the usual kernels.
    """

    INDUCTOR = "inductor"
    AOT_EAGER = "aot_eager"


class Decay(StrEnum):
    """How the learning rate falls: along a cosine, along a line, or not before a line at the end (WSD: warm-up, stable,
    decay; Hu et al. 2024)."""

    COSINE = "cosine"
    LINEAR = "linear"
    WSD = "wsd"


class Coordinates(NamedTuple):
    """Place of a rank: stage, replica, position in the tensor group."""

    pipe: int
    data: int
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayout:
    """One pipeline stage: `num_layers` layers, replicated over groups of `tp` ranks.

    `batches`: sequences of every micro-batch that each replica works on, one number per replica. `checkpointing`: of
    its layers, None: as the model says. `recomputed_layers`: the first so many, of every part as many, are recomputed
    in full and the others keep everything; None: all alike (`models.parallel_plan.Stage`).
    """

    num_layers: int
    tp: int
    batches: tuple[int, ...]
    checkpointing: Checkpointing | None = None
    recomputed_layers: int | None = None

    @property
    def dp(self) -> int:
        """Replicas."""
        return len(self.batches)

    @property
    def num_ranks(self) -> int:
        """Processes of the stage."""
        return self.dp * self.tp

    def interval(self, replica: int) -> tuple[int, int]:
        """First sample of a micro-batch that a replica works on, and the one behind its last."""
        start = sum(self.batches[:replica])
        return start, start + self.batches[replica]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Learning rate and the other settings of AdamW, or of SGD with the momentum `beta1`.

    Linear warm-up over `warmup_steps`, then `decay` down to `final_ratio` x `learning_rate` at `decay_steps` (None: the
    steps of the job), constant after that. `cooldown_steps`: over which WSD falls (None: the last tenth). Each may be
    said in samples (sequences) instead. `scaling`: how the learning rate follows a batch other than `initial_batch`, of
    which all lengths in steps are, those of the job too (None: the batch of the model); unless it is none, samples
    count by what they are worth (`executor.progress`). Weight decay applies to all parameters but norms and biases.
    Gradients are clipped to the norm `gradient_clipping`, 0 for not at all.
    """

    learning_rate: float = 3e-4
    decay: Decay = Decay.COSINE
    warmup_steps: int = 0
    warmup_samples: int | None = None
    decay_steps: int | None = None
    decay_samples: int | None = None
    cooldown_steps: int | None = None
    cooldown_samples: int | None = None
    scaling: ScalingRule = ScalingRule.NONE
    initial_batch: int | None = None
    final_ratio: float = 0.1
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    gradient_clipping: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What every rank reads before it starts.

    Layout. `stages` in pipeline order; the first also holds the embedding, the last one the head. `num_micro_batches`
    make a step. `engine`: DeepSpeed runs layouts whose stages have the same degrees and whose replicas the same batch.
    `virtual_stages`: parts into which the layers of every stage are cut, for interleaved pipelines, and those whose
    `pipeline_schedule` is zero-bubble. `expert_parallel`: so many consecutive replicas of a stage have different
    experts (`models.parallel_plan`). `compiler`: of the layers, under the native engine; None: they are not compiled.

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
    for TensorBoard; `wandb_folder`: below which, in `wandb`, for a project of Weights & Biases. `layers_hook`:
    `module:function` that gives the user's own layers (`executor.trainer.layers`), None for the built-in transformer.

    Raises
    ------
    InputError
        When the trainer cannot run the job as it stands.
    """

    model: Transformer
    stages: tuple[StageLayout, ...]
    num_micro_batches: int
    num_steps: int
    engine: EngineName = EngineName.DEEPSPEED
    virtual_stages: int = 1
    expert_parallel: int = 1
    pipeline_schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
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
    layers_hook: str | None = None

    def __post_init__(self) -> None:
        raise_for_errors(
            [
                *_layout_faults(self),
                *model_faults(self.model, self.engine),
                *_degree_faults(self),
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
    def pp(self) -> int:
        """Pipeline degree."""
        return len(self.stages)

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of each stage (l_i)."""
        return tuple(stage.num_layers for stage in self.stages)

    @property
    def part_layers(self) -> tuple[int, ...]:
        """Layers of each part of a stage in pipeline order."""
        return layers_of_parts(self.stage_layers, self.virtual_stages, self.pipeline_schedule)

    def parts_of(self, pipe: int) -> tuple[int, ...]:
        """Which of the parts in pipeline order a stage has."""
        if self.pipeline_schedule is PipelineSchedule.ZBV:
            return pipe, 2 * self.pp - 1 - pipe
        return tuple(range(pipe, self.pp * self.virtual_stages, self.pp))

    @property
    def last_stage(self) -> int:
        """The stage that ends the model."""
        return self.stage_of(self.pp * self.virtual_stages - 1)

    def stage_of(self, part: int) -> int:
        """Which stage has a part."""
        if self.pipeline_schedule is PipelineSchedule.ZBV:
            return min(part, 2 * self.pp - 1 - part)
        return part % self.pp

    @property
    def layer_checkpointing(self) -> tuple[Checkpointing, ...]:
        """Activation checkpointing of each layer of the model."""
        found: list[Checkpointing] = []
        for part, count in enumerate(self.part_layers):
            stage = self.stages[self.stage_of(part)]
            kind = stage.checkpointing or self.model.checkpointing
            recomputed = count
            if stage.recomputed_layers is not None:
                recomputed = stage.recomputed_layers // self.virtual_stages
            found += [kind] * recomputed + [Checkpointing.NONE] * (count - recomputed)
        return tuple(found)

    @property
    def is_symmetric(self) -> bool:
        """Whether all stages have the same degrees and all replicas the same batch."""
        return len({(stage.tp, stage.dp, batch) for stage in self.stages for batch in stage.batches}) == 1

    @property
    def num_ranks(self) -> int:
        """Processes of the run."""
        return sum(stage.num_ranks for stage in self.stages)

    @property
    def micro_batch(self) -> int:
        """Sequences of one micro-batch, over all replicas of a stage."""
        return sum(self.stages[0].batches)

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.micro_batch * self.num_micro_batches

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

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one step."""
        return self.global_batch * self.model.sequence_length

    def coordinates(self, rank: int) -> Coordinates:
        """Place of a rank: pipe slowest, then data, tensor fastest."""
        pipe = 0
        while rank >= self.stages[pipe].num_ranks:
            rank -= self.stages[pipe].num_ranks
            pipe += 1
        return Coordinates(pipe, *divmod(rank, self.stages[pipe].tp))

    def rank_of(self, place: Coordinates) -> int:
        """Rank of a place: the inverse of `coordinates`."""
        before = sum(stage.num_ranks for stage in self.stages[: place.pipe])
        return before + place.data * self.stages[place.pipe].tp + place.tensor


def read_training_job(path: Path) -> TrainingJob:
    """Read a job file; raise InputError when it is none."""
    return read_record(TrainingJob, path, "training job")


def write_training_job(job: TrainingJob, path: Path) -> None:
    """Write the file that `read_training_job` reads."""
    write_record(job, path)


def _layout_faults(job: TrainingJob) -> Iterator[Issue]:
    for name in ("num_micro_batches", "num_steps", "keep_checkpoints"):
        if getattr(job, name) < 1:
            yield _fault("not_positive", name, f"is {getattr(job, name)}; at least 1")
    if not job.stages:
        yield _fault("stage_layers", "stages", "is empty; at least 1 stage")
        return
    yield from _stage_faults(job)
    if sum(job.stage_layers) != job.model.num_layers:
        detail = f"{list(job.stage_layers)} has {sum(job.stage_layers)} layers; the model has {job.model.num_layers}"
        yield _fault("stage_layers", "stages", detail)
    if job.global_batch != job.model.global_batch:
        detail = (
            f"{job.micro_batch} sequences x {job.num_micro_batches} micro-batches are {job.global_batch}; the model's "
            f"global batch is {job.model.global_batch}"
        )
        yield _fault("global_batch", "num_micro_batches", detail)
    if job.engine is EngineName.DEEPSPEED and not job.is_symmetric:
        detail = "have other degrees, or replicas other batches; DeepSpeed needs the same, the native engine does not"
        yield _fault("asymmetric_stage", "stages", detail)
    yield from _interleaving_faults(job)
    yield from _expert_faults(job)
    if job.virtual_stages > 0:
        yield from _recomputation_faults(job)


def _expert_faults(job: TrainingJob) -> Iterator[Issue]:
    """What experts do not go with."""
    degree, model = job.expert_parallel, job.model
    if model.num_experts > 1 and job.pipeline_schedule.splits_backward:
        detail = (
            f"is {job.pipeline_schedule}, under which torch goes back through a layer for its inputs and again for its "
            "weights, and tokens would go to their experts twice: plan with 1f1b"
        )
        yield _fault("schedule", "pipeline_schedule", detail)
    if degree < 1:
        yield _fault("not_positive", "expert_parallel", f"is {degree}; at least 1")
    if degree <= 1:
        return
    if job.engine is EngineName.DEEPSPEED:
        yield _fault("expert_parallel", "expert_parallel", f"is {degree}; DeepSpeed has none, the native engine has it")
    if job.layers_hook is not None:
        detail = f"is {degree} beside layers_hook; of your own layers all replicas have everything: 1"
        yield _fault("hook", "expert_parallel", detail)
    if model.num_experts % degree:
        detail = f"is {degree}, which does not divide the model's num_experts of {model.num_experts}"
        yield _fault("expert_degree", "expert_parallel", detail)
    for k, stage in enumerate(job.stages):
        if stage.dp % degree:
            detail = f"is {degree}, which does not divide the {counted(stage.dp, 'replica')} of stage {k}"
            yield _fault("expert_degree", "expert_parallel", detail)


def _interleaving_faults(job: TrainingJob) -> Iterator[Issue]:
    parts = job.virtual_stages
    if job.pipeline_schedule.splits_backward:
        yield from _split_faults(job)
    if parts == 1:
        return
    if parts < 1:
        yield _fault("not_positive", "virtual_stages", f"is {parts}; at least 1")
    elif job.engine is EngineName.DEEPSPEED:
        yield _fault("virtual_stages", "virtual_stages", f"is {parts}; DeepSpeed has no interleaved pipelines")
    elif (
        job.pp == 1
        or min(job.stage_layers) < parts
        or (job.num_micro_batches % job.pp and job.pipeline_schedule is not PipelineSchedule.ZBV)
    ):
        detail = (
            f"is {parts}; needs several stages, a layer per part ({list(job.stage_layers)} layers), and micro-batches "
            f"that the {job.pp} stages divide ({job.num_micro_batches})"
        )
        yield _fault("not_interleaved", "virtual_stages", detail)


def _split_faults(job: TrainingJob) -> Iterator[Issue]:
    """What zero-bubble schedules do not go with."""
    kind, parts = job.pipeline_schedule, job.virtual_stages
    if job.engine is EngineName.DEEPSPEED:
        yield _fault("schedule", "pipeline_schedule", f"is {kind}; DeepSpeed has 1F1B alone, the engine native has it")
    if not (parts == 2 if kind is PipelineSchedule.ZBV else parts > 1):
        yield _fault("schedule", "pipeline_schedule", f"is {kind} with {parts} parts a stage; zbv has 2, others more")
    if job.model.checkpointing is not Checkpointing.NONE:
        detail = f"is {kind} with {job.model.checkpointing} checkpointing, which torch repeats for every weight; none"
        yield _fault("schedule", "pipeline_schedule", detail)
    if job.model.zero_stage > 1:
        detail = (
            f"is {kind} with ZeRO stage {job.model.zero_stage}; under it torch gives the gradients of weights of all "
            "layers of a part at once, so that nothing is saved: plan with stage 1, or 1f1b"
        )
        yield _fault("schedule", "pipeline_schedule", detail)
    if kind is PipelineSchedule.ZBV and job.model.tied_embeddings:
        detail = "is zbv, under which one stage has embedding and head; the native engine ties those of two stages"
        yield _fault("schedule", "pipeline_schedule", detail)


def _stage_faults(job: TrainingJob) -> Iterator[Issue]:
    for k, stage in enumerate(job.stages):
        if stage.num_layers < 1:
            yield _fault("stage_layers", f"stages/{k}/num_layers", "is below 1; every stage has at least 1 layer")
        if stage.tp < 1:
            yield _fault("not_positive", f"stages/{k}/tp", f"is {stage.tp}; at least 1")
        if not stage.batches or min(stage.batches) < 1:
            detail = f"is {list(stage.batches)}; at least 1 replica, each with at least 1 sequence"
            yield _fault("not_positive", f"stages/{k}/batches", detail)
        if sum(stage.batches) != job.micro_batch:
            detail = (
                f"{list(stage.batches)} are {sum(stage.batches)} sequences, those of stage 0 {job.micro_batch}; "
                "every stage works on all samples of a micro-batch"
            )
            yield _fault("micro_batch_differs", f"stages/{k}/batches", detail)


def _recomputation_faults(job: TrainingJob) -> Iterator[Issue]:
    """What stages cannot recompute on their own."""
    for k, stage in enumerate(job.stages):
        count, where = stage.recomputed_layers, f"stages/{k}"
        if stage.checkpointing is None and count is None:
            continue
        if job.engine is EngineName.DEEPSPEED:
            detail = "is given; under DeepSpeed all stages recompute as the model says, the engine native knows each"
            yield _fault("checkpointing", f"{where}/checkpointing", detail)
        if job.layers_hook is not None:
            detail = "is given beside layers_hook; your own layers recompute as they like"
            yield _fault("hook", f"{where}/checkpointing", detail)
        if count is None:
            continue
        if stage.checkpointing is not Checkpointing.FULL:
            detail = f"is {count}; only beside the checkpointing full"
            yield _fault("recomputed_layers", f"{where}/recomputed_layers", detail)
        parts = job.virtual_stages
        if count < 1 or count % parts or count // parts > stage.num_layers // parts:
            detail = f"is {count}; each of the {parts} parts of {stage.num_layers} layers recomputes equally many"
            yield _fault("recomputed_layers", f"{where}/recomputed_layers", detail)


def model_faults(model: Transformer, engine: EngineName = EngineName.DEEPSPEED) -> Iterator[Issue]:
    """What the trainer does not know of a model, whatever the plan; pointers below `/model`."""
    for name in _POSITIVE:
        value = getattr(model, name)
        if value is not None and value < 1:
            yield _fault("not_positive", f"model/{name}", f"is {value}; at least 1")
    if model.num_experts > 1:
        yield from _mixture_faults(model, engine)
    if model.positions is Positions.ALIBI:
        yield _fault("positions", "model/positions", "is alibi; the trainer knows learned and rotary positions")
    for name, what in _NOT_TRAINED.items():
        if value := getattr(model, name):
            yield _fault("attention", f"model/{name}", f"is {str(value).lower()}; the trainer has no {what}")
    yield from _computation_faults(model, engine)
    if model.optimizer is not Optimizer.ADAM and engine is EngineName.DEEPSPEED:
        detail = f"is {model.optimizer}; with DeepSpeed the trainer knows adam, the native engine sgd, too"
        yield _fault("optimizer", "model/optimizer", detail)
    if model.zero_stage not in _ZERO_STAGES[engine]:
        detail = f"is {model.zero_stage}; the trainer runs {_ZERO_REASONS[engine]}"
        yield _fault("zero_stage", "model/zero_stage", detail)


def _mixture_faults(model: Transformer, engine: EngineName) -> Iterator[Issue]:
    """What the trainer does not know of a mixture of experts."""
    if engine is EngineName.DEEPSPEED:
        detail = f"is {model.num_experts}; under DeepSpeed the trainer knows dense models only: take the engine native"
        yield _fault("experts", "model/num_experts", detail)
    if not 1 <= model.experts_per_token <= model.num_experts:
        detail = f"is {model.experts_per_token}; from 1 to the model's num_experts of {model.num_experts}"
        yield _fault("experts", "model/experts_per_token", detail)
    for name in ("expert_feed_forward_size", "shared_expert_size", "expert_interval"):
        if (value := getattr(model, name)) is not None and value < 1:
            yield _fault("not_positive", f"model/{name}", f"is {value}; at least 1")
    if model.biases is Biases.ALL:
        yield _fault("experts", "model/biases", "is all; the trainer's experts have no biases: none, or qkv")


def _computation_faults(model: Transformer, engine: EngineName) -> Iterator[Issue]:
    """How the trainer does not compute."""
    if model.precision is Precision.FP16 or model.precision.in_8_bits:
        yield _fault("precision", "model/precision", f"is {model.precision}; the trainer knows bf16 and fp32")
    if model.software not in _SOFTWARE[engine]:
        detail = f"is {model.software}; the trainer's engine {engine} is {' or '.join(_SOFTWARE[engine])}: plan with it"
        yield _fault("software", "model/software", detail)
    if not model.fuses_attention:
        yield _fault("attention", "model/attention", "is plain; the trainer's attention is fused")
    if model.splits_sequences and engine is EngineName.DEEPSPEED:
        detail = "is true; under DeepSpeed the trainer replicates activations, the engine native splits them"
        yield _fault("sequence_parallel", "model/sequence_parallel", detail)


def _degree_faults(job: TrainingJob) -> Iterator[Issue]:
    """Head counts and sequences that do not divide; a user's own layers may divide anything but sequences."""
    if job.layers_hook is not None:
        if job.model.splits_sequences and any(stage.tp > 1 for stage in job.stages):
            detail = "is true; layers of a hook have whole sequences on all tensor ranks: plan with false"
            yield _fault("sequence_parallel", "model/sequence_parallel", detail)
        return
    sizes = Dimensions.of(job.model)
    if sizes.heads % sizes.kv_heads:
        yield _fault(
            "heads", "model/num_kv_heads", f"{sizes.heads} heads do not divide into {sizes.kv_heads} key-value heads"
        )
    if job.model.positions is Positions.ROTARY and sizes.head % 2:
        yield _fault("head_size", "model/head_size", f"is {sizes.head}; rotary positions need an even size")
    divided = [*_divided(job.model, sizes)]
    for k, stage in enumerate(job.stages):
        for name, count in divided:
            if stage.tp > 0 and count % stage.tp:
                detail = f"{stage.tp} does not divide the model's {name} of {count}"
                yield _fault("tensor_degree", f"stages/{k}/tp", detail)


def _divided(model: Transformer, sizes: Dimensions) -> Iterator[tuple[str, int]]:
    """What tensor ranks share."""
    yield from (("num_heads", sizes.heads), ("num_kv_heads", sizes.kv_heads))
    layers = range(model.num_layers if model.expert_interval > 0 else 0)
    kinds = {LayerKind.of(model, k).experts for k in layers}
    if False in kinds:
        yield "feed_forward_size", sizes.feed_forward
    if True in kinds:
        yield "expert_feed_forward_size", sizes.expert
        if model.shared_expert_size is not None:
            yield "shared_expert_size", model.shared_expert_size
    if model.splits_sequences:
        yield "sequence_length", model.sequence_length


def _input_faults(job: TrainingJob) -> Iterator[Issue]:
    """What does not go together of data and weights."""
    if job.token_file is not None and job.data.sources:
        yield _fault("training_data", "token_file", "is given beside data.sources; name it there, with its token_type")
    for issue in document_faults(job.sources, job.data, job.model.vocabulary_size):
        yield replace(issue, pointer=f"/data{issue.pointer}")
    for name in ("initial_weights", "final_weights"):
        if getattr(job, name) is None:
            continue
        if job.layers_hook is not None:
            yield _fault("hook", name, "is given beside layers_hook: of your own layers nobody else knows the weights")
        elif family_of(job.model, job.numerics) is None:
            types = "gpt2, llama, qwen2, qwen3, mixtral, qwen2_moe or qwen3_moe"
            detail = f"needs a model that transformers has as {types}; this one is none of them"
            yield _fault("no_family", name, detail)


def _schedule_faults(schedule: Schedule) -> Iterator[Issue]:
    for name in ("learning_rate", "weight_decay", "gradient_clipping", "final_ratio"):
        if getattr(schedule, name) < 0:
            yield _fault("negative", f"schedule/{name}", f"is {getattr(schedule, name)}; at least 0")
    for part in ("warmup", "decay", "cooldown"):
        steps, samples = (getattr(schedule, f"{part}_{unit}") for unit in ("steps", "samples"))
        if steps and samples is not None:
            yield _fault("schedule", f"schedule/{part}_samples", f"is given beside {part}_steps; say it in one of both")
        for unit, value in (("steps", steps), ("samples", samples)):
            if value is not None and value < 0:
                yield _fault("negative", f"schedule/{part}_{unit}", f"is {value}; at least 0")
        if part == "cooldown" and (steps or samples) and schedule.decay is not Decay.WSD:
            unit = "steps" if steps else "samples"
            yield _fault("schedule", f"schedule/cooldown_{unit}", f"is given; {schedule.decay} has none, wsd has")


def _run_faults(job: TrainingJob) -> Iterator[Issue]:
    if job.compiler is not None and job.engine is EngineName.DEEPSPEED:
        detail = f"is {job.compiler}; under DeepSpeed layers are not compiled, under the engine native they may be"
        yield _fault("compiler", "compiler", detail)
    yield from _schedule_faults(job.schedule)
    yield from routing_faults(job.routing, "/routing")
    yield from scaling_faults(job.schedule.scaling, job.schedule.initial_batch, job.model.optimizer)
    if job.checkpoint_interval < 0:
        yield _fault("negative", "checkpoint_interval", f"is {job.checkpoint_interval}; at least 0")
    if 0 != job.transfer_chunk_bytes < LEAST_CHUNK_BYTES:
        detail = f"is {job.transfer_chunk_bytes}; at least {LEAST_CHUNK_BYTES}, or 0 for changes through checkpoints"
        yield _fault("transfer_chunk_bytes", "transfer_chunk_bytes", detail)
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
