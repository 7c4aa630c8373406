"""Types of Hugging Face's transformers that have the architecture of the trainer's transformers: where each parameter
stands in their checkpoints, and the `config.json` beside them.

The parameters are called as `executor.trainer` calls them (`block.3.attention.query`, `.bias` behind it).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
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
_EXPERT = MappingProxyType({"gate": "gate_proj", "up": "up_proj", "down": "down_proj"})
_MIXTRAL_EXPERT = MappingProxyType({"gate": "w1", "up": "w3", "down": "w2"})
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
class JoinedExperts:
    """Where the matrix of an expert stands in a tensor of all experts, (experts, outputs, inputs): the `part`-th of
    `num_parts` along its outputs. `transposed`: as in `Stored`.
    """

    tensor: str
    expert: int
    num_experts: int
    transposed: bool = False
    part: int = 0
    num_parts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A type of transformers. `prefix`: of tensors that checkpoints without a head have without it. `renamed`: a part
    of names of tensors, and what stands in its place where transformers 5 wrote them as it holds them.
    """

    model_type: str
    architecture: str
    prefix: str
    stored: Callable[[Transformer], Iterator[tuple[str, Stored]]]
    keys: Callable[[Transformer, Numerics], dict[str, Any]]
    renamed: tuple[str, str] | None = None

    def names(self, tensor: str) -> tuple[str, ...]:
        """All that a tensor may have."""
        names = [tensor] if self.renamed is None else [tensor, tensor.replace(*self.renamed)]
        return (*names, *(name.removeprefix(self.prefix) for name in names))

    def joined_experts(self, model: Transformer) -> Mapping[str, JoinedExperts]:
        """Where matrices of experts stand in checkpoints that have no tensors of single experts."""
        return dict(_joined(model) if model.num_experts > 1 else ())

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
    if model.num_experts > 1:
        return _mixture_of(model, numerics)
    sizes = Dimensions.of(model)
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
    return _ROTARY.get((model.biases, model.query_key_norms)) if _is_rotary(model, numerics) else None


def _is_rotary(model: Transformer, numerics: Numerics) -> bool:
    """Whether it is made as LLaMA is."""
    return (
        model.gated
        and numerics.activation_of(gated=True) is Activation.SILU
        and model.normalisation is Normalisation.RMSNORM
        and model.positions is Positions.ROTARY
    )


def _mixture_of(model: Transformer, numerics: Numerics) -> Family | None:
    if not _is_rotary(model, numerics):
        return None
    if model.shared_expert_size is not None:
        qwen2 = numerics.gated_shared_expert and model.biases is not Biases.ALL and not model.query_key_norms
        return _QWEN2_MOE if qwen2 else None
    if model.biases is not Biases.NONE:
        return None
    if model.query_key_norms:
        return _QWEN3_MOE
    everywhere = model.expert_interval == 1 and model.first_dense_layers == 0
    return _MIXTRAL if everywhere and numerics.normalised_routing else None


def _llama_parameters(model: Transformer) -> Iterator[tuple[str, Stored]]:
    yield "embedding", Stored(tensor="model.embed_tokens.weight")
    for index in range(model.num_layers):
        for ours, theirs in _LLAMA_LAYER.items():
            tensor = f"model.layers.{index}.{theirs}"
            yield f"block.{index}.{ours}", Stored(tensor=f"{tensor}.weight")
            yield f"block.{index}.{ours}.bias", Stored(tensor=f"{tensor}.bias")
    yield "norm", Stored(tensor="model.norm.weight")
    yield "head", Stored(tensor="lm_head.weight")


def _mixture_parameters(
    model: Transformer, *, part: str = "mlp", matrices: Mapping[str, str] = _EXPERT
) -> Iterator[tuple[str, Stored]]:
    yield from _llama_parameters(model)
    for index in range(model.num_layers):
        layer, theirs = f"block.{index}.feed_forward", f"model.layers.{index}.{part}"
        yield f"{layer}.router", Stored(tensor=f"{theirs}.gate.weight")
        yield f"{layer}.shared_gate", Stored(tensor=f"{theirs}.shared_expert_gate.weight")
        for ours, name in matrices.items():
            yield f"{layer}.shared.{ours}", Stored(tensor=f"{theirs}.shared_expert.{name}.weight")
            for k in range(model.num_experts):
                tensor = f"{theirs}.experts.{k}.{name}.weight"
                yield f"{layer}.experts.{ours}.{k}", Stored(tensor=tensor, transposed=ours == "down")


def _joined(model: Transformer) -> Iterator[tuple[str, JoinedExperts]]:
    for index, k in product(range(model.num_layers), range(model.num_experts)):
        ours, theirs = f"block.{index}.feed_forward.experts", f"model.layers.{index}.mlp.experts"
        both = JoinedExperts(tensor=f"{theirs}.gate_up_proj", expert=k, num_experts=model.num_experts, num_parts=2)
        yield f"{ours}.gate.{k}", both
        yield f"{ours}.up.{k}", replace(both, part=1)
        yield f"{ours}.down.{k}", replace(both, tensor=f"{theirs}.down_proj", transposed=True, num_parts=1)


def _mixtral_parameters(model: Transformer) -> Iterator[tuple[str, Stored]]:
    return _mixture_parameters(model, part="block_sparse_moe", matrices=_MIXTRAL_EXPERT)


def _mixtral_keys(model: Transformer, numerics: Numerics) -> dict[str, Any]:
    return _llama_keys(model, numerics) | {
        "intermediate_size": Dimensions.of(model).expert,
        "num_local_experts": model.num_experts,
        "num_experts_per_tok": model.experts_per_token,
        "sliding_window": None,
    }


def _qwen_keys(model: Transformer, numerics: Numerics) -> dict[str, Any]:
    shared = {"shared_expert_intermediate_size": model.shared_expert_size} if model.shared_expert_size else {}
    return _llama_keys(model, numerics) | {
        "num_experts": model.num_experts,
        "num_experts_per_tok": model.experts_per_token,
        "moe_intermediate_size": Dimensions.of(model).expert,
        "decoder_sparse_step": model.expert_interval,
        "mlp_only_layers": list(range(model.first_dense_layers)),
        "norm_topk_prob": numerics.normalised_routing,
        "qkv_bias": model.biases is Biases.QKV,
        **shared,
    }


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


def _mixture(model_type: str, architecture: str) -> Family:
    return replace(_rotary(model_type, architecture), stored=_mixture_parameters, keys=_qwen_keys)


_MIXTRAL = replace(
    _rotary("mixtral", "MixtralForCausalLM"),
    stored=_mixtral_parameters,
    keys=_mixtral_keys,
    renamed=("block_sparse_moe", "mlp"),
)
_QWEN2_MOE = _mixture("qwen2_moe", "Qwen2MoeForCausalLM")
_QWEN3_MOE = _mixture("qwen3_moe", "Qwen3MoeForCausalLM")
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
