"""The model that a job trains, and coefficients that were measured of it."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Discriminator, Field, JsonValue, Tag, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.base import MAX_COUNT, CalibrationName, Count, Document, Name, NonNegative, Positive
from models.catalogue import find_model
from models.performance.iteration.adjustment import NAMES, is_covariance
from models.readers.hugging_face import describe
from models.software import Software
from models.transformer import (
    MAX_CAPACITY_FACTOR,
    MAX_EXPERTS,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_WIDTH,
    Attention,
    Biases,
    Checkpointing,
    JobModel,
    Normalisation,
    OperatorModel,
    Optimizer,
    Positions,
    Precision,
    Transformer,
)
from stowplan.errors import InputError

_Layers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
_Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
_Heads = Annotated[int, Field(ge=1, le=MAX_HEADS)]
_Experts = Annotated[int, Field(ge=1, le=MAX_EXPERTS)]
_Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
# Faults of a configuration that an issue tells.
_MAX_TOLD = 10
_SHAPE = ("num_layers", "hidden_size", "vocabulary_size", "sequence_length")


def _known(name: str) -> JobModel:
    try:
        return find_model(name, global_batch=1)
    except InputError as error:
        raise PydanticCustomError("unknown_model", "{detail}", {"detail": error.detail}) from error


def _transformer_name(name: str) -> str:
    if not isinstance(_known(name), Transformer):
        detail = f"{name!r} is a list of operators; name it in `operators`, not in `transformer`"
        raise PydanticCustomError("unknown_model", "{detail}", {"detail": detail})
    return name


def _operators_name(name: str) -> str:
    if not isinstance(_known(name), OperatorModel):
        detail = f"{name!r} is a transformer; name it in `transformer`, not in `operators`"
        raise PydanticCustomError("unknown_model", "{detail}", {"detail": detail})
    return name


def _configuration(config: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        describe(config)
    except InputError as error:
        told = "; ".join(f"{issue.pointer} {issue.detail}" for issue in error.issues[:_MAX_TOLD])
        raise PydanticCustomError("invalid_config", "{detail}", {"detail": f"{error.detail}: {told}"}) from error
    return config


ZeroStage = Annotated[int, Field(ge=0, le=3)]


class TrainingDoc(Document):
    """How a model is trained."""

    global_batch: Count
    """Sequences (samples) per optimiser step."""
    micro_batch: Count | None = None
    """Sequences of one micro-batch per replica (null: the planner chooses)."""
    precision: Precision | None = None
    """Default: that of the catalogue's model, else bf16."""
    optimizer: Optimizer | None = None
    """Default: that of the catalogue's model, else adam."""
    zero_stage: ZeroStage | None = None
    """What ZeRO shards over the replicas: 1 optimiser states, 2 gradients too, 3 weights too. Default: 1."""
    software: Software | None = None
    """What trains: it decides about overlap, about what stages send, and how fast layers are. Default: deepspeed."""


class TransformerDoc(TrainingDoc):
    """A decoder-only transformer. What is left out is that of the catalogue's `model`, else the default named here."""

    model: Annotated[Name, AfterValidator(_transformer_name)] | None = None
    """A model of the catalogue, such as `llama2-13b`; fields given beside it take precedence."""
    config: Annotated[dict[str, JsonValue], Field(max_length=1024), AfterValidator(_configuration)] | None = None
    """In place of `model`: a `config.json` of Hugging Face, with `sequence_length` beside it; fields given beside it
    take precedence."""
    num_layers: _Layers | None = None
    """Required without `model` and `config`."""
    hidden_size: _Width | None = None
    """Required without `model` and `config`."""
    vocabulary_size: _Tokens | None = None
    """Required without `model` and `config`."""
    sequence_length: _Tokens | None = None
    """Tokens of a sequence. Required without `model`."""
    num_heads: _Heads | None = None
    """Default: hidden_size / 64."""
    num_kv_heads: _Heads | None = None
    """Fewer than heads: grouped-query attention. Default: as many as heads."""
    head_size: _Width | None = None
    """Default: hidden_size / num_heads."""
    value_head_size: _Width | None = None
    """With kv_rank: size of a head's value. Default: head_size."""
    rotary_head_size: _Width | None = None
    """With kv_rank: how much of head_size carries the position, as one key for all heads."""
    query_rank: _Width | None = None
    """With kv_rank: size of the latent that queries come from. Default: none, they come from the hidden state."""
    kv_rank: _Width | None = None
    """Multi-head latent attention (DeepSeek): size of the latent that keys and values come from. Default: none."""
    query_key_norms: bool | None = None
    """A norm of each head's queries and of its keys. Default: false."""
    attention_window: _Tokens | None = None
    """Tokens that one attends to at most. Default: all."""
    global_attention_interval: _Layers | None = None
    """With attention_window: every how many layers a token attends to all. Default: in no layer."""
    feed_forward_size: _Width | None = None
    """Default: 4 x hidden_size."""
    gated: bool | None = None
    """Three matrices in the feed-forward part instead of two. Default: false."""
    normalisation: Normalisation | None = None
    """Default: layernorm."""
    post_norms: bool | None = None
    """A norm behind attention and behind the feed-forward part, too. Default: false."""
    biases: Biases | None = None
    """Which linear layers have a bias. Default: all."""
    positions: Positions | None = None
    """A learned table, rotary, or ALiBi. Default: learned."""
    tied_embeddings: bool | None = None
    """Embedding and head share their weights. Default: true."""
    num_experts: _Experts | None = None
    """Above 1: the feed-forward part is a mixture of experts. Default: 1."""
    experts_per_token: _Experts | None = None
    """Default: 1."""
    expert_interval: _Layers | None = None
    """Every how many layers the feed-forward part is a mixture. Default: 1."""
    first_dense_layers: Annotated[int, Field(ge=0, le=MAX_LAYERS)] | None = None
    """Layers in front whose feed-forward part is no mixture. Default: 0."""
    expert_feed_forward_size: _Width | None = None
    """Inner size of one expert. Default: feed_forward_size."""
    shared_expert_size: _Width | None = None
    """Inner size of what works on every token beside the experts, in all. Default: there is none."""
    capacity_factor: Annotated[float, Field(ge=1, le=MAX_CAPACITY_FACTOR)] | None = None
    """Tokens that every expert works on, over its mean share of them: more where buffers have room for the fullest one.
    Default: 1."""
    checkpointing: Checkpointing | None = None
    """Activation checkpointing. Default: none."""
    attention: Attention | None = None
    """One kernel, or several that keep their scores. Default: fused where the software can."""
    sequence_parallel: bool | None = None
    """Whether activations that tensor parallelism replicates are split over its GPUs. Default: where the software
    can."""

    @model_validator(mode="after")
    def _named_or_described(self) -> Self:
        if self.model is not None and self.config is not None:
            raise PydanticCustomError("one_of", "give one of model and config")
        needed = _SHAPE if self.config is None else _SHAPE[-1:]
        missing = [name for name in needed if getattr(self, name) is None]
        if self.config is not None and missing:
            detail = "lacks sequence_length; config says only how long sequences may be"
            raise PydanticCustomError("missing_field", "{detail}", {"detail": detail})
        if self.model is None and missing:
            detail = f"lacks {', '.join(missing)}; give them, or name a model of the catalogue in `model`"
            raise PydanticCustomError("missing_field", "{detail}", {"detail": detail})
        return self


class OperatorDoc(Document):
    """One operator, or a cluster of operators; everything per sample but the parameters."""

    name: Name
    parameters: Annotated[int, Field(ge=0, le=2**53)]
    forward_flops: NonNegative
    memory_traffic_bytes: NonNegative
    """Read and written in the forward pass."""
    activation_bytes: NonNegative
    """Kept for the backward pass."""
    output_bytes: NonNegative
    """Handed to the next operator."""
    tensor_parallel_bytes: NonNegative
    """All-reduced in the forward pass when tensor-parallel degrees are above 1."""


class OperatorModelDoc(TrainingDoc):
    """A model given by its operators in order, or by the name of such a model in the catalogue."""

    model: Annotated[Name, AfterValidator(_operators_name)] | None = None
    """A model of the catalogue, such as `wide-resnet-1b`."""
    operators: Annotated[tuple[OperatorDoc, ...], Field(min_length=1, max_length=MAX_LAYERS)] | None = None
    name: Name | None = None
    """What you call a model of your own."""

    @model_validator(mode="after")
    def _named_or_listed(self) -> Self:
        if (self.model is None) == (self.operators is None):
            raise PydanticCustomError("one_of", "give exactly one of operators and model")
        return self


def which_model(value: Any) -> str:
    """Tag of a model's document: transformer or operators."""
    if not isinstance(value, dict):
        return "operators" if isinstance(value, OperatorModelDoc) else "transformer"
    try:
        named = find_model(str(value.get("model")), global_batch=1)
    except InputError:
        return "operators" if "operators" in value else "transformer"
    return "operators" if isinstance(named, OperatorModel) else "transformer"


AnyModelDoc = Annotated[
    Annotated[TransformerDoc, Tag("transformer")] | Annotated[OperatorModelDoc, Tag("operators")],
    Discriminator(which_model),
]


_Factor = Annotated[float, Field(ge=0.01, le=100)]


class GpuCoefficientsDoc(Document):
    """How fast one GPU type runs the job (Suika Table 2)."""

    compute_s: Positive
    """Forward computation of the mean layer for one sample on one GPU."""
    backward_ratio: Positive
    """Backward over forward computation."""
    optimizer_s: NonNegative
    """Optimiser step of the mean layer on one GPU."""
    overlap: Annotated[float, Field(ge=1)] | None
    """Exponent of the overlap of backward pass and gradient reduction: 1 is none, null complete overlap."""


class SizeCoefficientsDoc(Document):
    """Sizes of the mean layer in bytes; activations per sample."""

    activation_bytes: NonNegative
    gradient_bytes: NonNegative
    parameter_bytes: NonNegative
    optimizer_bytes: NonNegative
    partitioned_activation_bytes: NonNegative
    replicated_activation_bytes: NonNegative


class AdjustmentDoc(Document):
    """Factors on the times of parts of an iteration, from iteration times of plans: 1 is what the priors say."""

    computation: _Factor = 1.0
    """Of all operations of layers."""
    memory: _Factor = 1.0
    """What is moved through the memory of a GPU."""
    launch: _Factor = 1.0
    """Starting kernels."""
    link: _Factor = 1.0
    """Communication inside nodes."""
    network: _Factor = 1.0
    """Communication between nodes."""
    overlap: _Factor = 1.0
    """What the reduction of gradients is not hidden by."""
    covariance: tuple[tuple[float, ...], ...] | None = None
    """Of the logarithms of these six, in their order; null: that before anything was measured."""
    residual: Annotated[float, Field(gt=0, le=1)] | None = None
    """Standard deviation of the logarithm of what the factors leave of a plan's time; null: that of published rows."""
    num_points: Annotated[int, Field(ge=0)] = 0
    """Iteration times behind the factors."""

    @model_validator(mode="after")
    def _covariance(self) -> Self:
        if self.covariance is not None and not is_covariance(self.covariance):
            detail = f"must have {len(NAMES)} rows of {len(NAMES)} numbers, symmetric and positive definite"
            raise PydanticCustomError("out_of_range", "has a covariance that is none: it {detail}", {"detail": detail})
        return self


class CalibrationDoc(Document):
    """Coefficients that come from measurements, in place of those from data sheets, or factors on times, or both."""

    gpus: Annotated[dict[Name, GpuCoefficientsDoc], Field(max_length=256)] = Field(default_factory=dict)
    """GPU type -> coefficients; types that were not seen are derived from these."""
    adjustment: AdjustmentDoc | None = None
    """Factors on times, from iteration times of plans."""
    sizes: SizeCoefficientsDoc | None = None
    """Null: the sizes follow from the model."""
    measured_at_s: Annotated[float, Field(ge=0, le=MAX_COUNT * 1e3)] | None = None
    """Unix time of the last measurement."""
    source: Annotated[str, Field(max_length=4000)] | None = None
    """What was measured, for people."""

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.gpus and self.adjustment is None:
            raise PydanticCustomError("missing_field", "has neither gpus nor adjustment; give one of them")
        return self


def _which_calibration(value: Any) -> str:
    return "named" if isinstance(value, str) else "inline"


CalibrationSource = Annotated[
    Annotated[CalibrationDoc, Tag("inline")] | Annotated[CalibrationName, Tag("named")],
    Discriminator(_which_calibration),
]
"""A calibration, or the name of one: of a common system, or in requests to a service of one that was posted to it."""
