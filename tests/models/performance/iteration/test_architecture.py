"""Costs derived from a description, against counting by hand and against published closed forms.

`TINY` (`model_scenes`) is GPT in fp16 with s = 3 tokens, h = 4, 2 heads of 2, f = 8, V = 10, L = 2:

              weights                         biases       norms
attention     3 x 4 x 4 + 4 x 4 = 64          12 + 4       8
feed-forward  4 x 8 + 8 x 4     = 64          8 + 4        8        a layer: 128 + 28 + 16 = 172
embedding     10 x 4 + 3 x 4    = 52
head          tied                                         8

FLOPs of a layer: 2 x 3 x 128 = 768, and attention 4 x 3^2 x 4 = 144; of the head 2 x 3 x 4 x 10 = 240.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.catalogue import find_model
from models.performance.iteration.architecture import parameter_count, profile_of
from models.performance.iteration.profile import LayerCost, ModelProfile
from models.software import Software
from models.transformer import (
    Attention,
    Biases,
    Checkpointing,
    Normalisation,
    Optimizer,
    Positions,
    Precision,
    Transformer,
)
from tests.models.performance.iteration.model_scenes import OPERATORS, TINY


def _forward_flops(profile: ModelProfile) -> float:
    return sum(part.forward_flops for part in (profile.embedding, *profile.layers, profile.head))


def test_tiny_by_hand() -> None:
    profile = profile_of(TINY)
    layer = profile.layers[0]
    assert layer == profile.layers[1]
    assert (layer.parameters, layer.forward_flops) == (172, 768 + 144)
    assert (profile.embedding.parameters, profile.head.parameters) == (52, 8)
    assert (profile.embedding.forward_flops, profile.head.forward_flops) == (0, 240)
    assert parameter_count(profile) == 2 * 172 + 52 + 8
    assert profile.tied_parameters == 10 * 4
    # An activation between layers has 3 x 4 numbers of 2 bytes; two of them are all-reduced.
    assert (layer.boundary_bytes, layer.tensor_parallel_bytes) == (24, 48)
    # Per token: q, k, v and the input of the projection behind them (4 x 4), f before and behind the activation.
    assert layer.partitioned_activation_bytes == 2 * 3 * (16 + 16)
    # Per token: inputs of two norms, of attention, of feed-forward, and two masks of a byte a number.
    assert layer.replicated_activation_bytes == 2 * 3 * 16 + 3 * 8
    # Per token: norms 2 x 8, sums 2 x 12, into and out of q k v 4 + 12, attention 12 + 4, projection 8,
    # feed-forward 4 + 8, 8 + 8, 8 + 4.
    assert layer.memory_traffic_bytes == 2 * 3 * (16 + 24 + 16 + 16 + 8 + 12 + 16 + 12)
    assert profile.embedding.memory_traffic_bytes == 2 * 3 * 12
    assert profile.embedding.replicated_activation_bytes == 12
    assert profile.head.memory_traffic_bytes == 2 * 3 * (12 + 10) + 8 * 3 * 10
    # Logits in fp32; as they came and their gradient, too, where the loss has no kernel of its own.
    assert profile.head.partitioned_activation_bytes == 8 * 3 * 10
    assert profile_of(replace(TINY, software=Software.TORCH)).head.partitioned_activation_bytes == 4 * 3 * 10
    assert profile.head.replicated_activation_bytes == 2 * 2 * 3 * 4
    assert profile.tensor_units == (("attention heads", 2), ("KV heads", 2), ("feed-forward size", 8))


def test_gradients_of_weights_are_those_of_products_with_weights() -> None:
    """2 x 768 + 240 FLOPs of both passes back, and 2 x 2 x 144 more for attention, which has none."""
    of_weights = 2 * 768 + 240
    assert profile_of(TINY).weight_share == pytest.approx(of_weights / (2 * of_weights + 2 * 2 * 144))


def test_grouped_queries_and_gates_by_hand() -> None:
    """4 heads of 3, so q = 12, 2 KV heads, so v = 12; 3 x 4 x 8 in the feed-forward part; norms of 4; no biases."""
    model = replace(
        TINY,
        num_heads=4,
        num_kv_heads=2,
        head_size=3,
        gated=True,
        normalisation=Normalisation.RMSNORM,
        biases=Biases.NONE,
        positions=Positions.ROTARY,
        tied_embeddings=False,
    )
    profile = profile_of(model)
    layer = profile.layers[0]
    assert layer.parameters == (48 + 48 + 48) + 96 + 8
    assert layer.forward_flops == 2 * 3 * (144 + 96) + 4 * 9 * 12
    assert layer.partitioned_activation_bytes == 2 * 3 * (12 + 12 + 12 + 4 * 8)
    assert layer.replicated_activation_bytes == profile_of(TINY).layers[0].replicated_activation_bytes
    assert layer.memory_traffic_bytes == 2 * 3 * (16 + 24 + 28 + 36 + 16 + 20 + 24 + 12)
    assert (profile.embedding.parameters, profile.head.parameters) == (40, 4 + 40)
    assert profile.tied_parameters == 0
    assert profile.tensor_units == (("attention heads", 4), ("KV heads", 2), ("feed-forward size", 8))
    assert profile_of(replace(model, biases=Biases.QKV)).layers[0].parameters == layer.parameters + 24


def test_defaults_of_the_shape() -> None:
    """Heads of 64, a feed-forward part four times as wide; a model narrower than a head has one."""
    model = Transformer(num_layers=1, hidden_size=256, vocabulary_size=8, sequence_length=2, global_batch=1)
    heads = "attention heads (hidden_size 256 / 64, as num_heads is not given)"
    assert profile_of(model).tensor_units == ((heads, 4), ("KV heads", 4), ("feed-forward size", 1024))
    assert profile_of(replace(model, hidden_size=8)).tensor_units[0][1] == 1


@given(
    layers=st.integers(1, 12),
    heads=st.integers(1, 16),
    head_size=st.integers(1, 128),
    sequence=st.integers(1, 4096),
    vocabulary=st.integers(1, 60_000),
)
@settings(max_examples=60, deadline=None)
def test_gpt_against_megatrons_formulas(
    layers: int, heads: int, head_size: int, sequence: int, vocabulary: int
) -> None:
    """Narayanan et al. 2021: P = 12 l h^2 (1 + 13 / 12h + (V + s) / 12lh) without the last norm, and with all
    activations recomputed 96 s l h^2 (1 + s / 6h + V / 16lh) FLOPs a sequence.

    Korthikanti et al. 2022: s h (24 / t + 10) bytes of activations a layer where the scores are not kept.
    """
    h, s, tp = heads * head_size, sequence, 4
    model = Transformer(
        num_layers=layers,
        hidden_size=h,
        num_heads=heads,
        vocabulary_size=vocabulary,
        sequence_length=s,
        global_batch=8,
        checkpointing=Checkpointing.FULL,
    )
    profile = profile_of(model)
    formula = 12 * layers * h**2 * (1 + 13 / (12 * h) + (vocabulary + s) / (12 * layers * h))
    assert parameter_count(profile) == pytest.approx(formula + 2 * h)
    flops = 96 * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (16 * layers * h))
    assert _forward_flops(profile) * (1 + profile.backward_ratio) == pytest.approx(flops)
    kept = profile_of(replace(model, checkpointing=Checkpointing.NONE)).layers[0]
    activations = kept.partitioned_activation_bytes / tp + kept.replicated_activation_bytes
    assert activations == pytest.approx(s * h * (24 / tp + 10))


@pytest.mark.parametrize("name", ["gpt2-6.7b", "qwen2-7b"])
def test_suikas_constant(name: str) -> None:
    """C_np = 5 for GPT2 and Qwen2 (appendix A.4.2)."""
    layer = profile_of(find_model(name, global_batch=8)).layers[0]
    assert layer.replicated_activation_bytes == 5 * layer.boundary_bytes


def test_checkpointing() -> None:
    none, selective, full = (profile_of(replace(TINY, checkpointing=how)) for how in Checkpointing)
    assert (none.backward_ratio, none.backward_all_reduces) == (2.0, 1.0)
    # The layers are all of 2 x 912 + 240 FLOPs but the head.
    assert selective.backward_ratio == 2.0
    assert full.backward_ratio == pytest.approx(2 + 1824 / 2064)
    assert (selective.backward_all_reduces, full.backward_all_reduces) == (1.0, 2.0)
    # Kept of 3 tokens in 2 bytes each: 2 x 4 + 8 numbers of attention, 8 of the feed-forward part; 2 x 4 between them.
    assert replace(selective.layers[0], kernels=None) == replace(
        none.layers[0], partitioned_activation_bytes=144.0, replicated_activation_bytes=48.0, kernels=None
    )
    assert replace(full.layers[0], kernels=None) == replace(
        none.layers[0],
        partitioned_activation_bytes=0.0,
        replicated_activation_bytes=none.layers[0].boundary_bytes,
        kernels=None,
    )
    assert none.head == selective.head == full.head
    kept = none.layers[0].partitioned_activation_bytes, none.layers[0].replicated_activation_bytes
    assert (full.working_partitioned_bytes, full.working_replicated_bytes) == kept
    assert none.working_partitioned_bytes == selective.working_partitioned_bytes == 0


def test_plain_attention_keeps_its_scores_unless_they_are_repeated() -> None:
    """5 a s^2 bytes of them in 16 bits (Korthikanti et al. 2022, table 2); 2 heads, sequences of 3."""
    fused, plain, selective = (
        profile_of(replace(TINY, attention=attention, checkpointing=how, precision=Precision.FP16)).layers[0]
        for attention, how in (
            (Attention.FUSED, Checkpointing.NONE),
            (Attention.PLAIN, Checkpointing.NONE),
            (Attention.PLAIN, Checkpointing.SELECTIVE),
        )
    )
    assert plain.partitioned_activation_bytes - fused.partitioned_activation_bytes == 5 * 2 * 3**2
    assert selective.partitioned_activation_bytes == fused.partitioned_activation_bytes
    assert selective.kernels is not None
    assert selective.kernels.repeats_attention
    assert plain.memory_traffic_bytes == selective.memory_traffic_bytes > fused.memory_traffic_bytes


def test_mixture_of_experts_by_hand() -> None:
    """4 experts of 64 weights and 12 biases, two at work; the router has 4 x 4 weights and no bias."""
    model = replace(TINY, num_layers=4, num_experts=4, experts_per_token=2, expert_interval=2)
    dense, mixture, *again = profile_of(model).layers
    assert again == [dense, mixture]
    assert dense == profile_of(TINY).layers[0]
    assert mixture.parameters == dense.parameters + 3 * 76 + 16
    assert mixture.forward_flops == dense.forward_flops + 2 * 3 * (64 + 16)
    assert mixture.partitioned_activation_bytes == dense.partitioned_activation_bytes + 2 * 3 * 16
    assert mixture.replicated_activation_bytes == dense.replicated_activation_bytes + 2 * 3 * (2 * 2 * 4 + 4)
    assert mixture.tensor_parallel_bytes == dense.tensor_parallel_bytes
    # The second expert moves 40 numbers a token; routing reads 4, writes 4, and sends and fetches 4 + 8 each.
    assert mixture.memory_traffic_bytes == dense.memory_traffic_bytes + 2 * 3 * (40 + 8 + 24)


def test_latent_attention_by_hand() -> None:
    """2 heads of 3, 1 of it rotary, values of 2; latents of 5 and 6 numbers; s = 3, h = 4, norms of 4, f = 8.

    Queries 4 x 5 + 5 x 6, keys and values 4 x (6 + 1) + 6 x 2 x (2 + 2), output 4 x 4: 142 weights.
    """
    plain = replace(TINY, normalisation=Normalisation.RMSNORM, biases=Biases.NONE)
    model = replace(plain, head_size=3, value_head_size=2, rotary_head_size=1, query_rank=5, kv_rank=6)
    layer, other = profile_of(model).layers[0], profile_of(plain).layers[0]
    assert layer.parameters == 142 + 64 + 8 + 5 + 6
    # Scores of 6 numbers a token, and their product with the values of 4.
    assert layer.forward_flops == 2 * 3 * (142 + 64) + 2 * 9 * (6 + 4)
    # Queries 6, keys 6, values 4, output 4, and the feed-forward part's 16.
    assert layer.partitioned_activation_bytes == 2 * 3 * (20 + 16)
    assert layer.replicated_activation_bytes == other.replicated_activation_bytes + 2 * 3 * 2 * 11
    # In place of 16 into and out of projections, 8 behind and 16 in attention.
    assert layer.memory_traffic_bytes == other.memory_traffic_bytes + 2 * 3 * ((20 + 8 + 20 + 44) - (16 + 8 + 16))
    without = profile_of(replace(model, query_rank=None)).layers[0]
    assert without.parameters == layer.parameters - 50 - 5 + 24


def test_windows_by_hand() -> None:
    """Of 3 tokens each attends to 2, but to all in every second layer."""
    plain = replace(TINY, attention=Attention.PLAIN, checkpointing=Checkpointing.SELECTIVE)
    model = replace(plain, attention_window=2, global_attention_interval=2)
    local, wide = profile_of(model).layers
    everywhere = profile_of(plain)
    assert wide == everywhere.layers[1]
    assert local.forward_flops == 768 + 4 * 3 * 2 * 4
    assert wide.memory_traffic_bytes - local.memory_traffic_bytes == 2 * 3 * 6 * 2 * (3 - 2)
    assert profile_of(model).backward_ratio == pytest.approx(2 + (96 + 144) / (2 * 768 + 96 + 144 + 240))
    nowhere = profile_of(replace(model, global_attention_interval=None))
    assert nowhere.layers == (local, local)
    assert profile_of(replace(model, attention_window=3)).layers == everywhere.layers


def test_more_norms_by_hand() -> None:
    """Behind both parts norms of 2 x 4 weights that read and write 4; two of 2 weights read and write 4 in heads."""
    plain = profile_of(TINY).layers[0]
    behind = profile_of(replace(TINY, post_norms=True)).layers[0]
    assert behind.parameters == plain.parameters + 16
    assert behind.replicated_activation_bytes == plain.replicated_activation_bytes + 2 * 3 * 8
    assert behind.memory_traffic_bytes == plain.memory_traffic_bytes + 2 * 3 * 16
    heads = profile_of(replace(TINY, query_key_norms=True)).layers[0]
    assert heads.parameters == plain.parameters + 4
    assert heads.partitioned_activation_bytes == plain.partitioned_activation_bytes + 2 * 3 * 8
    assert heads.memory_traffic_bytes == plain.memory_traffic_bytes + 2 * 3 * 16


def test_what_replicas_may_share_by_hand() -> None:
    """Two of 4 experts of 64 weights and 12 biases work on a token, each on 1.5 times its share: 3 tokens go there and
    come back, of 4 numbers in 2 bytes each, from every one of the sequence."""
    model = replace(TINY, num_layers=2, num_experts=4, experts_per_token=2, expert_interval=2, capacity_factor=1.5)
    dense, mixed = profile_of(model).layers
    assert (dense.expert_parameters, dense.exchanged_bytes) == (0.0, 0.0)
    assert mixed.expert_parameters == 4 * 76
    assert mixed.exchanged_bytes == 2 * model.sequence_length * 3 * 4 * 2
    plain = profile_of(replace(model, capacity_factor=1.0)).layers[1]
    # One more of them for each of the 3 tokens, 2 x 64 FLOPs.
    assert mixed.forward_flops - plain.forward_flops == model.sequence_length * 2 * 64
    assert mixed.kernels is not None
    assert mixed.kernels.key_value_bytes == 2 * 2 * 4 * model.sequence_length


def test_experts_of_another_size_by_hand() -> None:
    """Behind a dense layer: 4 experts of 2 x 4 x 3, 3 + 4 biases, two at work; a shared one of 2 x 4 x 5, 5 + 4."""
    model = replace(
        TINY,
        num_experts=4,
        experts_per_token=2,
        first_dense_layers=1,
        expert_feed_forward_size=3,
        shared_expert_size=5,
    )
    dense, mixture = profile_of(model).layers
    assert dense == profile_of(TINY).layers[0]
    without = dense.parameters - 64 - 12
    assert mixture.parameters == without + 4 * (24 + 7) + 16 + 40 + 9
    assert mixture.forward_flops == dense.forward_flops + 2 * 3 * (2 * 24 + 40 + 16 - 64)
    assert mixture.partitioned_activation_bytes == dense.partitioned_activation_bytes + 2 * 3 * 2 * (2 * 3 + 5 - 8)
    # An expert moves 4 + 3, 3 + 3 and 3 + 4 numbers a token, the shared one 28 in place of 40; routing 8 + 2 x 12.
    assert mixture.memory_traffic_bytes == dense.memory_traffic_bytes + 2 * 3 * (2 * 20 + 28 - 40 + 8 + 24)
    assert profile_of(model).tensor_units[2:] == (
        ("feed-forward size", 8),
        ("expert size", 3),
        ("shared expert size", 5),
    )
    alone = profile_of(replace(model, first_dense_layers=0, shared_expert_size=None))
    assert alone.tensor_units[2:] == (("expert size", 3),)


def test_flops_of_a_mixture_follow_active_parameters() -> None:
    """Without attention and router FLOPs are 2 per token and active weight: far below 2 per token and parameter."""
    model = find_model("moe-27b", global_batch=8)
    assert isinstance(model, Transformer)
    profile = profile_of(model)
    flops_per_token = _forward_flops(profile) / model.sequence_length
    assert flops_per_token < 0.16 * parameter_count(profile)
    more = profile_of(replace(model, num_experts=2 * model.num_experts))
    assert parameter_count(more) > 1.9 * parameter_count(profile)
    assert _forward_flops(more) == pytest.approx(_forward_flops(profile), rel=1e-3)


@pytest.mark.parametrize(
    ("precision", "optimizer", "state"),
    [
        (Precision.FP16, Optimizer.ADAM, (2, 2, 12)),
        (Precision.BF16, Optimizer.ADAM, (2, 4, 12)),
        (Precision.FP32, Optimizer.ADAM, (4, 4, 8)),
        (Precision.BF16, Optimizer.SGD, (2, 4, 8)),
        (Precision.FP32, Optimizer.SGD, (4, 4, 4)),
    ],
)
def test_state_of_a_parameter(precision: Precision, optimizer: Optimizer, state: tuple[float, float, float]) -> None:
    transformer = replace(TINY, precision=precision, optimizer=optimizer)
    operators = replace(OPERATORS, precision=precision, optimizer=optimizer)
    for profile in (profile_of(transformer), profile_of(operators)):
        assert (profile.parameter_bytes, profile.gradient_bytes, profile.optimizer_bytes) == state
        assert profile.flops_precision == precision.value


def test_fp32_doubles_activations_but_for_masks_and_logits() -> None:
    half, full = profile_of(TINY), profile_of(replace(TINY, precision=Precision.FP32))
    assert full.layers[0].boundary_bytes == 2 * half.layers[0].boundary_bytes
    assert full.layers[0].partitioned_activation_bytes == 2 * half.layers[0].partitioned_activation_bytes
    masks = 2 * 3 * 4
    kept = half.layers[0].replicated_activation_bytes
    assert full.layers[0].replicated_activation_bytes - masks == 2 * (kept - masks)
    assert full.head.partitioned_activation_bytes == half.head.partitioned_activation_bytes


def test_operators() -> None:
    profile = profile_of(replace(OPERATORS, micro_batch=2, zero_stage=3))
    assert profile.layers[0] == LayerCost(
        parameters=7.0,
        forward_flops=100.0,
        memory_traffic_bytes=50.0,
        tensor_parallel_bytes=5.0,
        boundary_bytes=10.0,
        partitioned_activation_bytes=20.0,
        replicated_activation_bytes=10.0,
    )
    # An operator that keeps less than its output keeps nothing beside it.
    assert profile.layers[1].partitioned_activation_bytes == 0
    assert profile.layers[1].replicated_activation_bytes == 4
    assert profile.embedding == profile.head == LayerCost()
    assert (profile.name, profile.num_layers, profile.backward_ratio) == ("operators", 2, 2.0)
    assert (profile.global_batch, profile.micro_batch, profile.zero_stage) == (8, 2, 3)
    assert profile.tensor_units == ()
    assert parameter_count(profile) == 14


def test_block_scales_are_kept_with_their_numbers() -> None:
    """One byte for 32 numbers of what products read: 8 of the feed-forward part and 2 x 4 of 3 tokens each."""
    eight, scaled = (
        profile_of(replace(TINY, precision=precision, software=Software.MEGATRON_CORE)).layers[0]
        for precision in (Precision.FP8, Precision.MXFP8)
    )
    assert scaled.partitioned_activation_bytes - eight.partitioned_activation_bytes == 3 * 8 / 32
    assert scaled.replicated_activation_bytes - eight.replicated_activation_bytes == 3 * 2 * 4 / 32
    assert scaled.forward_flops == eight.forward_flops
