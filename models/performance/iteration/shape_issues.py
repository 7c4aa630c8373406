"""What is wrong with the shape of a transformer whose counts are positive."""

from collections.abc import Iterator

from models.dimensions import Dimensions
from models.transformer import Biases, Transformer
from stowplan.errors import Issue

# What has no meaning without latent attention, and without experts.
_OF_LATENTS = ("value_head_size", "rotary_head_size", "query_rank")
_OF_EXPERTS = ("first_dense_layers", "expert_feed_forward_size", "shared_expert_size")
_WITHOUT_EXPERTS = "has no meaning without experts: give num_experts"


def shape_issues(model: Transformer, pointer: str) -> Iterator[Issue]:
    """Every fault, below `pointer`."""
    heads = Dimensions.of(model).heads
    if model.head_size is None and model.hidden_size % heads:
        near = _nearest_divisor(model.hidden_size, heads)
        detail = f"are {heads}, which do not divide hidden_size {model.hidden_size}; {near} would, or give head_size"
        yield _issue("heads_not_divisible", f"{pointer}/num_heads", detail)
    if model.num_kv_heads is not None and heads % model.num_kv_heads:
        near = _nearest_divisor(heads, model.num_kv_heads)
        detail = f"are {model.num_kv_heads}, which do not divide the {heads} attention heads; {near} would"
        yield _issue("heads_not_divisible", f"{pointer}/num_kv_heads", detail)
    yield from _attention_issues(model, pointer)
    yield from _expert_issues(model, pointer)


def _attention_issues(model: Transformer, pointer: str) -> Iterator[Issue]:
    """Faults of latent attention and windows."""
    if model.global_attention_interval is not None and model.attention_window is None:
        detail = "has no meaning without attention_window: all layers attend to all tokens"
        yield _issue("useless_field", f"{pointer}/global_attention_interval", detail)
    if model.kv_rank is not None:
        yield from _latent_issues(model, pointer)
        return
    for field in _OF_LATENTS:
        if getattr(model, field) is not None:
            detail = "has no meaning without kv_rank, which makes the attention latent"
            yield _issue("useless_field", f"{pointer}/{field}", detail)


def _latent_issues(model: Transformer, pointer: str) -> Iterator[Issue]:
    sizes = Dimensions.of(model)
    for field in ("head_size", "rotary_head_size"):
        if getattr(model, field) is None:
            detail = "is missing; latent attention (kv_rank) needs head_size, and rotary_head_size of it"
            yield _issue("missing_field", f"{pointer}/{field}", detail)
    if model.rotary_head_size is not None and model.rotary_head_size >= sizes.head:
        detail = f"is {model.rotary_head_size}; less than head_size, {sizes.head}, of which it is a part"
        yield _issue("out_of_range", f"{pointer}/rotary_head_size", detail)
    if sizes.kv_heads != sizes.heads:
        detail = f"is {sizes.kv_heads}; latent attention has as many as heads, {sizes.heads}: leave it out"
        yield _issue("out_of_range", f"{pointer}/num_kv_heads", detail)
    if model.query_key_norms:
        yield _issue("useless_field", f"{pointer}/query_key_norms", "is true; latent attention has norms of its own")
    if model.biases is not Biases.NONE:
        detail = f"is {model.biases.value}; latent attention is described without biases: none"
        yield _issue("out_of_range", f"{pointer}/biases", detail)


def _expert_issues(model: Transformer, pointer: str) -> Iterator[Issue]:
    """Faults of mixtures of experts."""
    if model.num_experts == 1:
        for field in _OF_EXPERTS:
            if getattr(model, field):
                yield _issue("useless_field", f"{pointer}/{field}", _WITHOUT_EXPERTS)
        if model.capacity_factor != 1.0:
            yield _issue("useless_field", f"{pointer}/capacity_factor", _WITHOUT_EXPERTS)
    if model.experts_per_token > model.num_experts:
        detail = f"is {model.experts_per_token}; at most num_experts, {model.num_experts}"
        yield _issue("out_of_range", f"{pointer}/experts_per_token", detail)
    if model.num_experts > 1 and model.expert_interval > model.num_layers:
        detail = (
            f"is {model.expert_interval}; at most num_layers, {model.num_layers}, or there is no layer with experts"
        )
        yield _issue("out_of_range", f"{pointer}/expert_interval", detail)
        return
    last = model.num_layers // model.expert_interval * model.expert_interval
    if model.num_experts > 1 and model.first_dense_layers >= last:
        detail = f"is {model.first_dense_layers}; less than {last}, the last layer with experts, or there is none"
        yield _issue("out_of_range", f"{pointer}/first_dense_layers", detail)


def _nearest_divisor(number: int, wanted: int) -> int:
    """Largest divisor of `number` up to `wanted`."""
    return next(k for k in range(min(wanted, number), 0, -1) if number % k == 0)


def _issue(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail)
