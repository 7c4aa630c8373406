"""Activations of a layer of a transformer, per sequence: what is moved, and what is kept for the backward pass. The
formulas are in `architecture`; `num_experts` feed-forward parts, `active` of them at work on a token.
"""

from models.dimensions import Dimensions
from models.performance.iteration.layer_sizes import LayerSizes
from models.transformer import Checkpointing, Transformer


def traffic_bytes(model: Transformer, sizes: LayerSizes, num_experts: int, active: float) -> float:
    """Activations read and written."""
    numbers = sum(moved_numbers(model, sizes, num_experts, active))
    if not model.fuses_attention:
        numbers += 6 * sizes.heads * sizes.attended
    return float(sizes.e * model.sequence_length * numbers)


def moved_numbers(model: Transformer, sizes: LayerSizes, num_experts: int, active: float) -> tuple[float, float]:
    """Numbers that a token reads and writes, operation by operation, without scores: partitioned, replicated."""
    h = model.hidden_size
    norms_and_residuals = (4 if model.post_norms else 2) * 2 * h + 2 * 3 * h
    projections = (sizes.q + sizes.v) + sizes.out + 4 * _latent_size(model)
    attention = (sizes.q + sizes.v) + sizes.out
    if model.query_key_norms:
        attention += 2 * _normed_heads(model)
    inner = 2 * sizes.matrices * (active * sizes.f + sizes.shared)
    routing = (h + num_experts) + 2 * (h + active * h) if num_experts > 1 else 0
    ends = (2 + 2 * active + (2 if sizes.shared else 0)) * h
    return projections + attention + inner, norms_and_residuals + ends + routing


def kept_bytes(model: Transformer, sizes: LayerSizes, num_experts: int, active: float) -> tuple[float, float]:
    """Activations of a layer kept for the backward pass: partitioned, replicated."""
    unit = sizes.e * model.sequence_length
    if model.checkpointing is Checkpointing.FULL:
        return 0.0, float(unit * model.hidden_size)
    if model.checkpointing is Checkpointing.SELECTIVE and model.fuses_attention:
        inner = (sizes.matrices - 1) * (active * sizes.f + sizes.shared)
        routed = active if num_experts > 1 else 0
        given = sizes.q + sizes.out + sizes.v + inner
        return float(unit * given), float(unit * ((2 + routed) * model.hidden_size + _latent_size(model)))
    return _all_kept_bytes(model, sizes, num_experts, active)


def working_bytes(model: Transformer, sizes: LayerSizes, num_experts: int, active: float) -> tuple[float, float]:
    """Activations of a layer while it is being repeated: partitioned, replicated."""
    if model.checkpointing is not Checkpointing.FULL:
        return 0.0, 0.0
    return _all_kept_bytes(model, sizes, num_experts, active)


def _all_kept_bytes(model: Transformer, sizes: LayerSizes, num_experts: int, active: float) -> tuple[float, float]:
    """What a layer keeps that repeats nothing but scores."""
    h, s, e = model.hidden_size, model.sequence_length, sizes.e
    width = active * sizes.f + sizes.shared
    partitioned: float = e * s * (sizes.q + sizes.out + sizes.v + (4 if model.gated else 2) * width)
    if model.query_key_norms:
        partitioned += e * s * _normed_heads(model)
    if not model.fuses_attention and model.checkpointing is not Checkpointing.SELECTIVE:
        partitioned += (2 * e + 1) * sizes.heads * s * sizes.attended
    replicated: float = e * s * 4 * h + 2 * s * h + 2 * e * s * _latent_size(model)
    if model.post_norms:
        replicated += e * s * 2 * h
    if model.precision.in_8_bits:
        # Of what is left, the inputs of products: width numbers, and twice h.
        partitioned -= s * ((3 if model.gated else 1) - model.precision.scale_bytes) * width
        replicated -= s * (4 - 2 * model.precision.scale_bytes) * h
    if num_experts > 1:
        replicated += e * s * (2 * active * h + num_experts)
    return float(partitioned), float(replicated)


def _normed_heads(model: Transformer) -> int:
    """Numbers of a token that norms of queries and keys read."""
    sizes = Dimensions.of(model)
    return (sizes.heads + sizes.kv_heads) * sizes.head


def _latent_size(model: Transformer) -> int:
    """Numbers of a token that latent attention keeps before and behind their norms; 0 without it."""
    return (model.query_rank or 0) + (model.kv_rank or 0)
