"""Model FLOPs utilisation, tokens per second and GPU, days: by hand."""

import pytest

from models.catalogue import find_model
from models.parallel_plan import symmetric_plan
from models.parallelism.efficiency import busy_shares, efficiency_of
from models.performance.iteration.modelling import virtual_model
from models.transformer import Biases, Operator, OperatorModel, Transformer
from topology.gpu_catalogue import find_product, gpu_type_of

# Per token and layer: 12 h^2 = 12 weights of products x 4 (h = 2), and attention; head 2 x 10.
TINY = Transformer(
    num_layers=3,
    hidden_size=2,
    num_heads=1,
    vocabulary_size=10,
    sequence_length=5,
    global_batch=4,
    biases=Biases.NONE,
)
A100 = gpu_type_of(find_product("a100-80gb"), "bf16")
PLAN = symmetric_plan(
    num_layers=3,
    pp=1,
    dp=2,
    tp=1,
    global_batch=4,
    num_micro_batches=1,
    gpu_type="own",
    gpus=(("0", 0), ("0", 1)),
)


def test_by_hand() -> None:
    found = efficiency_of(TINY, PLAN, 2.0, {"own": 1e6}, num_tokens=864_000)
    weights, attention = 3 * 12 * 4 + 2 * 10, 3 * 12 * 2 * 5
    assert found.mfu == pytest.approx((6 * weights + attention) * 5 * 2.0 / 2e6)
    assert found.tokens_per_s_per_gpu == 5.0
    assert found.days == 1.0


def test_energy_by_hand() -> None:
    """Two stages of two A100 (400 W), of which one computes all the time and the other a quarter of it."""
    gpus = tuple(("0", k) for k in range(4))
    plan = symmetric_plan(
        num_layers=3, pp=2, dp=2, tp=1, global_batch=4, num_micro_batches=1, gpu_type="a100-80gb", gpus=gpus
    )
    found = efficiency_of(TINY, plan, 2.0, {}, num_tokens=3_600_000, busy=[1.0, 0.25])
    power_w = 2 * 400 + 2 * (0.5 + 0.5 * 0.25) * 400
    # 4 samples in 2 s; 10 tokens per second.
    assert found.iteration_kwh == pytest.approx(power_w * 2.0 / 3.6e6)
    assert found.joules_per_token == pytest.approx(power_w / 10.0)
    assert found.total_kwh == pytest.approx(power_w / 10.0)
    assert efficiency_of(TINY, plan, 2.0, {}).joules_per_token == pytest.approx(4 * 400 / 10.0)
    assert efficiency_of(TINY, PLAN, 2.0, {"own": 1e6}).iteration_kwh is None


def mean_busy(pp: int, virtual_stages: int = 1) -> float:
    """Of eight micro-batches on stages of two A100."""
    plan = symmetric_plan(
        num_layers=24,
        pp=pp,
        dp=1,
        tp=2,
        global_batch=64,
        num_micro_batches=8,
        gpu_type="a100-80gb",
        gpus=tuple(("0", k) for k in range(2 * pp)),
        virtual_stages=virtual_stages,
    )
    model = virtual_model(find_model("gpt2-350m", global_batch=64), A100, 8, 1)
    busy = busy_shares(plan, model.iteration(plan))
    assert len(busy) == pp
    assert all(0.0 < share < 1.0 for share in busy)
    return sum(busy) / pp


def test_gpus_wait_the_longer_the_deeper_the_pipeline() -> None:
    assert mean_busy(1) > mean_busy(2) > mean_busy(4) > mean_busy(8)
    assert mean_busy(4, virtual_stages=2) > mean_busy(4)


def test_what_is_not_known_is_none() -> None:
    assert efficiency_of(TINY, PLAN, 2.0, {}).mfu is None
    assert efficiency_of(TINY, PLAN, 2.0, {}).days is None
    operator = Operator(
        name="a",
        parameters=1,
        forward_flops=10.0,
        memory_traffic_bytes=1.0,
        activation_bytes=1.0,
        output_bytes=1.0,
        tensor_parallel_bytes=0.0,
    )
    listed = OperatorModel(operators=(operator,) * 3, global_batch=4)
    found = efficiency_of(listed, PLAN, 2.0, {"own": 1e3}, num_tokens=10)
    assert found.mfu == pytest.approx(3 * 30 * 2.0 / 2e3)
    assert found.tokens_per_s_per_gpu is None
    assert found.days is None
