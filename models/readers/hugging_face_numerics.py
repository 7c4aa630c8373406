"""What `config.json` says of how a model computes (`models.numerics`), and what of it no trainer here does."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from models.numerics import Activation, Numerics, RotaryScaling
from models.readers.base import Reading
from models.transformer import MAX_TOKENS
from stowplan.errors import InputError

_ROTARY = ("llama", "mistral", "qwen2", "qwen3")
_MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe")
_GPT = ("gpt2",)
_ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "silu": Activation.SILU,
        "swish": Activation.SILU,
        "gelu": Activation.GELU,
        "gelu_new": Activation.GELU_TANH,
        "gelu_pytorch_tanh": Activation.GELU_TANH,
    }
)


def numerics_of(config: Reading, kind: str) -> Numerics | None:
    """Numerics of a configuration of type `kind`; None where `config` has got an issue."""
    known = (*_ROTARY, *_MIXTURES, *_GPT)
    if kind not in known:
        config.refuse("model_type", f"is {kind!r}; the trainer knows {', '.join(known)}", code="unsupported")
        return None
    _refuse_all(config)
    values = _gpt(config) if kind in _GPT else _rotary(config)
    if kind in _MIXTURES:
        values |= _routing(config, kind)
    if config.issues:
        return None
    try:
        return Numerics(**values)
    except InputError as error:
        config.issues.extend(error.issues)
        return None


def _refuse_all(config: Reading) -> None:
    """What changes the numbers and is in no type that is known here."""
    lacking = {
        "quantization_config": "quantised weights",
        "scale_attn_by_inverse_layer_idx": "attention scaled by layer",
        "attn_logit_softcapping": "a cap on attention logits",
        "final_logit_softcapping": "a cap on logits",
        "alt_window_layers": "windows in some layers",
    }
    for key, what in lacking.items():
        if config.given(key):
            config.refuse(key, f"is given; the trainer has no {what}", code="unsupported")


def _rotary(config: Reading) -> dict[str, Any]:
    key = config.key(("rope_parameters", "rope_scaling"))
    rope = config.section(key)
    theta = rope.real("rope_theta", default=config.real("rope_theta", default=10_000.0))
    for table in (config, rope):
        if table.real("partial_rotary_factor", default=1.0) != 1.0:
            table.refuse("partial_rotary_factor", "is below 1; the trainer turns whole heads", code="unsupported")
    return {
        "rotary_base": theta,
        "rotary_scaling": _scaling(rope),
        "norm_epsilon": config.real("rms_norm_eps", default=1e-6),
        "activation": config.word("hidden_act", _ACTIVATIONS, default="silu"),
    }


def _routing(config: Reading, kind: str) -> dict[str, Any]:
    """Mixtral has no key for it: its weights add up to 1."""
    if config.given("router_jitter_noise"):
        config.refuse("router_jitter_noise", "is given; the trainer's routers add no noise", code="unsupported")
    return {
        "normalised_routing": kind == "mixtral" or config.flag("norm_topk_prob"),
        "gated_shared_expert": kind == "qwen2_moe",
    }


def _scaling(rope: Reading) -> RotaryScaling | None:
    key = rope.key(("rope_type", "type"))
    scaled = rope.word(key, {"default": False, "llama3": True}, default="default")
    if not scaled:
        return None
    values: dict[str, Any] = {
        "factor": rope.real("factor"),
        "low_factor": rope.real("low_freq_factor"),
        "high_factor": rope.real("high_freq_factor"),
        "original_length": rope.number("original_max_position_embeddings", most=MAX_TOKENS),
    }
    if rope.issues:
        return None
    try:
        return RotaryScaling(**values)
    except InputError as error:
        rope.refuse(key, error.issues[0].detail)
        return None


def _gpt(config: Reading) -> dict[str, Any]:
    if not config.flag("scale_attn_weights", default=True):
        config.refuse("scale_attn_weights", "is false; the trainer scales attention", code="unsupported")
    return {
        "norm_epsilon": config.real("layer_norm_epsilon", default=1e-5),
        "activation": config.word("activation_function", _ACTIVATIONS, default="gelu_new"),
    }
