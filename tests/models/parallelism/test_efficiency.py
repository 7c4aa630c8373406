"""Model FLOPs utilisation, tokens per second and GPU, days: by hand."""

import pytest

from models.parallel_plan import symmetric_plan
from models.parallelism.efficiency import efficiency_of
from models.transformer import Biases, Operator, OperatorModel, Transformer

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
