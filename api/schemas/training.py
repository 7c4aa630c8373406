"""What clients choose of a training beyond its model and plan."""

from typing import Annotated

from pydantic import Field

from api.schemas.base import MAX_BYTES, MAX_COUNT, Count, Document, Name, NonNegative, Positive
from executor.data.sources import TokenType
from executor.progress import ScalingRule
from executor.routing import MAX_LOSS_FACTOR
from executor.training_job import DEFAULT_CHUNK_BYTES
from executor.training_options import Compiler, Decay, Device, EngineName
from models.numerics import Activation
from models.transformer import MAX_CAPACITY_FACTOR

PATH_PATTERN = r"^[^\x00-\x1f]+$"
FilePath = Annotated[str, Field(min_length=1, max_length=4096, pattern=PATH_PATTERN)]
_Samples = Annotated[int, Field(ge=1, le=2**53)]


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

    path: FilePath
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
    initial_weights: FilePath | None = None
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
    token_file: FilePath | None = None
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
