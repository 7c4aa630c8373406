"""The model that a job trains: a transformer, or a list of operators. Facts that users write down; costs are derived
by `models.performance.iteration.architecture`.
"""

from dataclasses import dataclass
from enum import StrEnum

from models.software import FEATURES, Software

# Far above every model, far below what would exhaust memory: of layers (or operators), of a matrix's side, of heads,
# of experts, of a sequence or vocabulary.
MAX_LAYERS = 100_000
MAX_WIDTH = 10_000_000
MAX_HEADS = 1_000_000
MAX_EXPERTS = 1_000_000
MAX_TOKENS = 1_000_000_000
# Of tokens of an expert over its mean share.
MAX_CAPACITY_FACTOR = 100.0


class Precision(StrEnum):
    """Number format of weights and activations in forward and backward passes; fp8: matrix products of layers in 8
    bits, all else as in bf16; mxfp8: the same with a scale for every 32 numbers (OCP Microscaling Formats, 2023), which
    tensor cores from Blackwell on apply."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    MXFP8 = "mxfp8"

    @property
    def number_bytes(self) -> int:
        """Bytes of one weight or activation as it is kept."""
        return 4 if self is Precision.FP32 else 2

    @property
    def in_8_bits(self) -> bool:
        """Whether matrix products are."""
        return self in (Precision.FP8, Precision.MXFP8)

    @property
    def scale_bytes(self) -> float:
        """Of a number in 8 bits, its part of a scale: mxfp8 has one of 8 bits for 32 numbers."""
        return 1.0 / 32.0 if self is Precision.MXFP8 else 0.0


class Optimizer(StrEnum):
    """What decides the optimiser states: Adam keeps two moments, SGD with momentum one."""

    ADAM = "adam"
    SGD = "sgd"


class Checkpointing(StrEnum):
    """Activation checkpointing: none, selective (attention is recomputed, or, where it is fused, all
    but products and attention), full (whole layers are recomputed)."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Attention(StrEnum):
    """Attention in one kernel that does not write its scores, or in several, which keep them for the backward pass."""

    FUSED = "fused"
    PLAIN = "plain"


class Normalisation(StrEnum):
    """Norm before attention and feed-forward; `rmsnorm` has no bias."""

    LAYERNORM = "layernorm"
    RMSNORM = "rmsnorm"


class Biases(StrEnum):
    """Linear layers with a bias: all (GPT), the query, key and value projections (Qwen), none (LLaMA)."""

    ALL = "all"
    QKV = "qkv"
    NONE = "none"


class Positions(StrEnum):
    """Position information: a learned table of `sequence_length` rows, rotary or ALiBi (neither has parameters)."""

    LEARNED = "learned"
    ROTARY = "rotary"
    ALIBI = "alibi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A decoder-only transformer and how it is trained: GPT, LLaMA, Qwen, and mixtures of experts.

    Shape. `sequence_length` in tokens. `num_heads` None: hidden_size / 64, at least 1. `num_kv_heads` None: as many as
    heads (fewer: grouped-query attention). `head_size` None: hidden_size / num_heads. `feed_forward_size` None:
    4 x hidden_size. (`models.dimensions` fills these in.) `gated`: three matrices in the feed-forward part instead of
    two.

    Attention. `query_key_norms`: an RMS norm of each head's queries and one of its keys (Qwen3, Gemma 3).
    `attention_window`: a token attends to so many at most, but in every `global_attention_interval`-th layer to all
    (Gemma, GPT-OSS; None: no layer does; chunks of that length, as in Llama 4, cost the same here). `kv_rank`:
    multi-head latent attention (DeepSeek-V2, section 2.1): keys and values of all heads come from a latent of that
    size, queries from one of `query_rank` (None: from the hidden state). Then `head_size` is that of queries and keys,
    of which `rotary_head_size` carry the position and are one key for all heads; `value_head_size` is that of values.
    `post_norms`: a norm behind attention and one behind the feed-forward part, too (Gemma 2 and 3).

    Experts. `num_experts` > 1 makes every `expert_interval`-th feed-forward part from `first_dense_layers` on a mixture
    of experts, `experts_per_token` of which work on a token. `expert_feed_forward_size`: inner size of one of them;
    None: feed_forward_size, which dense layers have. `shared_expert_size`: inner size of what works on every token
    beside them, in all (two shared experts of 1,536: 3,072); None: there is none. `capacity_factor`: tokens that every
    expert works on, over its mean share of them: 1 where tokens are spread evenly, more where buffers have room for the
    fullest expert (GShard, Switch Transformer).

    Not described, and not counted: biases of routers, attention sinks and the gate of a shared expert (under a
    millionth of models that have them), norms of the embedding (BLOOM), encoders of pictures, and layers that predict
    further tokens (DeepSeek-V3's MTP: 11.5 B parameters beside the published 671 B).

    Training. `global_batch`: sequences of one optimiser step. `micro_batch`: sequences of one micro-batch per replica;
    None leaves it to the planner. `zero_stage`: what ZeRO shards over the replicas: 1 optimiser states, 2 gradients
    too, 3 weights too; software has pipelines up to one of them. `attention` and `sequence_parallel` (activations that
    tensor parallelism replicates are split over its GPUs) None: fused, and split, where the `software` can.

    `name` is that of the catalogue, None for a model that the user describes.
    """

    num_layers: int
    hidden_size: int
    vocabulary_size: int
    sequence_length: int
    global_batch: int
    micro_batch: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_size: int | None = None
    value_head_size: int | None = None
    rotary_head_size: int | None = None
    query_rank: int | None = None
    kv_rank: int | None = None
    query_key_norms: bool = False
    attention_window: int | None = None
    global_attention_interval: int | None = None
    feed_forward_size: int | None = None
    gated: bool = False
    normalisation: Normalisation = Normalisation.LAYERNORM
    post_norms: bool = False
    biases: Biases = Biases.ALL
    positions: Positions = Positions.LEARNED
    tied_embeddings: bool = True
    num_experts: int = 1
    experts_per_token: int = 1
    expert_interval: int = 1
    first_dense_layers: int = 0
    expert_feed_forward_size: int | None = None
    shared_expert_size: int | None = None
    capacity_factor: float = 1.0
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAM
    checkpointing: Checkpointing = Checkpointing.NONE
    zero_stage: int = 1
    attention: Attention | None = None
    sequence_parallel: bool | None = None
    software: Software = Software.DEEPSPEED
    name: str | None = None

    @property
    def micro_batch_or_one(self) -> int:
        """The micro-batch where one must be assumed."""
        return self.micro_batch or 1

    @property
    def fuses_attention(self) -> bool:
        """Whether attention is fused."""
        if self.attention is None:
            return FEATURES[self.software].fused_attention
        return self.attention is Attention.FUSED

    @property
    def splits_sequences(self) -> bool:
        """Whether there is sequence parallelism wherever there is tensor parallelism."""
        if self.sequence_parallel is None:
            return FEATURES[self.software].sequence_parallel
        return self.sequence_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator (or cluster of operators) of a model, in order; everything per sample but the parameters.

    `forward_flops`; `memory_traffic_bytes`: read and written in the forward pass; `activation_bytes`: kept for the
    backward pass; `output_bytes`: handed to the next operator; `tensor_parallel_bytes`: all-reduced in the forward
    pass when tensor-parallel degrees are above 1.
    """

    name: str
    parameters: int
    forward_flops: float
    memory_traffic_bytes: float
    activation_bytes: float
    output_bytes: float
    tensor_parallel_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorModel:
    """A model given by its operators, such as a Wide-ResNet; the training fields are those of `Transformer`."""

    operators: tuple[Operator, ...]
    global_batch: int
    micro_batch: int | None = None
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAM
    zero_stage: int = 1
    software: Software = Software.DEEPSPEED
    name: str | None = None


JobModel = Transformer | OperatorModel
