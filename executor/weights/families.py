"""Types of Hugging Face's transformers that have the architecture of the trainer's transformers: where each parameter
stands in their checkpoints, and the `config.json` beside them.

The parameters are called as `executor.trainer` calls them (`block.3.attention.query`, `.bias` behind it).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from models.dimensions import Dimensions
from models.numerics import Activation, Numerics
from models.transformer import Biases, Normalisation, Positions, Transformer

_LLAMA_LAYER = MappingProxyType(
    {
        "attention_norm": "input_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.query_norm": "self_attn.q_norm",
        "attention.key_norm": "self_attn.k_norm",
        "attention.output": "self_attn.o_proj",
        "feed_forward_norm": "post_attention_layernorm",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.up": "mlp.up_proj",
        "feed_forward.down": "mlp.down_proj",
    }
)
_GPT_NORMS = MappingProxyType({"attention_norm": "ln_1", "feed_forward_norm": "ln_2"})
_GPT_MATRICES = MappingProxyType(
    {"attention.output": "attn.c_proj", "feed_forward.up": "mlp.c_fc", "feed_forward.down": "mlp.c_proj"}
)
_GPT_ACTIVATIONS = MappingProxyType(
    {Activation.SILU: "silu", Activation.GELU: "gelu", Activation.GELU_TANH: "gelu_new"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where a parameter stands: the `part`-th of `num_parts` equal parts, along its outputs, of a tensor.

    `transposed`: the tensor is (inputs, outputs), ours always (outputs, inputs).
    """

    tensor: str
    transposed: bool = False
    part: int = 0
    num_parts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A type of transformers. `prefix`: of tensors that checkpoints without a head have without it."""

    model_type: str
    architecture: str
    prefix: str
    stored: Callable[[Transformer], Iterator[tuple[str, Stored]]]
    keys: Callable[[Transformer, Numerics], dict[str, Any]]

    def parameters(self, model: Transformer) -> Mapping[str, Stored]:
        """Where every parameter of a model stands, by its name; also of some that the model does not have."""
        return dict(self.stored(model))

    def config(self, model: Transformer, numerics: Numerics) -> dict[str, Any]:
        """The `config.json` of a model, under the names that older releases read, too."""
        common = {
            "architectures": [self.architecture],
            "model_type": self.model_type,
            "vocab_size": model.vocabulary_size,
            "tie_word_embeddings": model.tied_embeddings,
            "torch_dtype": "float32" if model.precision.number_bytes == 4 else "bfloat16",
        }
        return common | self.keys(model, numerics)


def family_of(model: Transformer, numerics: Numerics) -> Family | None:
    """The type that has this architecture; None where there is none."""
    sizes = Dimensions.of(model)
    activation = numerics.activation_of(gated=model.gated)
    gpt = (
        not model.gated
        and model.normalisation is Normalisation.LAYERNORM
        and model.positions is Positions.LEARNED
        and model.biases is Biases.ALL
        and not model.query_key_norms
        and sizes.kv_heads == sizes.heads
        and sizes.head * sizes.heads == sizes.hidden
    )
    if gpt:
        return _GPT2
    rotary = (
        model.gated
        and activation is Activation.SILU
        and model.normalisation is Normalisation.RMSNORM
        and model.positions is Positions.ROTARY
    )
    return _ROTARY.get((model.biases, model.query_key_norms)) if rotary else None


def _llama_parameters(model: Transformer) -> Iterator[tuple[str, Stored]]:
    yield "embedding", Stored(tensor="model.embed_tokens.weight")
    for index in range(model.num_layers):
        for ours, theirs in _LLAMA_LAYER.items():
            tensor = f"model.layers.{index}.{theirs}"
            yield f"block.{index}.{ours}", Stored(tensor=f"{tensor}.weight")
            yield f"block.{index}.{ours}.bias", Stored(tensor=f"{tensor}.bias")
    yield "norm", Stored(tensor="model.norm.weight")
    yield "head", Stored(tensor="lm_head.weight")


def _llama_keys(model: Transformer, numerics: Numerics) -> dict[str, Any]:
    sizes, scaling = Dimensions.of(model), numerics.rotary_scaling
    return {
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.feed_forward,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head,
        "hidden_act": "silu",
        "max_position_embeddings": model.sequence_length,
        "rms_norm_eps": numerics.norm_epsilon,
        "rope_theta": numerics.rotary_base,
        "rope_scaling": None
        if scaling is None
        else {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_factor,
            "high_freq_factor": scaling.high_factor,
            "original_max_position_embeddings": scaling.original_length,
        },
    }


def _gpt_parameters(model: Transformer) -> Iterator[tuple[str, Stored]]:
    yield "embedding", Stored(tensor="transformer.wte.weight")
    yield "positions", Stored(tensor="transformer.wpe.weight")
    for index in range(model.num_layers):
        layer = f"transformer.h.{index}"
        for ours, theirs in _GPT_NORMS.items():
            yield from _with_bias(f"block.{index}.{ours}", f"{layer}.{theirs}")
        for part, ours in enumerate(("query", "key", "value")):
            name = f"block.{index}.attention.{ours}"
            yield from _with_bias(name, f"{layer}.attn.c_attn", transposed=True, part=part, num_parts=3)
        for ours, theirs in _GPT_MATRICES.items():
            yield from _with_bias(f"block.{index}.{ours}", f"{layer}.{theirs}", transposed=True)
    yield from _with_bias("norm", "transformer.ln_f")
    yield "head", Stored(tensor="lm_head.weight")


def _with_bias(
    name: str, tensor: str, *, transposed: bool = False, part: int = 0, num_parts: int = 1
) -> Iterator[tuple[str, Stored]]:
    yield name, Stored(tensor=f"{tensor}.weight", transposed=transposed, part=part, num_parts=num_parts)
    yield f"{name}.bias", Stored(tensor=f"{tensor}.bias", part=part, num_parts=num_parts)


def _gpt_keys(model: Transformer, numerics: Numerics) -> dict[str, Any]:
    sizes = Dimensions.of(model)
    return {
        "n_embd": sizes.hidden,
        "n_inner": sizes.feed_forward,
        "n_layer": model.num_layers,
        "n_head": sizes.heads,
        "n_positions": model.sequence_length,
        "activation_function": _GPT_ACTIVATIONS[numerics.activation_of(gated=False)],
        "layer_norm_epsilon": numerics.norm_epsilon,
        # The trainer has none.
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
    }


def _rotary(model_type: str, architecture: str) -> Family:
    return Family(
        model_type=model_type,
        architecture=architecture,
        prefix="model.",
        stored=_llama_parameters,
        keys=_llama_keys,
    )


_GPT2 = Family(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    prefix="transformer.",
    stored=_gpt_parameters,
    keys=_gpt_keys,
)
# By biases, and whether there are norms of queries and keys.
_ROTARY: Mapping[tuple[Biases, bool], Family] = MappingProxyType(
    {
        (Biases.NONE, False): _rotary("llama", "LlamaForCausalLM"),
        (Biases.QKV, False): _rotary("qwen2", "Qwen2ForCausalLM"),
        (Biases.NONE, True): _rotary("qwen3", "Qwen3ForCausalLM"),
    }
)
