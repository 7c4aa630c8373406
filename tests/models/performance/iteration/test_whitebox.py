"""White-box coefficients by hand, and what calibration puts in their place."""

from dataclasses import replace

import pytest

from models.performance.iteration.architecture import profile_of
from models.performance.iteration.coefficients import Calibration, GpuCoefficients
from models.performance.iteration.modelling import calibrated, performance_model, virtual_model
from models.performance.iteration.priors import priors
from models.performance.iteration.profile import LayerCost
from models.performance.iteration.whitebox import roofline_s, white_box
from models.software import Software
from models.transformer import Precision, Transformer
from tests.models.performance.iteration.plan_scenes import SIZES, profile
from topology.cluster import Cluster, GpuType, Node
from topology.gpu_catalogue import find_product, gpu_type_of

OWN = GpuType(
    name="own",
    memory_bytes=1000,
    peak_flops_per_s=210e9,
    intra_node_bandwidth_bytes_per_s=1e9,
    inter_node_bandwidth_bytes_per_s=1e8,
)
SMALL = Transformer(num_layers=4, hidden_size=64, vocabulary_size=100, sequence_length=32, global_batch=8)
MEASURED = GpuCoefficients(compute_s=6.0, backward_ratio=2.5, optimizer_s=0.6, overlap=3.0)


def test_roofline_by_hand() -> None:
    # Half of 210 GFLOP/s is reached. 1 GB/s of memory (210 FLOP per byte), 80 % of it. Layer 0 computes, layer 1 moves.
    computing = LayerCost(parameters=4e6, forward_flops=105e9, memory_traffic_bytes=0.4e9)
    moving = LayerCost(parameters=12e6, forward_flops=21e9, memory_traffic_bytes=2.4e9)
    job = replace(profile(), layers=(computing, moving), backward_ratio=3.0)
    assert roofline_s(job, OWN) == pytest.approx([1.0, 3.0])
    own = white_box(job, [OWN]).gpus["own"]
    assert own.compute_s == pytest.approx((1.0 + 3.0) / 2)
    # 3 bytes of gradients read, 4 of states read and written, 1 of weights written, 8e6 parameters in the mean layer.
    assert own.optimizer_s == pytest.approx((3 + 2 * 4 + 1) * 8e6 / 0.8e9)
    assert (own.backward_ratio, own.overlap) == (3.0, 2.5)


def test_sizes_are_those_of_the_mean_layer() -> None:
    assert white_box(profile(), []).sizes == SIZES
    with_head = profile(2, head=LayerCost(parameters=6.0, partitioned_activation_bytes=4.0))
    sizes = white_box(with_head, []).sizes
    assert sizes.parameter_bytes == (10 + 10 + 6) / 2
    assert sizes.partitioned_activation_bytes == (6 + 6 + 4) / 2


def test_products_are_found_by_any_notation() -> None:
    h100 = gpu_type_of(find_product("h100"), "bf16")
    named = replace(h100, name="NVIDIA H100-80GB", peak_flops_per_s=1.0)
    unknown = replace(h100, name="mystery")
    found = white_box(profile(), [h100, named, unknown]).gpus
    assert found["NVIDIA H100-80GB"] == found["h100"]
    # An unknown type has the peak that it states, but not the memory bandwidth of the product.
    assert found["mystery"].compute_s == pytest.approx(found["h100"].compute_s)
    assert found["mystery"].optimizer_s != pytest.approx(found["h100"].optimizer_s)


def test_factors_that_one_family_told_say_no_more_than_attention_can_reach_of_another() -> None:
    known, model = priors(), replace(SMALL, software=Software.NATIVE, precision=Precision.BF16)
    factor = known.software[Software.NATIVE].attention
    for name, share in (("h100", known.gpus["hopper"].attention * factor), ("a100-80gb", 0.75)):
        product = find_product(name)
        curve = white_box(profile_of(model), [gpu_type_of(product, Precision.BF16)]).curves[name]
        assert curve.machine.attention_flops_per_s == pytest.approx(share * product.peak("bf16"))
    assert known.gpus["ampere"].attention * factor > 0.75


def test_older_products_reach_less_of_their_peak() -> None:
    v100, a100 = (gpu_type_of(find_product(name), "fp16") for name in ("v100", "a100"))
    found = white_box(profile(), [v100, a100]).gpus
    assert found["v100"].compute_s / found["a100-40gb"].compute_s == pytest.approx((312 * 0.5) / (125 * 0.35))


def test_calibration_scales_to_types_that_were_not_measured() -> None:
    # 125 TFLOP/s of the A10 against 312 of the A100: 2.496 times as long; ratio and overlap stay.
    kinds = [gpu_type_of(find_product(name), "bf16") for name in ("a10", "a100")]
    white = white_box(profile(), kinds)
    found = calibrated(white, Calibration(gpus={"A100-40GB": MEASURED}), kinds, "bf16")
    assert found.gpus["a100-40gb"] == MEASURED
    assert found.gpus["a10"].compute_s == pytest.approx(6.0 * 312 / 125)
    assert found.gpus["a10"].optimizer_s == pytest.approx(0.6 * 312 / 125)
    assert (found.gpus["a10"].backward_ratio, found.gpus["a10"].overlap) == (2.5, 3.0)
    assert found.sizes == white.sizes


def test_calibration_scales_from_the_nearest_type() -> None:
    # The A40 (149.7 TFLOP/s) is nearer to the A10 than to the H100, which is not in the cluster any more.
    kinds = [gpu_type_of(find_product("a40"), "bf16")]
    by_type = {"h100": MEASURED, "a10": replace(MEASURED, compute_s=1.0)}
    found = calibrated(white_box(profile(), kinds), Calibration(gpus=by_type), kinds, "bf16")
    assert found.gpus["a40"].compute_s == pytest.approx(125 / 149.7)


def test_measured_types_without_a_known_peak_say_nothing_about_others() -> None:
    white = white_box(profile(), [OWN])
    sizes = replace(SIZES, gradient_bytes=99.0)
    found = calibrated(white, Calibration(gpus={"gone": MEASURED}, sizes=sizes), [OWN], "bf16")
    assert found.gpus == white.gpus
    assert found.sizes == sizes


def test_models_of_clusters_and_of_virtual_nodes_agree() -> None:
    cluster = Cluster(gpu_types=(OWN,), nodes=tuple(Node(id=str(k), gpu_type="own", num_gpus=4) for k in range(2)))
    real, virtual = performance_model(SMALL, cluster), virtual_model(SMALL, OWN, 4, 2)
    assert real.fabric == virtual.fabric
    assert real.coefficients == virtual.coefficients
    assert real.usable_bytes("own") == pytest.approx(900)


def test_calibration_reaches_the_model() -> None:
    own = virtual_model(SMALL, OWN, 4, 2, Calibration(gpus={"own": MEASURED}))
    assert own.coefficients.gpus["own"] == MEASURED


def test_precision_of_the_model_decides_the_peak() -> None:
    a100 = gpu_type_of(find_product("a100"), "bf16")
    half, single = (
        virtual_model(replace(SMALL, hidden_size=4096, sequence_length=2048, precision=p), a100, 4, 1)
        for p in (Precision.BF16, Precision.FP32)
    )
    slower = single.coefficients.gpus[a100.name].compute_s / half.coefficients.gpus[a100.name].compute_s
    # Products take 16 times as long, what moves memory only twice.
    assert 0.85 * 312 / 19.5 < slower < 312 / 19.5


def test_block_scales_cost_their_traffic_and_nothing_else() -> None:
    kind = gpu_type_of(find_product("b200"), "mxfp8")
    layer_s = {}
    for precision in (Precision.BF16, Precision.FP8, Precision.MXFP8):
        model = Transformer(
            num_layers=8,
            hidden_size=8192,
            num_heads=64,
            vocabulary_size=32000,
            sequence_length=4096,
            global_batch=64,
            precision=precision,
            software=Software.MEGATRON_CORE,
        )
        layer_s[precision] = virtual_model(model, kind, 8, 1).coefficients_of("b200").compute_s
    assert layer_s[Precision.FP8] < layer_s[Precision.MXFP8] < 1.01 * layer_s[Precision.FP8]
    assert layer_s[Precision.MXFP8] < layer_s[Precision.BF16]
