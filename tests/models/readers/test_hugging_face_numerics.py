"""What `config.json` says of how a model computes, and what of it nobody here trains."""

from typing import Any

import pytest

from models.numerics import Activation, Numerics, RotaryScaling
from models.readers.hugging_face import describe

_SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 16,
}
_LLAMA = {"model_type": "llama", **_SIZES}
_MIXTRAL = _LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
_QWEN_MOE = _LLAMA | {
    "model_type": "qwen2_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64,
}
_GPT = {"model_type": "gpt2", "vocab_size": 96, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32}
_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_SCALED = RotaryScaling(factor=8.0, low_factor=1.0, high_factor=4.0, original_length=8192)


@pytest.mark.parametrize(
    ("config", "numerics"),
    [
        (_LLAMA, Numerics(norm_epsilon=1e-6, activation=Activation.SILU)),
        (
            # As the file of Llama 3.1 says it, and as transformers 5 writes it.
            _LLAMA | {"rope_theta": 5e5, "rope_scaling": _SCALING, "rms_norm_eps": 1e-5},
            Numerics(rotary_base=5e5, rotary_scaling=_SCALED, activation=Activation.SILU),
        ),
        (
            _LLAMA | {"rope_parameters": {"rope_theta": 5e5, **_SCALING}, "rms_norm_eps": 1e-5},
            Numerics(rotary_base=5e5, rotary_scaling=_SCALED, activation=Activation.SILU),
        ),
        (
            _LLAMA | {"model_type": "qwen3", "rope_theta": 1e6, "rope_scaling": None},
            Numerics(rotary_base=1e6, norm_epsilon=1e-6, activation=Activation.SILU),
        ),
        (_MIXTRAL, Numerics(norm_epsilon=1e-6, activation=Activation.SILU)),
        (
            _QWEN_MOE,
            Numerics(norm_epsilon=1e-6, activation=Activation.SILU, normalised_routing=False, gated_shared_expert=True),
        ),
        (
            _QWEN_MOE | {"model_type": "qwen3_moe", "norm_topk_prob": True},
            Numerics(norm_epsilon=1e-6, activation=Activation.SILU),
        ),
        (_GPT, Numerics(activation=Activation.GELU_TANH)),
        (
            _GPT | {"activation_function": "gelu", "layer_norm_epsilon": 1e-6},
            Numerics(norm_epsilon=1e-6, activation=Activation.GELU),
        ),
    ],
)
def test_constants_are_those_of_the_file(config: dict[str, Any], numerics: Numerics) -> None:
    found = describe(config)
    assert found.not_trained == ()
    assert found.numerics == numerics


@pytest.mark.parametrize(
    ("config", "pointer", "detail"),
    [
        (
            _LLAMA | {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "/rope_scaling/type",
            "known here: default, llama",
        ),
        (_LLAMA | {"rope_scaling": _SCALING | {"factor": None}}, "/rope_scaling/factor", "is missing"),
        (_LLAMA | {"rope_scaling": _SCALING | {"low_freq_factor": 9}}, "/rope_scaling/rope_type", "above low_factor"),
        (_LLAMA | {"partial_rotary_factor": 0.5}, "/partial_rotary_factor", "the trainer turns whole heads"),
        (_LLAMA | {"hidden_act": "relu"}, "/hidden_act", "known here: silu"),
        (_LLAMA | {"rms_norm_eps": "small"}, "/rms_norm_eps", "must be a number above 0"),
        (_LLAMA | {"quantization_config": {"bits": 4}}, "/quantization_config", "the trainer has no quantised weights"),
        (_GPT | {"scale_attn_by_inverse_layer_idx": True}, "/scale_attn_by_inverse_layer_idx", "scaled by layer"),
        (_MIXTRAL | {"router_jitter_noise": 0.1}, "/router_jitter_noise", "the trainer's routers add no noise"),
        (_GPT | {"scale_attn_weights": False}, "/scale_attn_weights", "the trainer scales attention"),
        (
            {**_LLAMA, "model_type": "gemma", "head_dim": 16},
            "/model_type",
            "knows llama, mistral, qwen2, qwen3, mixtral",
        ),
    ],
)
def test_what_the_trainer_has_not_is_named_and_can_be_planned(
    config: dict[str, Any], pointer: str, detail: str
) -> None:
    found = describe(config)
    assert found.numerics is None
    assert [issue.pointer for issue in found.not_trained] == [pointer]
    assert detail in found.not_trained[0].detail
    assert found.transformer().num_layers == 2
