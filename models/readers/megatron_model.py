"""The model in arguments of Megatron-LM: `megatron.py` and `nemo.py` read the arguments."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from models.readers.base import Reading, interval_of
from models.transformer import (
    MAX_EXPERTS,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_WIDTH,
    Biases,
    Checkpointing,
    Normalisation,
    Positions,
)

_POSITIONS: Mapping[str, Positions] = MappingProxyType(
    {"learned_absolute": Positions.LEARNED, "rope": Positions.ROTARY, "yarn": Positions.ROTARY}
)
_NORMS = MappingProxyType({"layernorm": Normalisation.LAYERNORM, "rmsnorm": Normalisation.RMSNORM})
# What changes the model and stands in no description here.
_UNSUPPORTED = MappingProxyType(
    {
        "hybrid-override-pattern": "a mixture of attention and state-space layers",
        "hybrid-layer-pattern": "a mixture of attention and state-space layers",
        "heterogeneous-layers-config-path": "layers of several kinds in a file",
        "heterogeneous-layers-config-encoded-json": "layers of several kinds",
        "window-size": "attention within a window",
        "window-attn-skip-freq": "attention within a window",
        "decoder-num-layers": "an encoder",
        "spec": "layers by a specification of your own",
    }
)
# The tokenizer of GPT-2, which needs no size beside it.
_GPT2_TOKENIZER = "GPT2BPETokenizer"
_GPT2_VOCABULARY = 50_257
_REPEATED = re.compile(r"\[([01])\](?:\*(\d{1,6}))?(?:\+\[([01])\](?:\*(\d{1,6}))?)?")


def model_fields(reading: Reading) -> dict[str, Any]:
    """Fields of the shape but the vocabulary; faults go to `reading`."""
    for flag, what in _UNSUPPORTED.items():
        reading.refuse_if(f"--{flag}", what, wrong=reading.given(f"--{flag}") is not None)
    num_layers = reading.number("--num-layers", most=MAX_LAYERS)
    hidden = reading.number("--hidden-size", most=MAX_WIDTH)
    gated = reading.flag("--swiglu")
    inner = reading.optional("--ffn-hidden-size", most=MAX_WIDTH)
    if gated and inner is None:
        # As Megatron has it: two thirds of four times, to a multiple of 64.
        inner = max(1, int(4 * hidden * 2 / 3 / 64) * 64)
    positions = reading.word("--position-embedding-type", _POSITIONS, default="learned_absolute")
    rotary = reading.flag("--use-rotary-position-embeddings")
    bias = reading.flag("--add-bias-linear", default=True) and not reading.flag("--disable-bias-linear")
    heads = reading.number("--num-attention-heads", most=MAX_HEADS)
    fields = {
        "num_layers": num_layers,
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": _query_groups(reading),
        "head_size": reading.optional("--kv-channels", most=MAX_WIDTH),
        "query_key_norms": reading.flag("--qk-layernorm"),
        "feed_forward_size": inner,
        "gated": gated,
        "normalisation": reading.word("--normalization", _NORMS, default="layernorm"),
        "biases": Biases.ALL if bias else Biases.QKV if reading.flag("--add-qkv-bias") else Biases.NONE,
        "positions": Positions.ROTARY if rotary else positions,
        "tied_embeddings": not reading.flag("--untie-embeddings-and-output-weights"),
        "sequence_length": reading.number("--seq-length", most=MAX_TOKENS),
    }
    if reading.flag("--multi-latent-attention"):
        fields |= _latent(reading)
    if mtp := reading.number("--mtp-num-layers", most=MAX_LAYERS, least=0, default=0):
        reading.note(f"multi-token prediction ({mtp} more at the end) is not counted, neither weights nor time")
    return fields | _experts(reading, num_layers, inner)


def padded_vocabulary(reading: Reading, tp: int) -> int:
    """Rows of the embedding: those of the tokenizer, to a multiple that divides over the tensor ranks."""
    padded = reading.optional("--padded-vocab-size", most=MAX_TOKENS)
    if padded is not None:
        return padded
    known = _GPT2_VOCABULARY if reading.given("--tokenizer-type") == _GPT2_TOKENIZER else None
    if reading.given("--vocab-size") is None and known is None:
        detail = "is missing: the tokenizer decides it, which is not read; state it here"
        reading.refuse("--vocab-size", detail, code="missing_key")
        return 1
    size = reading.number("--vocab-size", most=MAX_TOKENS, default=known)
    multiple = tp * reading.number("--make-vocab-size-divisible-by", most=MAX_TOKENS, default=128)
    return -(-size // multiple) * multiple


def _query_groups(reading: Reading) -> int | None:
    if not reading.flag("--group-query-attention"):
        return None
    return reading.number("--num-query-groups", most=MAX_HEADS, default=1)


def _latent(reading: Reading) -> dict[str, Any]:
    rotary = reading.number("--qk-pos-emb-head-dim", most=MAX_WIDTH, default=64)
    # What --qk-layernorm switches on there are the norms of the latents.
    return {
        "num_kv_heads": None,
        "query_key_norms": False,
        "head_size": reading.number("--qk-head-dim", most=MAX_WIDTH, default=128) + rotary,
        "rotary_head_size": rotary,
        "value_head_size": reading.number("--v-head-dim", most=MAX_WIDTH, default=128),
        "query_rank": reading.optional("--q-lora-rank", most=MAX_WIDTH),
        "kv_rank": reading.number("--kv-lora-rank", most=MAX_WIDTH, default=32),
    }


def _experts(reading: Reading, num_layers: int, inner: int | None) -> dict[str, Any]:
    num_experts = reading.number("--num-experts", "--num-moe-experts", most=MAX_EXPERTS, default=1)
    if num_experts == 1:
        return {}
    front, interval = _moe_layers(reading, num_layers)
    size = reading.optional("--moe-ffn-hidden-size", most=MAX_WIDTH)
    return {
        "num_experts": num_experts,
        "experts_per_token": reading.number("--moe-router-topk", most=MAX_EXPERTS, default=2),
        "expert_feed_forward_size": None if size == inner else size,
        "shared_expert_size": reading.optional("--moe-shared-expert-intermediate-size", most=MAX_WIDTH),
        "first_dense_layers": front,
        "expert_interval": interval,
    }


def _moe_layers(reading: Reading, num_layers: int) -> tuple[int, int]:
    """Dense layers in front and the interval of those with experts.

    A number N means experts in layers 0, N, 2 N ...; a list such as `([0]*3+[1]*58)` says it of every layer.
    """
    frequency = reading.given("--moe-layer-freq")
    if frequency is None or frequency == 1:
        return 0, 1
    if isinstance(frequency, int) and 1 < frequency <= num_layers and num_layers % frequency == 0:
        reading.note(f"experts in the first of every {frequency} layers are planned in the last of them")
        return 0, frequency
    marks = _marks(frequency)
    if len(marks) == num_layers and True in marks:
        front = marks.index(True)
        if all(marks[front:]):
            return front, 1
        interval = interval_of(marks)
        if interval:
            return 0, interval
    reading.refuse_if("--moe-layer-freq", "experts in such layers", wrong=True)
    return 0, 1


def _marks(frequency: object) -> list[bool]:
    """Whether each layer has experts; empty for what is not understood."""
    if isinstance(frequency, list):
        return [mark == 1 for mark in frequency]
    found = _REPEATED.fullmatch(str(frequency).replace(" ", "").strip("()"))
    if found is None:
        return []
    dense, sparse = (min(int(count or 1), MAX_LAYERS + 1) for count in (found[2], found[4]))
    return [found[1] == "1"] * dense + ([found[3] == "1"] * sparse if found[3] else [])


def recomputed_layers(reading: Reading, prefix: str) -> int | None:
    """How many layers of every virtual stage are recomputed in full, where it is not all."""
    method, granularity = (str(reading.given(f"{prefix}-{name}")) for name in ("method", "granularity"))
    if (method, granularity) != ("block", Checkpointing.FULL):
        return None
    count = reading.number(f"{prefix}-num-layers", most=MAX_LAYERS, default=1)
    text = f"{prefix}-num-layers {count}: so many layers are planned to be recomputed with --degrees file, else all"
    reading.note(text, of="checkpointing")
    return count
