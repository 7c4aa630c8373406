"""Context and expert parallelism: volumes, times and memory by hand, and what must hold of any plan."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.catalogue import find_model
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.breakdown import breakdown
from models.performance.iteration.exchanges import all_to_all_s_per_byte, ring_passes_s, ring_s_per_byte
from models.performance.iteration.fabric import Fabric
from models.performance.iteration.kernels import KernelCurve, LayerKernels, Machine, Product
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.profile import ModelProfile
from models.software import Software
from models.transformer import Transformer
from tests.models.performance.iteration.plan_scenes import fabric, model, plan, profile
from topology.gpu_catalogue import find_product, gpu_type_of

# Nodes a and b share a leaf: 10 bytes/s between them, 32 bytes/s per GPU inside.
SYMMETRIC = plan((2, 2, {"a": [2], "b": [2]}), (2, 2, {"a": [2], "b": [2]}))
H100 = gpu_type_of(find_product("h100"), "bf16")


def of_experts(zero_stage: int = 0) -> ModelProfile:
    """Four layers of 10 parameters, 8 of which are in experts; a sample brings 12 bytes to them, and back."""
    dense = profile(4, zero_stage=zero_stage)
    layers = tuple(replace(layer, expert_parameters=8.0, exchanged_bytes=12.0) for layer in dense.layers)
    return replace(dense, layers=layers, num_experts=4)


def with_gpus(num_gpus: int) -> Fabric:
    nodes = fabric()
    return replace(nodes, hosts={name: replace(host, num_gpus=num_gpus) for name, host in nodes.hosts.items()})


def test_sequences_in_two_parts_by_hand() -> None:
    # Of `test_symmetric_plan_by_hand` with half of every sequence: computation 1 s. An all-reduce moves 8 bytes at
    # log2 8 / log2 256 = 3/8 of 32 bytes/s: 4 of them 8/3 s. The same gradients: 6 s.
    of = replace(SYMMETRIC, context_parallel=2)
    assert (of.micro_batch, of.global_batch) == (2, 6)
    first = model(profile(4)).iteration(of).stages[0]
    assert (first.forward_s, first.backward_s) == pytest.approx((1 + 8 / 3, 2 + 8 / 3))
    assert first.reduction_s == pytest.approx(6.0)


def test_activations_and_sends_are_those_of_parts() -> None:
    job, shared = model(profile(4), send_receive=True), replace(SYMMETRIC, context_parallel=2)
    for whole, part in zip(job.memory(SYMMETRIC), job.memory(shared), strict=True):
        assert part.activation_bytes == whole.activation_bytes / 2
        assert part.parameter_bytes == whole.parameter_bytes
    assert job.iteration(shared).stages[0].send_s == pytest.approx(job.iteration(SYMMETRIC).stages[0].send_s / 2)


@pytest.mark.parametrize(("zero_stage", "optimizer_bytes"), [(0, 96.0), (1, 80.0)])
def test_memory_of_shared_experts_by_hand(zero_stage: int, optimizer_bytes: float) -> None:
    # Two replicas, half of the experts each: 2 + 8 / 2 of 10 parameters, 0.6 x 4 layers of 10, 30 and 40 bytes. With
    # ZeRO 1 the states of the 2 are halved, those of the 4 have one replica only: 3/6 + 4/6 = 20 bytes a layer.
    of = replace(plan((4, 1, {"a": [1], "b": [1]})), expert_parallel=2)
    (stage,) = model(of_experts(zero_stage)).memory(of)
    found = (stage.parameter_bytes, stage.gradient_bytes, stage.optimizer_bytes)
    assert found == pytest.approx((24.0, 72.0, optimizer_bytes))


def test_gradients_of_experts_are_reduced_over_those_that_have_them() -> None:
    # Of 120 bytes of gradients, 24 are of all replicas and 96 of experts, 48 on each. Two replicas: 24 are all-reduced,
    # 2 x 24 / 2 bytes at 10 bytes/s. Four: 2 x 24 x 3 / 4 + 2 x 48 / 2 = 84 bytes.
    two = replace(plan((4, 1, {"a": [1], "b": [1]})), expert_parallel=2)
    four = replace(plan((4, 1, {"a": [1, 1], "b": [1, 1]})), expert_parallel=2)
    job = model(of_experts())
    assert job.reductions_s(two) == pytest.approx([2.4])
    assert job.reductions_s(four) == pytest.approx([8.4])


def test_all_to_alls_by_hand() -> None:
    # 4 layers x 12 bytes x 3 samples = 144 bytes a pass. Of two replicas half of it stays: 72 bytes at 10 bytes/s to
    # the other node, at 32 bytes/s inside one. Three micro-batches, there and back.
    across = replace(plan((4, 1, {"a": [3], "b": [3]})), expert_parallel=2)
    inside = replace(plan((4, 1, {"a": [3, 3]})), expert_parallel=2)
    job = model(of_experts())
    for of, seconds in ((across, 7.2), (inside, 2.25)):
        time, without = job.iteration(of), job.iteration(replace(of, expert_parallel=1))
        assert time.stages[0].all_to_all_s == pytest.approx(2 * seconds)
        assert time.stages[0].forward_s == pytest.approx(without.stages[0].forward_s + seconds)
        parts = breakdown(time, 3)
        assert parts.all_to_all_s == pytest.approx(6 * seconds)
        assert parts.total_s == pytest.approx(time.total_s)
        assert parts.compute_s == pytest.approx(breakdown(without, 3).compute_s)


@pytest.mark.parametrize(
    ("nodes", "degree", "num_gpus", "ring", "all_to_all"),
    [
        # Inside, two GPUs at 32 bytes/s each. Of four, one sends to each other node, all send half of a byte there.
        ("aabb", 2, None, 1 / 64, 1 / 128),
        ("aabb", 4, None, 1 / 10, 2 * 0.5 / 10),
        # Two rings between the nodes, and two groups of which half leaves.
        ("abab", 2, None, 2 / 10, 2 * 0.5 / 10),
        # Eight network cards on a node: two GPUs have a fourth of its bandwidth.
        ("aabb", 4, 8, 4 / 10, 4 * 0.5 / 10),
        ("aabb", 4, 4, 2 / 10, 2 * 0.5 / 10),
    ],
)
def test_links_by_hand(nodes: str, degree: int, num_gpus: int | None, ring: float, all_to_all: float) -> None:
    on = fabric() if num_gpus is None else with_gpus(num_gpus)
    assert ring_s_per_byte(on, nodes, 2, degree) == pytest.approx(ring)
    assert all_to_all_s_per_byte(on, nodes, 2, degree) == pytest.approx(all_to_all)


def test_tiers_are_counted_one_by_one() -> None:
    # Of a (x) a third goes to b at 10, a third to c in another leaf at half of 10 bytes/s; c (y) sends both at 5.
    assert all_to_all_s_per_byte(fabric(), "abc", 1, 3) == pytest.approx(2 / 3 / 5)
    assert all_to_all_s_per_byte(fabric(), "ab", 1, 2) == pytest.approx(1 / 2 / 10)


ATTENTION = LayerKernels(products=(), attention_flops=100.0, key_value_bytes=6.0)
MACHINE = Machine(
    flops_per_s=10.0,
    attention_flops_per_s=10.0,
    plain_flops_per_s=10.0,
    misaligned=1.0,
    bytes_per_s=1e9,
    traffic=1.0,
    launch_s=0.0,
    num_multiprocessors=None,
    host_s=0.0,
)


@pytest.mark.parametrize(
    ("layer", "forward_s", "backward_s"),
    [
        # Causal attention 5 s, in five blocks of 1 s; 12.5 s and 2.5 s backward. Four times 3 s, and 6 s.
        (ATTENTION, 4 * 2.0, 4 * 3.5),
        (replace(ATTENTION, repeats_layer=True), 4 * 2.0, 4 * 5.5),
        (replace(ATTENTION, key_value_bytes=2.0), 0.0, 0.0),
    ],
)
def test_rings_hide_behind_attention(layer: LayerKernels, forward_s: float, backward_s: float) -> None:
    curve = KernelCurve(layers=((layer, 1.0),), machine=MACHINE, sequence_parallel=False)
    found = ring_passes_s(curve, np.array(1.0), np.array(1.0), 5, np.array(0.5))
    assert found.tolist() == pytest.approx([forward_s, backward_s])


def test_shared_kernels_by_hand() -> None:
    layer = LayerKernels(
        products=(
            Product(inputs=2.0, outputs=3.0, tokens=40.0, by_outputs=True),
            Product(inputs=2.0, outputs=3.0, tokens=10.0, by_outputs=True, count=8.0),
        ),
        attention_flops=12.0,
        key_value_bytes=6.0,
    )
    shared = layer.shared(2, 4)
    # Half of the tokens; two of eight experts, with those of four replicas.
    assert [(one.tokens, one.count) for one in shared.products] == [(20.0, 1.0), (20.0, 2.0)]
    assert (shared.attention_flops, shared.key_value_bytes) == (6.0, 3.0)


LLAMA = find_model("llama-3.1-8b", global_batch=32, sequence_length=32768)
MIXTRAL = find_model("mixtral-8x7b", global_batch=32)


def of_degrees(job: Transformer, *, cp: int = 1, ep: int = 1, dp: int = 4) -> tuple[PerformanceModel, ParallelPlan]:
    """One stage of two GPUs a replica, on nodes of eight."""
    job = replace(job, software=Software.MEGATRON_CORE)
    gpus = tuple((str(k // 8), k % 8) for k in range(2 * dp * cp))
    of = symmetric_plan(
        num_layers=job.num_layers,
        pp=1,
        dp=dp,
        tp=2,
        cp=cp,
        ep=ep,
        global_batch=job.global_batch,
        num_micro_batches=4,
        gpu_type="h100",
        gpus=gpus,
    )
    return virtual_model(job, H100, 8, -(-len(gpus) // 8)), of


def test_half_of_a_long_sequence_takes_about_half_as_long() -> None:
    """Keys and values hide behind attention; gradients and small kernels cost a little."""
    assert isinstance(LLAMA, Transformer)
    (job, whole), (larger, half) = of_degrees(LLAMA), of_degrees(LLAMA, cp=2)
    assert 0.5 <= larger.iteration(half).total_s / job.iteration(whole).total_s < 0.56
    assert larger.iteration(half).stages[0].ring_s == 0.0
    assert larger.memory(half)[0].activation_bytes == pytest.approx(job.memory(whole)[0].activation_bytes / 2)


def test_fewer_experts_have_more_tokens_each() -> None:
    """As much to compute in fewer, larger products, which are no slower."""
    assert isinstance(MIXTRAL, Transformer)
    (job, alone), (_, shared) = of_degrees(MIXTRAL), of_degrees(MIXTRAL, ep=4)
    first, there = job.iteration(alone).stages[0], job.iteration(shared).stages[0]
    assert there.all_to_all_s > 0
    assert there.forward_s + there.backward_s - there.all_to_all_s <= first.forward_s + first.backward_s
    # Three quarters of 8 experts in 32 layers, of 3 x 4,096 x 14,336 parameters each, on two GPUs.
    saved = 0.75 * 32 * 8 * 3 * 4096 * 14336 / 2
    assert job.memory(alone)[0].parameter_bytes - job.memory(shared)[0].parameter_bytes == pytest.approx(2 * saved)


def test_full_experts_take_longer_and_more_memory() -> None:
    assert isinstance(MIXTRAL, Transformer)
    (job, shared), (fuller, _) = of_degrees(MIXTRAL, ep=4), of_degrees(replace(MIXTRAL, capacity_factor=1.5), ep=4)
    before, after = job.iteration(shared), fuller.iteration(shared)
    assert after.stages[0].all_to_all_s == pytest.approx(1.5 * before.stages[0].all_to_all_s)
    assert after.total_s > before.total_s
    assert fuller.memory(shared)[0].activation_bytes > job.memory(shared)[0].activation_bytes
    assert fuller.memory(shared)[0].parameter_bytes == job.memory(shared)[0].parameter_bytes


@settings(max_examples=25, deadline=None)
@given(
    cp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 4]),
    zero_stage=st.sampled_from([0, 1, 2, 3]),
    tokens=st.sampled_from([2048, 8192]),
)
def test_more_sharing_never_needs_more_memory(cp: int, ep: int, zero_stage: int, tokens: int) -> None:
    assert isinstance(MIXTRAL, Transformer)
    of = replace(MIXTRAL, zero_stage=zero_stage, sequence_length=tokens)
    job, shared = of_degrees(of, cp=cp, ep=ep, dp=8)
    for larger, other in (of_degrees(of, cp=2 * cp, ep=ep, dp=8), of_degrees(of, cp=cp, ep=2 * ep, dp=8)):
        assert larger.memory(other)[0].total_bytes <= job.memory(shared)[0].total_bytes * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(cp=st.sampled_from([1, 2, 4]), ep=st.sampled_from([1, 2, 8]), faster=st.floats(1.0, 8.0))
def test_more_bandwidth_is_never_slower(cp: int, ep: int, faster: float) -> None:
    assert isinstance(MIXTRAL, Transformer)
    job, shared = of_degrees(MIXTRAL, cp=cp, ep=ep, dp=8)
    links = replace(job.fabric, inter_share=faster, intra_share=faster)
    slow = replace(job.fabric, inter_share=1.0, intra_share=1.0)
    times = [replace(job, fabric=on).iteration(shared).total_s for on in (links, slow)]
    assert times[0] <= times[1] * (1 + 1e-12)


def test_a_model_is_that_of_its_degrees() -> None:
    job = model()
    assert job.at(1, 1) is job
    assert job.at(2, 1) is job.at(2, 1)
    assert job.at(2, 1).at(2, 1) is job.at(2, 1)
    with pytest.raises(ValueError, match="CP2 EP1"):
        job.at(2, 1).at(1, 1)
