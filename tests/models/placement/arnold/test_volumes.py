from dataclasses import replace

import pytest

from models.placement.arnold.volumes import communication_volumes, num_microbatches
from models.transformer import Transformer
from models.workload import Parallelism

# GPT of 7 billion parameters in 8 stages, bf16 (2 bytes each): the paper gives no settings for its 2 GB and 30 MB.
GPT_7B = Transformer(
    num_layers=32,
    hidden_size=4_096,
    vocabulary_size=50_257,
    sequence_length=2_048,
    global_batch=512,
    micro_batch=1,
)


def test_a_7b_gpt_moves_2_gb_and_30_mb() -> None:
    volumes = communication_volumes(GPT_7B, Parallelism(tp=1, pp=8, dp=12))
    assert 2 * volumes.dp == pytest.approx(2e9, rel=0.05)
    assert 2 * volumes.pp == pytest.approx(30e6, rel=0.15)


def test_eqs_12_and_13_by_hand() -> None:
    # h 2, V 3, s 5, l 4, pp 2, mb 7: DP = 2 (3 + 5) + 4/2 (16 + 4 + 32 + 14) = 148, PP = 2 * 7 * 5 * 2 = 140
    shape = Transformer(
        num_layers=4, hidden_size=2, vocabulary_size=3, sequence_length=5, global_batch=84, micro_batch=7
    )
    volumes = communication_volumes(shape, Parallelism(tp=1, pp=2, dp=3))
    assert (volumes.weights, volumes.dp, volumes.pp) == (148, 148, 140)
    assert volumes.ratios(7) == (7 * 148 / 288, 148 / 140)
    assert num_microbatches(shape, Parallelism(tp=1, pp=2, dp=3)) == 4
    # Three experts: each layer has 3 (32 + 14) + 3 * 2 instead of 32 + 14, that is 98 more; two layers a stage.
    assert communication_volumes(replace(shape, num_experts=3), Parallelism(tp=1, pp=2, dp=3)).dp == 148 + 2 * 98


def test_the_whole_model_has_its_name() -> None:
    whole = communication_volumes(GPT_7B, Parallelism(tp=1, pp=1, dp=1))
    assert whole.weights == pytest.approx(7e9, rel=0.06)


def test_tensor_parallelism_leaves_the_ratios_alone() -> None:
    one = communication_volumes(GPT_7B, Parallelism(tp=1, pp=4, dp=2))
    four = communication_volumes(GPT_7B, Parallelism(tp=4, pp=4, dp=2))
    assert four.dp == one.dp / 4
    assert four.ratios(1) == pytest.approx(one.ratios(1))
