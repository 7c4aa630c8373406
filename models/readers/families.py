"""The families of `config.json`: from the keys of each model type to fields of `Transformer`.

What a key is where a file leaves it out is what the configuration class of its type says (older files lack keys that
came later).
"""

from typing import Any

from models.readers.base import Reading, assumed_length, interval_of, token_count
from models.transformer import (
    MAX_EXPERTS,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_WIDTH,
    Biases,
    Normalisation,
    Positions,
)

_LOCAL = ("sliding_attention", "chunked_attention")


def llama(config: Reading) -> dict[str, Any]:
    """LLaMA 1 to 3; what most others are made of, too."""
    config.refuse_if("mlp_bias", "a bias of the feed-forward part alone", wrong=config.flag("mlp_bias"))
    config.refuse_if("attention_bias", "a bias of attention alone", wrong=config.flag("attention_bias"))
    return _gated(config)


def mistral(config: Reading) -> dict[str, Any]:
    """LLaMA, with a window in all layers of the first release."""
    return _gated(config) | {"attention_window": config.optional("sliding_window", most=MAX_TOKENS)}


def mixtral(config: Reading) -> dict[str, Any]:
    """Mistral with experts in place of every feed-forward part."""
    return mistral(config) | _experts(config, "num_local_experts", "num_experts")


def qwen2(config: Reading) -> dict[str, Any]:
    """LLaMA with biases of queries, keys and values."""
    return _gated(config) | _qwen_window(config) | {"biases": Biases.QKV}


def qwen2_moe(config: Reading) -> dict[str, Any]:
    """Qwen2 with experts and a shared one, whose gate is not counted."""
    biases = Biases.QKV if config.flag("qkv_bias", default=True) else Biases.NONE
    shared = config.number("shared_expert_intermediate_size", most=MAX_WIDTH)
    return (
        _gated(config) | _qwen_window(config) | _qwen_experts(config) | {"biases": biases, "shared_expert_size": shared}
    )


def qwen3(config: Reading) -> dict[str, Any]:
    """LLaMA with norms of queries and keys."""
    size = config.number("head_dim", most=MAX_WIDTH, default=128)
    return llama(config) | _qwen_window(config) | {"query_key_norms": True, "head_size": size}


def qwen3_moe(config: Reading) -> dict[str, Any]:
    """Qwen3 with experts."""
    return qwen3(config) | _qwen_experts(config)


def deepseek(config: Reading) -> dict[str, Any]:
    """DeepSeek-V2 and V3: latent attention, dense layers in front, shared experts."""
    fields = llama(config)
    frequency = config.number("moe_layer_freq", most=MAX_LAYERS, default=1)
    config.refuse_if("moe_layer_freq", "dense layers between those with experts", wrong=frequency != 1)
    if extra := config.number("num_nextn_predict_layers", most=MAX_LAYERS, least=0, default=0):
        config.note(f"multi-token prediction ({extra} more at the end) is not counted, neither weights nor time")
    rotary = config.number("qk_rope_head_dim", most=MAX_WIDTH)
    fields |= {
        "num_kv_heads": None,
        "head_size": config.number("qk_nope_head_dim", most=MAX_WIDTH) + rotary,
        "rotary_head_size": rotary,
        "value_head_size": config.number("v_head_dim", most=MAX_WIDTH),
        "query_rank": config.optional("q_lora_rank", most=MAX_WIDTH),
        "kv_rank": config.number("kv_lora_rank", most=MAX_WIDTH),
    }
    if config.given("n_routed_experts") is None:
        return fields
    size = config.number("moe_intermediate_size", most=MAX_WIDTH)
    shared = config.number("n_shared_experts", most=MAX_EXPERTS, least=0, default=0)
    front = config.number("first_k_dense_replace", most=MAX_LAYERS, least=0, default=0)
    fields |= _experts(config, "n_routed_experts", "num_local_experts")
    return fields | {
        "first_dense_layers": front,
        "expert_feed_forward_size": size,
        "shared_expert_size": min(shared * size, MAX_WIDTH) or None,
    }


def gemma(config: Reading) -> dict[str, Any]:
    """LLaMA with heads of 256 and tied embeddings."""
    config.refuse_if("attention_bias", "a bias of attention alone", wrong=config.flag("attention_bias"))
    fields = _gated(config, tied=True)
    return fields | {"head_size": config.number("head_dim", most=MAX_WIDTH, default=256)}


def gemma2(config: Reading) -> dict[str, Any]:
    """Gemma with norms on both sides, and a window in every second layer."""
    window = config.number("sliding_window", most=MAX_TOKENS, default=4096)
    return gemma(config) | {"post_norms": True} | _pattern(config, window, default=2)


def gemma3(config: Reading) -> dict[str, Any]:
    """Gemma 2 with norms of queries and keys, and a window in five layers of six. Files of the release leave out what
    is as in the configuration class."""
    usual = {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131072,
    }
    config.values = usual | {key: value for key, value in config.values.items() if value is not None}
    window = config.number("sliding_window", most=MAX_TOKENS, default=4096)
    every = config.number("sliding_window_pattern", "_sliding_window_pattern", most=MAX_LAYERS, default=6)
    return gemma(config) | {"post_norms": True, "query_key_norms": True} | _pattern(config, window, default=every)


def gpt_oss(config: Reading) -> dict[str, Any]:
    """Experts with biases, and a window in every second layer; sinks and the router's bias are not counted."""
    config.refuse_if(
        "attention_bias", "attention without a bias", wrong=not config.flag("attention_bias", default=True)
    )
    fields = _gated(config) | _experts(config, "num_local_experts", "num_experts") | {"biases": Biases.ALL}
    return fields | _pattern(config, config.number("sliding_window", most=MAX_TOKENS, default=128), default=2)


def llama4(config: Reading) -> dict[str, Any]:
    """Experts and a shared one of their size in every so-many-th layer; attention within chunks in three of four."""
    num_layers = config.number("num_hidden_layers", most=MAX_LAYERS)
    every = config.number("interleave_moe_layer_step", most=MAX_LAYERS, default=1)
    if listed := config.given("moe_layers"):
        with_experts = {str(k) for k in listed} if isinstance(listed, list) else set()
        found = interval_of([str(k) in with_experts for k in range(num_layers)])
        config.refuse_if("moe_layers", "experts that are not in every so-many-th layer", wrong=not found)
        every = found or 1
    size = config.number("intermediate_size", most=MAX_WIDTH)
    dense = config.number("intermediate_size_mlp", most=MAX_WIDTH)
    fields = llama(config) | _experts(config, "num_local_experts")
    chunk = config.optional("attention_chunk_size", most=MAX_TOKENS)
    step = config.number("no_rope_layer_interval", most=MAX_LAYERS, default=4)
    fields |= {"head_size": config.number("head_dim", most=MAX_WIDTH, default=128)}
    fields |= {"feed_forward_size": dense, "expert_feed_forward_size": size, "shared_expert_size": size}
    return fields | {"expert_interval": every} | ({} if chunk is None else _pattern(config, chunk, default=step))


def bloom(config: Reading) -> dict[str, Any]:
    """GPT with ALiBi; the norm behind the embedding is not counted."""
    hidden = config.number("hidden_size", "n_embed", most=MAX_WIDTH)
    length = config.number("seq_length", most=MAX_TOKENS, default=2048)
    return _gpt(config, hidden, "n_layer", "n_head") | {
        "positions": Positions.ALIBI,
        "sequence_length": assumed_length(length, config),
    }


def opt(config: Reading) -> dict[str, Any]:
    """GPT."""
    hidden = config.number("hidden_size", most=MAX_WIDTH)
    projection = config.number("word_embed_proj_dim", most=MAX_WIDTH, default=hidden)
    config.refuse_if("word_embed_proj_dim", "an embedding narrower than the layers", wrong=projection != hidden)
    config.refuse_if("enable_bias", "OPT without biases", wrong=not config.flag("enable_bias", default=True))
    config.refuse_if(
        "do_layer_norm_before", "a norm behind the sum", wrong=not config.flag("do_layer_norm_before", default=True)
    )
    return _gpt(config, hidden, "num_hidden_layers", "num_attention_heads") | {
        "feed_forward_size": config.number("ffn_dim", most=MAX_WIDTH),
        "sequence_length": config.number("max_position_embeddings", most=MAX_TOKENS),
    }


def gpt_neox(config: Reading) -> dict[str, Any]:
    """GPT with rotary positions and a head of its own."""
    config.refuse_if("attention_bias", "GPT-NeoX without biases", wrong=not config.flag("attention_bias", default=True))
    hidden = config.number("hidden_size", most=MAX_WIDTH)
    return _gpt(config, hidden, "num_hidden_layers", "num_attention_heads", tied=False) | {
        "feed_forward_size": config.number("intermediate_size", most=MAX_WIDTH),
        "positions": Positions.ROTARY,
        "sequence_length": assumed_length(config.number("max_position_embeddings", most=MAX_TOKENS), config),
    }


def gpt2(config: Reading) -> dict[str, Any]:
    """GPT."""
    config.refuse_if("add_cross_attention", "attention to an encoder", wrong=config.flag("add_cross_attention"))
    hidden = config.number("n_embd", "hidden_size", most=MAX_WIDTH)
    return _gpt(config, hidden, "n_layer", "n_head") | {
        "feed_forward_size": config.optional("n_inner", most=MAX_WIDTH),
        "sequence_length": config.number("n_positions", "n_ctx", most=MAX_TOKENS),
    }


def mpt(config: Reading) -> dict[str, Any]:
    """GPT with ALiBi or learned positions; its norms without biases are counted as with."""
    attention = config.section("attn_config")
    for key in ("qk_ln", "prefix_lm"):
        attention.refuse_if(key, "this attention", wrong=attention.flag(key))
    attention.refuse_if("kv_n_heads", "grouped queries of MPT", wrong=attention.given("kv_n_heads") is not None)
    hidden = config.number("d_model", most=MAX_WIDTH)
    wider = config.number("expansion_ratio", most=MAX_WIDTH, default=4)
    alibi = attention.flag("alibi", default=True)
    length = config.number("max_seq_len", most=MAX_TOKENS)
    return _gpt(config, hidden, "n_layers", "n_heads") | {
        "feed_forward_size": min(wider * hidden, MAX_WIDTH),
        "biases": Biases.NONE if config.flag("no_bias", default=True) else Biases.ALL,
        "positions": Positions.ALIBI if alibi else Positions.LEARNED,
        "sequence_length": assumed_length(length, config) if alibi else length,
    }


def _gated(config: Reading, *, tied: bool = False) -> dict[str, Any]:
    """What LLaMA has and those that came from it."""
    longest = config.number("max_position_embeddings", most=MAX_TOKENS, default=2048)
    scaling = config.given("rope_parameters") or config.given("rope_scaling") or {}
    original = scaling.get("original_max_position_embeddings") if isinstance(scaling, dict) else None
    heads = config.number("num_attention_heads", most=MAX_HEADS)
    return {
        "num_layers": config.number("num_hidden_layers", most=MAX_LAYERS),
        "hidden_size": config.number("hidden_size", most=MAX_WIDTH),
        "num_heads": heads,
        "num_kv_heads": config.number("num_key_value_heads", most=MAX_HEADS, default=heads),
        "head_size": config.optional("head_dim", most=MAX_WIDTH),
        "feed_forward_size": config.number("intermediate_size", most=MAX_WIDTH),
        "gated": True,
        "normalisation": Normalisation.RMSNORM,
        "biases": Biases.NONE,
        "positions": Positions.ROTARY,
        "vocabulary_size": config.number("vocab_size", most=MAX_TOKENS),
        "tied_embeddings": config.flag("tie_word_embeddings", default=tied),
        "sequence_length": assumed_length(longest, config, original if token_count(original) else None),
    }


def _gpt(config: Reading, hidden: int, layers: str, heads: str, *, tied: bool = True) -> dict[str, Any]:
    """What GPT has and those that came from it, but positions."""
    return {
        "num_layers": config.number(layers, "num_hidden_layers", most=MAX_LAYERS),
        "hidden_size": hidden,
        "num_heads": config.number(heads, "num_attention_heads", most=MAX_HEADS),
        "vocabulary_size": config.number("vocab_size", most=MAX_TOKENS),
        "tied_embeddings": config.flag("tie_word_embeddings", default=tied),
    }


def _experts(config: Reading, *names: str) -> dict[str, Any]:
    return {
        "num_experts": config.number(*names, most=MAX_EXPERTS),
        "experts_per_token": config.number("num_experts_per_tok", "experts_per_token", most=MAX_EXPERTS),
    }


def _qwen_experts(config: Reading) -> dict[str, Any]:
    num_layers = config.number("num_hidden_layers", most=MAX_LAYERS)
    dense = config.given("mlp_only_layers") or []
    front = len(dense) if isinstance(dense, list) else 0
    in_front = front < num_layers and dense == list(range(front))
    config.refuse_if("mlp_only_layers", "dense layers that are not the first ones", wrong=not in_front)
    return _experts(config, "num_experts", "num_local_experts") | {
        "first_dense_layers": front,
        "expert_interval": config.number("decoder_sparse_step", most=MAX_LAYERS, default=1),
        "expert_feed_forward_size": config.number("moe_intermediate_size", most=MAX_WIDTH),
    }


def _qwen_window(config: Reading) -> dict[str, Any]:
    """A window from some layer on, where it is used at all: only in all layers can it be described."""
    window = config.optional("sliding_window", most=MAX_TOKENS) if config.flag("use_sliding_window") else None
    if window is None:
        return {}
    if config.given("layer_types") is not None:
        return _pattern(config, window, default=1)
    first = config.number("max_window_layers", most=MAX_LAYERS, least=0, default=0)
    if first >= config.number("num_hidden_layers", most=MAX_LAYERS):
        return {}
    config.refuse_if("max_window_layers", "a window from one layer on", wrong=first > 0)
    return {"attention_window": window}


def _pattern(config: Reading, window: int, *, default: int) -> dict[str, Any]:
    """Window and interval of the layers without it, from `layer_types`, or every `default`-th."""
    types = config.given("layer_types")
    interval: int | None = default
    if types:
        known = isinstance(types, list) and all(kind in (*_LOCAL, "full_attention") for kind in types)
        interval = interval_of([kind == "full_attention" for kind in types]) if known else None
        config.refuse_if(
            "layer_types", "another pattern than full_attention in every so-many-th layer", wrong=interval is None
        )
    if interval == 1:
        return {}
    return {"attention_window": window, "global_attention_interval": interval or None}
