"""Models by name: `llama2-13b`, `gpt2-350m`, `qwen2-0.5b`, `bert-1.3b`, `moe-2.4b`, `wide-resnet-1b`.

Shapes, by family:

gpt2         350M to 76B: `gpt_specs` of Alpa's benchmark; from 39B on, and 175B, as in Narayanan et al. 2021 (Megatron)
llama        Touvron et al. 2023, table 2
llama2       Touvron et al. 2023 b, and the configuration files of the released weights
qwen2        Yang et al. 2024, table 1, and the configuration files of the released weights
bert         what Arena's artifact calls so: Alpa's GPT shapes, sequences of 1,024, fp16
moe          `moe_specs` of Alpa's benchmark (GShard, two experts per token in every second layer), fp16
wide-resnet  `wresnet_specs` of Alpa's benchmark, fp32, SGD; as operators (`models.wide_resnet`)

The sequence length is the one of pre-training, for gpt2 the benchmark's; 175B has the 2,048 of GPT-3.
"""

import difflib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from models.transformer import (
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
from models.wide_resnet import wide_resnet_operators
from stowplan.errors import InputError

# hidden_size, num_layers, num_heads
_GPT = MappingProxyType(
    {
        "350m": (1024, 24, 16),
        "760m": (1536, 24, 16),
        "1.3b": (2048, 24, 32),
        "2.6b": (2560, 32, 32),
        "6.7b": (4096, 32, 32),
        "15b": (5120, 48, 40),
        "39b": (8192, 48, 64),
        "76b": (10240, 60, 80),
        "175b": (12288, 96, 96),
    }
)
_BERT = ("760m", "1.3b", "2.6b", "6.7b", "15b", "39b")
# hidden_size, num_layers, num_experts
_MOE = MappingProxyType(
    {
        "690m": (768, 8, 16),
        "1.3b": (768, 16, 16),
        "2.4b": (1024, 16, 16),
        "10b": (1536, 16, 32),
        "27b": (2048, 16, 48),
        "70b": (2048, 32, 64),
    }
)
# hidden_size, num_layers, num_heads, num_kv_heads, feed_forward_size, sequence_length
_LLAMA = MappingProxyType(
    {
        "llama-7b": (4096, 32, 32, 32, 11008, 2048),
        "llama-13b": (5120, 40, 40, 40, 13824, 2048),
        "llama-30b": (6656, 60, 52, 52, 17920, 2048),
        "llama-65b": (8192, 80, 64, 64, 22016, 2048),
        "llama2-7b": (4096, 32, 32, 32, 11008, 4096),
        "llama2-13b": (5120, 40, 40, 40, 13824, 4096),
        "llama2-70b": (8192, 80, 64, 8, 28672, 4096),
    }
)
# hidden_size, num_layers, num_heads, num_kv_heads, feed_forward_size, vocabulary_size, tied_embeddings
_QWEN2 = MappingProxyType(
    {
        "qwen2-0.5b": (896, 24, 14, 2, 4864, 151936, True),
        "qwen2-1.5b": (1536, 28, 12, 2, 8960, 151936, True),
        "qwen2-7b": (3584, 28, 28, 4, 18944, 152064, False),
        "qwen2-72b": (8192, 80, 64, 8, 29568, 152064, False),
    }
)
# depth, channels, width_factor
_WIDE_RESNET = MappingProxyType(
    {
        "wide-resnet-500m": (50, 224, 2),
        "wide-resnet-1b": (50, 320, 2),
        "wide-resnet-2b": (50, 448, 2),
        "wide-resnet-4b": (50, 640, 2),
        "wide-resnet-6.8b": (50, 320, 16),
        "wide-resnet-13b": (101, 320, 16),
    }
)


def _gpt(size: str, sequence_length: int) -> Transformer:
    hidden_size, num_layers, num_heads = _GPT[size]
    return Transformer(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        vocabulary_size=51200,
        sequence_length=sequence_length,
        global_batch=1,
    )


def _moe(size: str) -> Transformer:
    hidden_size, num_layers, num_experts = _MOE[size]
    return Transformer(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=16,
        feed_forward_size=8 * hidden_size,
        num_experts=num_experts,
        experts_per_token=2,
        expert_interval=2,
        vocabulary_size=32000,
        sequence_length=1024,
        global_batch=1,
        precision=Precision.FP16,
    )


def _llama(name: str) -> Transformer:
    hidden_size, num_layers, num_heads, num_kv_heads, feed_forward_size, sequence_length = _LLAMA[name]
    return Transformer(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        feed_forward_size=feed_forward_size,
        gated=True,
        normalisation=Normalisation.RMSNORM,
        biases=Biases.NONE,
        positions=Positions.ROTARY,
        tied_embeddings=False,
        vocabulary_size=32000,
        sequence_length=sequence_length,
        global_batch=1,
    )


def _qwen2(name: str) -> Transformer:
    hidden_size, num_layers, num_heads, num_kv_heads, feed_forward_size, vocabulary_size, tied = _QWEN2[name]
    return Transformer(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        feed_forward_size=feed_forward_size,
        gated=True,
        normalisation=Normalisation.RMSNORM,
        biases=Biases.QKV,
        positions=Positions.ROTARY,
        tied_embeddings=tied,
        vocabulary_size=vocabulary_size,
        sequence_length=4096,
        global_batch=1,
    )


_TRANSFORMERS: Mapping[str, Transformer] = MappingProxyType(
    {
        **{f"gpt2-{size}": _gpt(size, 2048 if size == "175b" else 1024) for size in _GPT},
        **{name: _llama(name) for name in _LLAMA},
        **{name: _qwen2(name) for name in _QWEN2},
        **{f"bert-{size}": replace(_gpt(size, 1024), precision=Precision.FP16) for size in _BERT},
        **{f"moe-{size}": _moe(size) for size in _MOE},
    }
)
_NAMES = (*_TRANSFORMERS, *_WIDE_RESNET)


def _key(name: str) -> str:
    """Name without case and separators; the point of `1.3b` stays."""
    return "".join(character for character in name.lower() if character.isalnum() or character == ".")


_BY_KEY = {_key(name): name for name in _NAMES}


def model_names() -> tuple[str, ...]:
    """All names, family by family from small to large."""
    return _NAMES


def find_model(
    name: str,
    *,
    global_batch: int,
    micro_batch: int | None = None,
    sequence_length: int | None = None,
    precision: Precision | None = None,
    optimizer: Optimizer | None = None,
    checkpointing: Checkpointing | None = None,
    zero_stage: int | None = None,
) -> JobModel:
    """Model of this name, whatever the case and separators; None leaves what the catalogue says.

    Raises
    ------
    InputError
        For an unknown name (the detail gives near matches and all names), and for a sequence length or checkpointing
        of a model that has no sequences.
    """
    known = _BY_KEY.get(_key(name))
    if known is None:
        near = difflib.get_close_matches(name.lower(), _NAMES, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise InputError(f"no model {name!r} in the catalogue; {hint}known: {', '.join(_NAMES)}")
    sequences = {"sequence_length": sequence_length, "checkpointing": checkpointing}
    fields: dict[str, Any] = {
        "global_batch": global_batch,
        "micro_batch": micro_batch,
        "precision": precision,
        "optimizer": optimizer,
        "zero_stage": zero_stage,
    }
    if known in _TRANSFORMERS:
        return replace(_TRANSFORMERS[known], name=known, **_given(fields | sequences))
    useless = [field for field, value in sequences.items() if value not in (None, Checkpointing.NONE)]
    if useless:
        raise InputError(f"{known} is a list of operators and has no {' and no '.join(useless)}; leave it out")
    return replace(_wide_resnet(known, precision or Precision.FP32), **_given(fields))


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


def _wide_resnet(name: str, precision: Precision) -> OperatorModel:
    """Operators of 224 x 224 images and 1,024 classes."""
    depth, channels, width_factor = _WIDE_RESNET[name]
    return OperatorModel(
        operators=wide_resnet_operators(
            depth=depth,
            channels=channels,
            width_factor=width_factor,
            image_size=224,
            num_classes=1024,
            number_bytes=precision.number_bytes,
        ),
        global_batch=1,
        precision=precision,
        optimizer=Optimizer.SGD,
        name=name,
    )
