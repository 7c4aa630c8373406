r"""What a model costs, derived from its description.

Symbols: s tokens of a sequence, h hidden size, q = heads x head size, v = 2 x KV heads x head size, a heads, f size of
the feed-forward part, m its matrices (2, gated 3), E experts of which t work on a token (both 1 in a dense layer),
V vocabulary, e bytes of a number (2, fp32: 4). All per sequence but the parameters.

Layer
    parameters    h q + h v + q h + E m h f [+ h E router] + 2 norms (2 h each, RMS norm h)
                  + biases: q + v (all, qkv), h + E ((m - 1) f + h) (all)
    FLOPs         2 s (h q + h v + q h + t m h f [+ h E]) + 4 s^2 q, 2 m n k for every matrix product. The second term
                  is attention itself, s x s scores and their product with the values; a causal mask does not halve it.
    traffic       inputs and outputs of every operation: norms, projections, attention, feed-forward, residual sums
    all-reduces   2 s h e: one behind attention, one behind the feed-forward part (Megatron)
    kept          Korthikanti et al. 2022, "Reducing activation recomputation", table 2, without sequence parallelism
                  and without the scores:
      partitioned e s (2 q + v + 2 t f), gated 4 t f in place of 2 t f
      replicated  e s 4 h + 2 s h: inputs of norms, projections, feed-forward part, and two dropout masks;
                  mixtures of experts e s (2 t h + E) more, for what is sent to the experts and comes back
                  For GPT in 16 bits: s h (24 / tp + 10).
                  In fp8 inputs of products are kept in 8 bits, those of gated units as gate and product alone, and
                  there is no dropout: 3 t f (1 t f) and 4 h bytes a token less
    The replicated part is C_np = 5 times the boundary activation, Suika's constant for GPT2 and Qwen2 (appendix A.4.2),
    so that the masks stay in for models that have no dropout. For LLaMA2 Suika says 7: RMS norms that keep copies in
    fp32; here norms are fused and keep their input.
Embedding         V h parameters, and s h for learned positions; keeps a dropout mask
Head              last norm, and V h parameters where it is not tied to the embedding; 2 s h V FLOPs; keeps the inputs
                  of norm and product (2 e s h, replicated) and the logits in fp32 (4 s V, partitioned).
                  Its all-reduce and that of the embedding are neglected beside 2 L others.

Attention that is fused neither keeps nor moves the s x s scores. Plain attention keeps (2 e + 1) a s^2 bytes of them,
partitioned, and moves 6 e a s^2. Checkpointing `selective` repeats what costs little for what it keeps. Where attention
is plain, that is attention itself (Korthikanti et al. 2022): no scores are kept. Where it is fused, all operations but
products and attention (norms, activations): what products and attention give is kept, e s (2 q + v + t (m - 1) f)
partitioned and 2 e s h replicated. `full` keeps the input of every layer only, e s h, and repeats layers and
all-reduces; what the one layer keeps that is being repeated is there beside it. backward_ratio = 2 + share of the
forward FLOPs that is repeated.

A tied head uses the weights of the embedding: FLOPs, no parameters. In a pipeline the last stage holds a copy of these
V h weights (`tied_parameters`), which `models.performance.iteration.shares` adds to it.

State per parameter: weights e; gradients 2 in fp16, and 4 in bf16 and fp8, since Megatron accumulates those in fp32,
but 2 in fp8 with Megatron-Core, whose recipes do not;
optimiser 8 for Adam's moments, 4 for SGD's momentum, and 4 for the fp32 copy of 16-bit weights. fp32: 4 + 4 + 8 or 4.

Operator lists: an operator is a layer. Its output counts as replicated (the result of an all-reduce is whole on every
GPU), what it keeps beyond that as partitioned.

The peak is that of the precision itself: fp32 does not mean TF32. (Wide-ResNets of Arena's artifact, which are in fp32,
reach 9 TFLOP/s on an A100: 44 % of its FP32 peak, 6 % of TF32.)
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from models.dimensions import Dimensions
from models.performance.iteration.kernels import LayerKernels, Product
from models.performance.iteration.profile import LayerCost, ModelProfile
from models.software import Software
from models.transformer import (
    Biases,
    Checkpointing,
    JobModel,
    Normalisation,
    Operator,
    OperatorModel,
    Optimizer,
    Positions,
    Precision,
    Transformer,
)
from stowplan.errors import Issue, pointer_of, raise_for_errors

_GRADIENT_BYTES = MappingProxyType({Precision.FP32: 4.0, Precision.BF16: 4.0, Precision.FP16: 2.0, Precision.FP8: 4.0})
_MOMENT_BYTES = MappingProxyType({Optimizer.ADAM: 8.0, Optimizer.SGD: 4.0})
# Planners keep tables by the samples that a replica may have; the largest batches known are of some ten thousands.
MAX_GLOBAL_BATCH = 2**20

_COUNTS = ("global_batch", "micro_batch")
_SHAPE = (
    "num_layers",
    "hidden_size",
    "vocabulary_size",
    "sequence_length",
    "num_heads",
    "num_kv_heads",
    "head_size",
    "feed_forward_size",
    "num_experts",
    "experts_per_token",
    "expert_interval",
)
_OPERATOR_COSTS = (
    "parameters",
    "forward_flops",
    "memory_traffic_bytes",
    "activation_bytes",
    "output_bytes",
    "tensor_parallel_bytes",
)


@lru_cache(maxsize=256)
def profile_of(model: JobModel) -> ModelProfile:
    """Costs of a model, layer by layer (formulas: module docstring).

    Raises
    ------
    InputError
        When the description is not that of a model; the issues' pointers are relative to it.
    """
    raise_for_errors(model_issues(model, ""), "model")
    return _transformer_profile(model) if isinstance(model, Transformer) else _operator_profile(model)


def parameter_count(profile: ModelProfile) -> float:
    """Parameters of the whole model, embedding and head included."""
    return sum(part.parameters for part in (profile.embedding, *profile.layers, profile.head))


def model_issues(model: JobModel, pointer: str) -> list[Issue]:
    """Everything that is wrong with a description, below `pointer`."""
    issues = [
        _issue("not_positive", f"{pointer}/{field}", f"is {value}; must be at least 1")
        for field in (*_COUNTS, *(_SHAPE if isinstance(model, Transformer) else ()))
        if (value := getattr(model, field)) is not None and value < 1
    ]
    if not 0 <= model.zero_stage <= 3:
        issues.append(_issue("out_of_range", f"{pointer}/zero_stage", f"is {model.zero_stage}; one of 0, 1, 2, 3"))
    if model.global_batch > MAX_GLOBAL_BATCH:
        detail = f"is {model.global_batch}; at most {MAX_GLOBAL_BATCH} sequences (samples) per optimiser step"
        issues.append(_issue("out_of_range", f"{pointer}/global_batch", detail))
    if issues:
        return issues
    if model.micro_batch is not None and model.global_batch % model.micro_batch:
        detail = f"is {model.micro_batch}, which does not divide global_batch {model.global_batch}"
        issues.append(_issue("batch_not_divisible", f"{pointer}/micro_batch", detail))
    if isinstance(model, Transformer):
        return [*issues, *_shape_issues(model, pointer)]
    return [*issues, *_operator_issues(model, pointer)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Sizes of a model; `q`, `v` and `e` as in the module docstring."""

    heads: int
    kv_heads: int
    q: int
    v: int
    f: int
    matrices: int
    e: int
    norm: int

    @classmethod
    def of(cls, model: Transformer) -> "_Sizes":
        sizes = Dimensions.of(model)
        return cls(
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            q=sizes.heads * sizes.head,
            v=2 * sizes.kv_heads * sizes.head,
            f=sizes.feed_forward,
            matrices=3 if model.gated else 2,
            e=model.precision.number_bytes,
            norm=model.hidden_size * (2 if model.normalisation is Normalisation.LAYERNORM else 1),
        )


def _transformer_profile(model: Transformer) -> ModelProfile:
    sizes = _Sizes.of(model)
    dense = _layer(model, sizes, num_experts=1, active=1)
    mixture = _layer(model, sizes, num_experts=model.num_experts, active=model.experts_per_token)
    # The last of every `expert_interval` layers, as GShard alternates from a dense one on.
    layers = tuple(
        mixture if model.num_experts > 1 and (k + 1) % model.expert_interval == 0 else dense
        for k in range(model.num_layers)
    )
    head = _head(model, sizes)
    working = _working_bytes(model, sizes)
    in_layers = sum(layer.forward_flops for layer in layers)
    repeated = {
        Checkpointing.NONE: 0.0,
        Checkpointing.SELECTIVE: 0.0 if model.fuses_attention else model.num_layers * _attention_flops(model, sizes),
        Checkpointing.FULL: in_layers,
    }[model.checkpointing]
    return ModelProfile(
        name=model.name or "transformer",
        layers=layers,
        embedding=_embedding(model, sizes),
        head=head,
        global_batch=model.global_batch,
        micro_batch=model.micro_batch,
        zero_stage=model.zero_stage,
        flops_precision=model.precision.value,
        parameter_bytes=float(sizes.e),
        gradient_bytes=_gradient_bytes(model),
        optimizer_bytes=_optimizer_bytes(model),
        backward_ratio=2.0 + repeated / (in_layers + head.forward_flops),
        backward_all_reduces=2.0 if model.checkpointing is Checkpointing.FULL else 1.0,
        tensor_units=(
            ("attention heads", sizes.heads),
            ("KV heads", sizes.kv_heads),
            ("feed-forward size", sizes.f),
        ),
        tied_parameters=float(model.vocabulary_size * model.hidden_size) if model.tied_embeddings else 0.0,
        sequence_parallel=model.splits_sequences,
        working_partitioned_bytes=working[0],
        working_replicated_bytes=working[1],
        software=model.software,
    )


def _layer(model: Transformer, sizes: _Sizes, *, num_experts: int, active: int) -> LayerCost:
    """One block, with `active` of `num_experts` feed-forward parts at work on a token."""
    h, s = model.hidden_size, model.sequence_length
    projections = h * sizes.q + h * sizes.v + sizes.q * h
    expert = sizes.matrices * h * sizes.f
    router = h * num_experts if num_experts > 1 else 0
    partitioned, replicated = _kept_bytes(model, sizes, num_experts=num_experts, active=active)
    return LayerCost(
        parameters=float(
            projections + num_experts * expert + router + 2 * sizes.norm + _bias_parameters(model, sizes, num_experts)
        ),
        forward_flops=2.0 * s * (projections + active * expert + router) + _attention_flops(model, sizes),
        memory_traffic_bytes=_traffic_bytes(model, sizes, num_experts=num_experts, active=active),
        tensor_parallel_bytes=2.0 * sizes.e * s * h,
        boundary_bytes=float(sizes.e * s * h),
        partitioned_activation_bytes=partitioned,
        replicated_activation_bytes=replicated,
        kernels=_kernels(model, sizes, num_experts=num_experts, active=active),
    )


def _kernels(model: Transformer, sizes: _Sizes, *, num_experts: int, active: int) -> LayerKernels:
    """What a block computes with: projections, feed-forward parts, attention, and all else, which moves memory."""
    h, s, e = model.hidden_size, model.sequence_length, sizes.e
    hidden = (sizes.matrices - 1) * sizes.f
    routed = s * active / num_experts
    partitioned, replicated = _moved_numbers(model, sizes, num_experts=num_experts, active=active)
    return LayerKernels(
        products=(
            Product(inputs=h, outputs=sizes.q + sizes.v, tokens=s, by_outputs=True),
            Product(inputs=sizes.q, outputs=h, tokens=s, by_outputs=False),
            Product(inputs=h, outputs=hidden, tokens=routed, by_outputs=True, count=num_experts),
            Product(inputs=sizes.f, outputs=h, tokens=routed, by_outputs=False, count=num_experts),
        ),
        attention_flops=_attention_flops(model, sizes),
        fused=model.fuses_attention,
        aligned=(sizes.q // sizes.heads) % 8 == 0,
        scores_bytes=0.0 if model.fuses_attention else 6.0 * e * sizes.heads * s**2,
        partitioned_bytes=float(e * s * partitioned),
        replicated_bytes=float(e * s * replicated),
        number_bytes=float(e),
        repeats_layer=model.checkpointing is Checkpointing.FULL,
        repeats_attention=model.checkpointing is Checkpointing.SELECTIVE and not model.fuses_attention,
        repeats_moves=model.checkpointing is Checkpointing.SELECTIVE and model.fuses_attention,
    )


def _attention_flops(model: Transformer, sizes: _Sizes) -> float:
    """Scores and their product with the values; the projections around them are not part of it."""
    return 4.0 * model.sequence_length**2 * sizes.q


def _bias_parameters(model: Transformer, sizes: _Sizes, num_experts: int) -> int:
    if model.biases is Biases.NONE:
        return 0
    if model.biases is Biases.QKV:
        return sizes.q + sizes.v
    h = model.hidden_size
    return sizes.q + sizes.v + h + num_experts * ((sizes.matrices - 1) * sizes.f + h)


def _traffic_bytes(model: Transformer, sizes: _Sizes, *, num_experts: int, active: int) -> float:
    """Activations read and written."""
    partitioned, replicated = _moved_numbers(model, sizes, num_experts=num_experts, active=active)
    numbers = partitioned + replicated
    if not model.fuses_attention:
        numbers += 6 * sizes.heads * model.sequence_length
    return float(sizes.e * model.sequence_length * numbers)


def _moved_numbers(model: Transformer, sizes: _Sizes, *, num_experts: int, active: int) -> tuple[int, int]:
    """Numbers that a token reads and writes, operation by operation, without scores: partitioned, replicated."""
    h = model.hidden_size
    hidden = (sizes.matrices - 1) * sizes.f
    norms_and_residuals = 2 * 2 * h + 2 * 3 * h
    attention = (sizes.q + sizes.v) + (sizes.q + sizes.v) + sizes.q + sizes.q
    expert = hidden + (hidden + sizes.f) + sizes.f
    routing = (h + num_experts) + 2 * (h + active * h) if num_experts > 1 else 0
    ends = (h + h) + active * (h + h)
    return attention + active * expert, norms_and_residuals + ends + routing


def _kept_bytes(model: Transformer, sizes: _Sizes, *, num_experts: int, active: int) -> tuple[float, float]:
    """Activations of a layer kept for the backward pass: partitioned, replicated."""
    if model.checkpointing is Checkpointing.FULL:
        return 0.0, float(sizes.e * model.sequence_length * model.hidden_size)
    if model.checkpointing is Checkpointing.SELECTIVE and model.fuses_attention:
        given = 2 * sizes.q + sizes.v + active * (sizes.matrices - 1) * sizes.f
        unit = sizes.e * model.sequence_length
        return float(unit * given), float(
            unit * (2 * model.hidden_size + (active * model.hidden_size if num_experts > 1 else 0))
        )
    return _all_kept_bytes(model, sizes, num_experts=num_experts, active=active)


def _all_kept_bytes(model: Transformer, sizes: _Sizes, *, num_experts: int, active: int) -> tuple[float, float]:
    """The same where no layer is repeated."""
    h, s, e = model.hidden_size, model.sequence_length, sizes.e
    partitioned = e * s * (2 * sizes.q + sizes.v + active * (4 if model.gated else 2) * sizes.f)
    if not model.fuses_attention and model.checkpointing is not Checkpointing.SELECTIVE:
        partitioned += (2 * e + 1) * sizes.heads * s**2
    replicated = e * s * 4 * h + 2 * s * h
    if model.precision is Precision.FP8:
        partitioned -= s * active * (3 if model.gated else 1) * sizes.f
        replicated -= 4 * s * h
    if num_experts > 1:
        replicated += e * s * (2 * active * h + num_experts)
    return float(partitioned), float(replicated)


def _working_bytes(model: Transformer, sizes: _Sizes) -> tuple[float, float]:
    """Activations of the layer that is being repeated, the largest one: partitioned, replicated."""
    if model.checkpointing is not Checkpointing.FULL:
        return 0.0, 0.0
    return _all_kept_bytes(
        model, sizes, num_experts=model.num_experts, active=model.experts_per_token if model.num_experts > 1 else 1
    )


def _embedding(model: Transformer, sizes: _Sizes) -> LayerCost:
    h, s = model.hidden_size, model.sequence_length
    learned = model.positions is Positions.LEARNED
    return LayerCost(
        parameters=float(model.vocabulary_size * h + (s * h if learned else 0)),
        memory_traffic_bytes=float(sizes.e * s * (3 * h if learned else 2 * h)),
        replicated_activation_bytes=float(s * h),
    )


def _head(model: Transformer, sizes: _Sizes) -> LayerCost:
    h, s, vocabulary = model.hidden_size, model.sequence_length, model.vocabulary_size
    return LayerCost(
        parameters=float(sizes.norm + (0 if model.tied_embeddings else vocabulary * h)),
        forward_flops=2.0 * s * h * vocabulary,
        # Norm, product, and a softmax that reads and writes fp32 logits.
        memory_traffic_bytes=float(sizes.e * s * (3 * h + vocabulary) + 8 * s * vocabulary),
        partitioned_activation_bytes=float(4 * s * vocabulary),
        replicated_activation_bytes=float(2 * sizes.e * s * h),
        kernels=LayerKernels(
            products=(Product(inputs=h, outputs=vocabulary, tokens=s, by_outputs=True),),
            partitioned_bytes=float((sizes.e + 8) * s * vocabulary),
            replicated_bytes=float(3 * sizes.e * s * h),
            number_bytes=float(sizes.e),
        ),
    )


def _operator_profile(model: OperatorModel) -> ModelProfile:
    return ModelProfile(
        name=model.name or "operators",
        layers=tuple(_operator_cost(operator) for operator in model.operators),
        embedding=LayerCost(),
        head=LayerCost(),
        global_batch=model.global_batch,
        micro_batch=model.micro_batch,
        zero_stage=model.zero_stage,
        flops_precision=model.precision.value,
        parameter_bytes=float(model.precision.number_bytes),
        gradient_bytes=_GRADIENT_BYTES[model.precision],
        optimizer_bytes=_optimizer_bytes(model),
        backward_ratio=2.0,
        software=model.software,
    )


def _operator_cost(operator: Operator) -> LayerCost:
    replicated = min(operator.output_bytes, operator.activation_bytes)
    return LayerCost(
        parameters=float(operator.parameters),
        forward_flops=operator.forward_flops,
        memory_traffic_bytes=operator.memory_traffic_bytes,
        tensor_parallel_bytes=operator.tensor_parallel_bytes,
        boundary_bytes=operator.output_bytes,
        partitioned_activation_bytes=operator.activation_bytes - replicated,
        replicated_activation_bytes=replicated,
    )


def _gradient_bytes(model: JobModel) -> float:
    if model.precision is Precision.FP8 and model.software is Software.MEGATRON_CORE:
        return 2.0
    return _GRADIENT_BYTES[model.precision]


def _optimizer_bytes(model: JobModel) -> float:
    copy = 0.0 if model.precision is Precision.FP32 else 4.0
    return _MOMENT_BYTES[model.optimizer] + copy


def _shape_issues(model: Transformer, pointer: str) -> Iterator[Issue]:
    """Faults of a transformer whose counts are positive."""
    heads = Dimensions.of(model).heads
    if model.head_size is None and model.hidden_size % heads:
        near = _nearest_divisor(model.hidden_size, heads)
        detail = f"are {heads}, which do not divide hidden_size {model.hidden_size}; {near} would, or give head_size"
        yield _issue("heads_not_divisible", f"{pointer}/num_heads", detail)
    if model.num_kv_heads is not None and heads % model.num_kv_heads:
        near = _nearest_divisor(heads, model.num_kv_heads)
        detail = f"are {model.num_kv_heads}, which do not divide the {heads} attention heads; {near} would"
        yield _issue("heads_not_divisible", f"{pointer}/num_kv_heads", detail)
    if model.experts_per_token > model.num_experts:
        detail = f"is {model.experts_per_token}; at most num_experts, {model.num_experts}"
        yield _issue("out_of_range", f"{pointer}/experts_per_token", detail)
    if model.num_experts > 1 and model.expert_interval > model.num_layers:
        detail = (
            f"is {model.expert_interval}; at most num_layers, {model.num_layers}, or there is no layer with experts"
        )
        yield _issue("out_of_range", f"{pointer}/expert_interval", detail)


def _operator_issues(model: OperatorModel, pointer: str) -> Iterator[Issue]:
    if not model.operators:
        yield _issue("no_operators", f"{pointer}/operators", "the model has no operators; at least 1")
        return
    legal = True
    for k, operator in enumerate(model.operators):
        for field in _OPERATOR_COSTS:
            value = getattr(operator, field)
            if not (math.isfinite(value) and value >= 0):
                legal = False
                where = f"{pointer}{pointer_of('operators', k, field)}"
                yield _issue("negative", where, f"is {value}; must be finite and at least 0")
    if legal and not any(operator.forward_flops > 0 for operator in model.operators):
        yield _issue("no_computation", f"{pointer}/operators", "no operator has forward_flops above 0")


def _nearest_divisor(number: int, wanted: int) -> int:
    """Largest divisor of `number` up to `wanted`."""
    return next(k for k in range(min(wanted, number), 0, -1) if number % k == 0)


def _issue(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail)
