"""Kernels by hand: one product of 512 tokens with 256 x 384 weights, on GPUs of 1 FLOP and 1 byte a second."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.catalogue import find_model
from models.performance.iteration.architecture import profile_of
from models.performance.iteration.kernels import KernelCurve, LayerKernels, Machine, Product, layer_s, usual_s
from models.performance.iteration.whitebox import white_box
from models.software import Software
from models.transformer import Attention, Checkpointing, Transformer
from stowplan.arrays import FloatArray
from topology.gpu_catalogue import find_product, gpu_type_of

MACHINE = Machine(
    flops_per_s=1.0,
    attention_flops_per_s=1.0,
    plain_flops_per_s=1.0,
    misaligned=0.25,
    bytes_per_s=1.0,
    traffic=1.0,
    launch_s=0.0,
    num_multiprocessors=None,
    host_s=0.0,
)
PRODUCT = Product(inputs=256, outputs=384, tokens=512, by_outputs=True)
LAYER = LayerKernels(products=(PRODUCT,), number_bytes=0.0)
# Gradients are read and written when they are added.
ADDED = 8.0 * 256 * 384
ONE = np.ones(1)


def times(layer: LayerKernels = LAYER, machine: Machine = MACHINE, tp: float = 1.0) -> tuple[float, float]:
    forward, backward = layer_s(layer, machine, ONE, tp * ONE, sequence_parallel=False)
    return float(forward[0]), float(backward[0])


def test_products_where_sizes_make_no_difference() -> None:
    """2 m n k forward, and twice that backward."""
    flops = 2 * 512 * 256 * 384
    assert times() == (flops, 2 * flops + ADDED)
    assert times(tp=2.0) == (flops / 2, flops + ADDED / 2)


def test_waves_of_tiles() -> None:
    """On four multiprocessors.

    forward     512 x 384: 6 tiles of 256 x 128 would be two waves of four; 12 of 128 x 128, at 0.92 of the speed, three
                waves of half of that
    gradient    of tokens 512 x 256: 4 tiles of 256 x 128, one wave, k = 384; of weights 256 x 384: 3, one wave, k = 512
    """
    forward, backward = times(machine=replace(MACHINE, num_multiprocessors=4))
    wave = 4 * 256 * 128 * 2
    assert forward == pytest.approx(3 * wave / 2 / 0.92 * (256 + 64))
    assert backward == wave * (384 + 64) + wave * (512 + 64) + ADDED


def test_small_tiles_where_large_ones_are_too_few() -> None:
    """64 x 64: a tile of 64 x 64 at 0.55 of the speed beats one of 256 x 128 that is mostly empty."""
    small = LayerKernels(
        products=(Product(inputs=64, outputs=64, tokens=64, by_outputs=True),),
        number_bytes=0.0,
    )
    forward, _ = times(small, replace(MACHINE, num_multiprocessors=1))
    assert forward == pytest.approx(64 * 64 / 0.55 * 2 * (64 + 64))


def test_attention_and_memory_by_hand() -> None:
    fused = LayerKernels(products=(), attention_flops=100.0, partitioned_bytes=8.0, replicated_bytes=4.0)
    # Half of attention, and 12 bytes; backward 2.5 and 2 times that.
    assert times(fused) == (50 + 12, 125 + 24)
    # Of two GPUs, each has half of attention and of what is partitioned.
    assert times(fused, tp=2.0) == (25 + 4 + 4, 62.5 + 16)
    plain = replace(fused, fused=False, scores_bytes=10.0)
    assert times(plain) == (100 + 10 + 12, 2 * 110 + 24)
    assert times(replace(plain, aligned=False))[0] == 400 + 10 + 12
    assert times(replace(plain, repeats_attention=True))[1] == 3 * 110 + 24
    assert times(replace(fused, repeats_moves=True))[1] == 125 + 36
    assert times(replace(fused, repeats_layer=True))[1] == 125 + 24 + 62


def test_launches_count_once_a_pass() -> None:
    slow = replace(MACHINE, launch_s=1e9)
    assert tuple(a - b for a, b in zip(times(machine=slow), times(), strict=True)) == (1e9, 2e9)


def test_a_pass_takes_what_the_host_needs_to_launch_it() -> None:
    forward, backward = times()
    between = replace(MACHINE, host_s=(forward + backward / 2) / 2)
    assert times(machine=between) == (max(forward, between.host_s), max(backward, 2 * between.host_s))
    waiting = replace(MACHINE, host_s=1e9)
    assert times(machine=waiting) == (1e9, 2e9)
    assert times(replace(LAYER, repeats_layer=True), waiting) == (1e9, 3e9)


def test_sequence_parallelism_splits_what_is_replicated() -> None:
    layer = LayerKernels(products=(), replicated_bytes=40.0)
    split, whole = (layer_s(layer, MACHINE, ONE, 4 * ONE, sequence_parallel=flag)[0][0] for flag in (True, False))
    assert (split, whole) == (10, 40)


H100 = gpu_type_of(find_product("h100"), "bf16")


def known(name: str) -> Transformer:
    found = find_model(name, global_batch=8)
    assert isinstance(found, Transformer)
    return found


def curve(model: Transformer) -> KernelCurve:
    return white_box(profile_of(model), [H100]).curves["h100"]


def test_many_samples_are_the_reference() -> None:
    found = curve(known("llama2-7b"))
    for slower in found.slowdowns(found.largest_batch, 1.0):
        assert float(slower) == pytest.approx(1.0)
    for slower in found.slowdowns(1e9, 1.0):
        assert float(slower) == pytest.approx(1.0)


def test_micro_batches_and_shards_that_are_small_are_slow() -> None:
    """BLOOM's measurements, and those of every GEMM benchmark: one sequence on 8 GPUs takes more than its share."""
    found = curve(known("llama2-7b"))
    (one, eight), _ = found.slowdowns(np.array([1.0, 8.0]), 8.0)
    assert one > 1.1 * eight
    assert found.slowdowns(1.0, 8.0)[0] > found.slowdowns(1.0, 1.0)[0]


@given(st.sampled_from(["gpt2-1.3b", "llama2-70b", "mixtral-8x7b", "deepseek-v3"]), st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=12, deadline=None)
def test_more_samples_never_take_less_time(name: str, tp: int) -> None:
    found = curve(known(name))
    batch = np.arange(1.0, 66.0)
    for slower in found.slowdowns(batch, float(tp)):
        assert (np.diff(slower * batch) >= -1e-9 * batch[1:]).all()


def test_arguments_broadcast() -> None:
    found = curve(known("gpt2-1.3b"))
    forward, backward = found.slowdowns(np.array([1.0, 2.0, 4.0])[:, None], np.array([1.0, 2.0]))
    assert forward.shape == backward.shape == (3, 2)
    assert forward[1, 1] == found.slowdowns(2.0, 2.0)[0]


def test_sizes_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one, of few and of many sizes; those that were asked for before say the same."""
    found = curve(known("gpt2-1.3b"))
    sizes: list[float] = []
    slowdowns = KernelCurve._slowdowns

    def counted(self: KernelCurve, batch: FloatArray, tp: FloatArray) -> FloatArray:
        sizes.extend(batch.tolist())
        return slowdowns(self, batch, tp)

    monkeypatch.setattr(KernelCurve, "_slowdowns", counted)
    many = np.arange(1.0, 101.0)
    one, few, all_of_them = found.slowdowns(3.0, 2.0), found.slowdowns(many[:8], 2.0), found.slowdowns(many, 2.0)
    assert len(sizes) == min(found.largest_batch, 100)
    assert len(sizes) == len(set(sizes))
    for of_one, of_few, of_all in zip(one, few, all_of_them, strict=True):
        assert float(of_one) == pytest.approx(of_few[2], rel=1e-14)
        assert (of_few == of_all[:8]).all()


def test_layers_count_by_their_time() -> None:
    """Plain attention writes its scores, and does what a causal mask excludes: its FLOPs are those of fused one."""
    model = known("gpt2-1.3b")
    fused, plain = (profile_of(replace(model, attention=how)).layers[0] for how in Attention)
    assert fused.forward_flops == plain.forward_flops
    assert fused.kernels is not None
    assert plain.compute > fused.compute == usual_s(fused.kernels)


@pytest.mark.parametrize("software", list(Software))
@pytest.mark.parametrize("checkpointing", list(Checkpointing))
def test_every_software_has_coefficients(software: Software, checkpointing: Checkpointing) -> None:
    model = replace(known("llama2-7b"), software=software, checkpointing=checkpointing)
    (found,) = white_box(profile_of(model), [H100]).gpus.values()
    assert found.compute_s > 0
    assert found.backward_ratio > 2
