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
                  there is no dropout: 3 t f (1 t f) and 4 h bytes a token less; in mxfp8 with scales, t f / 32 and
                  h / 16 bytes a token
    With a capacity factor c every expert works on c times its mean share of the tokens: t c in place of t, but in the
    router. Experts are all E m h f parameters with their biases; to them, and back, go 2 e s t c h.
    Latent attention (DeepSeek-V2, section 2.1: u and c ranks of queries, keys and values, d and w sizes of a query and
    of a value, r of d rotary) has h u + u a d (h a d without u) + h (c + r) + c a (d - r + w) + a w h weights in place
    of h q + h v + q h, norms of u and c, attention of 2 s^2 a (d + w) FLOPs, keeps the latents, too (2 e s (u + c),
    replicated), and is taken to be divided by the tensor degree as a whole. An attention window n makes s^2 a
    product s min(s, n). Norms of queries and keys and norms behind attention and feed-forward part keep their inputs
    and are read and written; a shared expert is a feed-forward part of its own size beside t others.

    The replicated part is C_np = 5 times the boundary activation, Suika's constant for GPT2 and Qwen2 (appendix A.4.2),
    so that the masks stay in for models that have no dropout. For LLaMA2 Suika says 7: RMS norms that keep copies in
    fp32; here norms are fused and keep their input.
Embedding         V h parameters, and s h for learned positions; keeps a dropout mask
Head              last norm, and V h parameters where it is not tied to the embedding; 2 s h V FLOPs; keeps the inputs
                  of norm and product (2 e s h, replicated) and the logits in fp32 (4 s V, partitioned); without fused
                  kernels of the loss, as under DeepSpeed, native and torch-eager, 8 s V: with the logits as they came
                  and their gradient. Its all-reduce and that of the embedding are neglected beside 2 L others.

Attention that is fused neither keeps nor moves the s x s scores. Plain attention keeps (2 e + 1) a s^2 bytes of them,
partitioned, and moves 6 e a s^2. Checkpointing `selective` repeats what costs little for what it keeps. Where attention
is plain, that is attention itself (Korthikanti et al. 2022): no scores are kept. Where it is fused, all operations but
products and attention (norms, activations): what products and attention give is kept, e s (2 q + v + t (m - 1) f)
partitioned and 2 e s h replicated, of mixtures of experts (2 + t) e s h; the executor's trainer keeps just that (its
`recomputation`, and a test beside it). `full` keeps the input of every layer only, e s h, and repeats layers and
all-reduces; what the one layer keeps that is being repeated is there beside it. backward_ratio = 2 + share of the
forward FLOPs that is repeated.

A tied head uses the weights of the embedding: FLOPs, no parameters. In a pipeline the last stage holds a copy of these
V h weights (`tied_parameters`), which `models.performance.iteration.shares` adds to it.

State per parameter: weights e; gradients 2 in fp16, and 4 in bf16 and 8 bits, since Megatron accumulates those in
fp32, but 2 in 8 bits with Megatron-Core, whose recipes do not;
optimiser 8 for Adam's moments, 4 for SGD's momentum, and 4 for the fp32 copy of 16-bit weights. fp32: 4 + 4 + 8 or 4.

Operator lists: an operator is a layer. Its output counts as replicated (the result of an all-reduce is whole on every
GPU), what it keeps beyond that as partitioned.

The peak is that of the precision itself: fp32 does not mean TF32. (Wide-ResNets of Arena's artifact, which are in fp32,
reach 9 TFLOP/s on an A100: 44 % of its FP32 peak, 6 % of TF32.)
"""

from collections.abc import Iterator
from functools import lru_cache
from types import MappingProxyType

from models.dimensions import Dimensions
from models.performance.iteration.kernels import LayerKernels, Product
from models.performance.iteration.layer_activations import kept_bytes, moved_numbers, traffic_bytes, working_bytes
from models.performance.iteration.layer_sizes import LayerKind, LayerSizes, sizes_in
from models.performance.iteration.model_issues import model_issues
from models.performance.iteration.profile import LayerCost, ModelProfile
from models.software import FEATURES, Software
from models.transformer import (
    Biases,
    Checkpointing,
    JobModel,
    Operator,
    OperatorModel,
    Optimizer,
    Positions,
    Precision,
    Transformer,
)
from stowplan.errors import raise_for_errors

_GRADIENT_BYTES = MappingProxyType(
    {
        Precision.FP32: 4.0,
        Precision.BF16: 4.0,
        Precision.FP16: 2.0,
        Precision.FP8: 4.0,
        Precision.MXFP8: 4.0,
    }
)
_MOMENT_BYTES = MappingProxyType({Optimizer.ADAM: 8.0, Optimizer.SGD: 4.0})


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


def _transformer_profile(model: Transformer) -> ModelProfile:
    sizes = LayerSizes.of(model)
    kinds = [LayerKind.of(model, k) for k in range(model.num_layers)]
    costs = {kind: _layer_of(model, sizes, kind) for kind in set(kinds)}
    attention = {kind: _attention_flops(model, sizes_in(model, sizes, kind)) for kind in costs}
    layers = tuple(costs[kind] for kind in kinds)
    head = _head(model, sizes)
    working = [working_bytes(model, sizes_in(model, sizes, kind), *_experts(model, kind)) for kind in costs]
    in_layers = sum(layer.forward_flops for layer in layers)
    in_attention = sum(attention[kind] for kind in kinds)
    repeated = {
        Checkpointing.NONE: 0.0,
        Checkpointing.SELECTIVE: 0.0 if model.fuses_attention else in_attention,
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
            (_heads_name(model), sizes.heads),
            ("KV heads", sizes.kv_heads),
            *_feed_forward_units(model, {kind.experts for kind in kinds}),
        ),
        tied_parameters=float(model.vocabulary_size * model.hidden_size) if model.tied_embeddings else 0.0,
        sequence_parallel=model.splits_sequences,
        working_partitioned_bytes=max(partitioned for partitioned, _ in working),
        working_replicated_bytes=max(replicated for _, replicated in working),
        software=model.software,
        sequence_length=model.sequence_length,
        num_experts=model.num_experts if any(kind.experts for kind in kinds) else 1,
        checkpointing=model.checkpointing,
        # Attention has twice its products in the backward pass, and no weights.
        weight_share=0.5 * (1.0 - in_attention / (in_layers + head.forward_flops)),
    )


def _heads_name(model: Transformer) -> str:
    """What heads are called where degrees do not divide them; a number that was assumed is said to be."""
    assumed = f" (hidden_size {model.hidden_size} / 64, as num_heads is not given)"
    return "attention heads" + (assumed if model.num_heads is None else "")


def _layer_of(model: Transformer, sizes: LayerSizes, kind: LayerKind) -> LayerCost:
    num_experts, active = _experts(model, kind)
    return _layer(model, sizes_in(model, sizes, kind), num_experts=num_experts, active=active)


def _experts(model: Transformer, kind: LayerKind) -> tuple[int, float]:
    """Feed-forward parts of a layer, and how many of them work on a token, or on what fills their capacity."""
    return (model.num_experts, model.experts_per_token * model.capacity_factor) if kind.experts else (1, 1)


def _feed_forward_units(model: Transformer, experts: set[bool]) -> Iterator[tuple[str, int]]:
    """What tensor parallelism divides of the feed-forward parts: those of layers without and with experts."""
    sizes = Dimensions.of(model)
    if False in experts or sizes.expert == sizes.feed_forward:
        yield "feed-forward size", sizes.feed_forward
    if True in experts and sizes.expert != sizes.feed_forward:
        yield "expert size", sizes.expert
    if True in experts and model.shared_expert_size is not None:
        yield "shared expert size", model.shared_expert_size


def _layer(model: Transformer, sizes: LayerSizes, *, num_experts: int, active: float) -> LayerCost:
    """One block, with `active` of `num_experts` feed-forward parts at work on a token."""
    h, s = model.hidden_size, model.sequence_length
    projections = _projection_parameters(model, sizes)
    expert, shared = sizes.matrices * h * sizes.f, sizes.matrices * h * sizes.shared
    expert_biases = (sizes.matrices - 1) * sizes.f + h if model.biases is Biases.ALL else 0
    router = h * num_experts if num_experts > 1 else 0
    partitioned, replicated = kept_bytes(model, sizes, num_experts, active)
    return LayerCost(
        parameters=float(
            projections
            + num_experts * expert
            + shared
            + router
            + _norm_parameters(model, sizes)
            + _bias_parameters(model, sizes, num_experts)
        ),
        forward_flops=2.0 * s * (projections + active * expert + shared + router) + _attention_flops(model, sizes),
        memory_traffic_bytes=traffic_bytes(model, sizes, num_experts, active),
        tensor_parallel_bytes=2.0 * sizes.e * s * h,
        boundary_bytes=float(sizes.e * s * h),
        partitioned_activation_bytes=partitioned,
        replicated_activation_bytes=replicated,
        kernels=_kernels(model, sizes, num_experts=num_experts, active=active),
        expert_parameters=float(num_experts * (expert + expert_biases)) if num_experts > 1 else 0.0,
        exchanged_bytes=2.0 * sizes.e * s * active * h if num_experts > 1 else 0.0,
    )


def _kernels(model: Transformer, sizes: LayerSizes, *, num_experts: int, active: float) -> LayerKernels:
    """What a block computes with: projections, feed-forward parts, attention, and all else, which moves memory."""
    h, s, e = model.hidden_size, model.sequence_length, sizes.e
    hidden = (sizes.matrices - 1) * sizes.f
    routed = s * active / num_experts
    partitioned, replicated = moved_numbers(model, sizes, num_experts, active)
    return LayerKernels(
        products=(
            *_projections(model, sizes),
            Product(inputs=h, outputs=hidden, tokens=routed, by_outputs=True, count=num_experts),
            Product(inputs=sizes.f, outputs=h, tokens=routed, by_outputs=False, count=num_experts),
            *_shared_expert(model, sizes),
        ),
        attention_flops=_attention_flops(model, sizes),
        fused=model.fuses_attention,
        aligned=(sizes.q // sizes.heads) % 8 == 0,
        scores_bytes=0.0 if model.fuses_attention else 6.0 * e * sizes.heads * s * sizes.attended,
        partitioned_bytes=float(e * s * partitioned),
        replicated_bytes=float(e * s * replicated),
        number_bytes=float(e),
        repeats_layer=model.checkpointing is Checkpointing.FULL,
        repeats_attention=model.checkpointing is Checkpointing.SELECTIVE and not model.fuses_attention,
        repeats_moves=model.checkpointing is Checkpointing.SELECTIVE and model.fuses_attention,
        key_value_bytes=float(e * s * sizes.v),
    )


def _projections(model: Transformer, sizes: LayerSizes) -> Iterator[Product]:
    """Products before and behind attention."""
    h, s = model.hidden_size, model.sequence_length
    if model.kv_rank is None:
        yield Product(inputs=h, outputs=sizes.q + sizes.v, tokens=s, by_outputs=True)
    else:
        rotary, latent = model.rotary_head_size or 0, model.kv_rank
        queries = sizes.q if model.query_rank is None else model.query_rank
        yield Product(inputs=h, outputs=queries, tokens=s, by_outputs=True)
        if model.query_rank is not None:
            yield Product(inputs=model.query_rank, outputs=sizes.q, tokens=s, by_outputs=True)
        yield Product(inputs=h, outputs=latent + rotary, tokens=s, by_outputs=True)
        yield Product(inputs=latent, outputs=sizes.v - sizes.heads * rotary, tokens=s, by_outputs=True)
    yield Product(inputs=sizes.out, outputs=h, tokens=s, by_outputs=False)


def _shared_expert(model: Transformer, sizes: LayerSizes) -> Iterator[Product]:
    """Products of the feed-forward part that works on all tokens beside experts."""
    if sizes.shared:
        h, s, hidden = model.hidden_size, model.sequence_length, (sizes.matrices - 1) * sizes.shared
        yield Product(inputs=h, outputs=hidden, tokens=s, by_outputs=True)
        yield Product(inputs=sizes.shared, outputs=h, tokens=s, by_outputs=False)


def _attention_flops(model: Transformer, sizes: LayerSizes) -> float:
    """Scores and their product with the values; the projections around them are not part of it."""
    return 2.0 * model.sequence_length * sizes.attended * (sizes.q + sizes.out)


def _projection_parameters(model: Transformer, sizes: LayerSizes) -> int:
    """Matrices before and behind attention; FLOPs of a token are twice as many."""
    h = model.hidden_size
    if model.kv_rank is None:
        return h * sizes.q + h * sizes.v + sizes.out * h
    rotary = model.rotary_head_size or 0
    queries = h * sizes.q if model.query_rank is None else (h + sizes.q) * model.query_rank
    return queries + h * (model.kv_rank + rotary) + model.kv_rank * (sizes.v - sizes.heads * rotary) + sizes.out * h


def _norm_parameters(model: Transformer, sizes: LayerSizes) -> int:
    of_heads = 2 * Dimensions.of(model).head if model.query_key_norms else 0
    return (4 if model.post_norms else 2) * sizes.norm + of_heads + (model.query_rank or 0) + (model.kv_rank or 0)


def _bias_parameters(model: Transformer, sizes: LayerSizes, num_experts: int) -> int:
    if model.biases is Biases.NONE:
        return 0
    if model.biases is Biases.QKV:
        return sizes.q + sizes.v
    h = model.hidden_size
    shared = (sizes.matrices - 1) * sizes.shared + h if sizes.shared else 0
    return sizes.q + sizes.v + h + num_experts * ((sizes.matrices - 1) * sizes.f + h) + shared


def _embedding(model: Transformer, sizes: LayerSizes) -> LayerCost:
    h, s = model.hidden_size, model.sequence_length
    learned = model.positions is Positions.LEARNED
    return LayerCost(
        parameters=float(model.vocabulary_size * h + (s * h if learned else 0)),
        memory_traffic_bytes=float(sizes.e * s * (3 * h if learned else 2 * h)),
        replicated_activation_bytes=float(s * h),
    )


def _head(model: Transformer, sizes: LayerSizes) -> LayerCost:
    h, s, vocabulary = model.hidden_size, model.sequence_length, model.vocabulary_size
    return LayerCost(
        parameters=float(sizes.norm + (0 if model.tied_embeddings else vocabulary * h)),
        forward_flops=2.0 * s * h * vocabulary,
        # Norm, product, and a softmax that reads and writes fp32 logits.
        memory_traffic_bytes=float(sizes.e * s * (3 * h + vocabulary) + 8 * s * vocabulary),
        partitioned_activation_bytes=float((4 if FEATURES[model.software].fused_loss else 8) * s * vocabulary),
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
    if model.precision.in_8_bits and model.software is Software.MEGATRON_CORE:
        return 2.0
    return _GRADIENT_BYTES[model.precision]


def _optimizer_bytes(model: JobModel) -> float:
    copy = 0.0 if model.precision is Precision.FP32 else 4.0
    return _MOMENT_BYTES[model.optimizer] + copy
