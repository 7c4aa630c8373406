"""What is wrong with a description is said, each fault where it is."""

import math
from dataclasses import replace
from typing import Any

import pytest

from models.performance.iteration.architecture import profile_of
from models.performance.iteration.model_issues import model_issues
from models.software import Software
from models.transformer import Biases, Operator, Precision
from stowplan.errors import InputError
from tests.models.performance.iteration.model_scenes import LATENT, OPERATOR, OPERATORS, TINY


@pytest.mark.parametrize(
    ("changes", "code", "field", "detail"),
    [
        ({"num_layers": 0}, "not_positive", "num_layers", "is 0; must be at least 1"),
        ({"micro_batch": -1}, "not_positive", "micro_batch", "is -1; must be at least 1"),
        ({"num_kv_heads": 0}, "not_positive", "num_kv_heads", "is 0; must be at least 1"),
        ({"zero_stage": 4}, "out_of_range", "zero_stage", "is 4; one of 0, 1, 2, 3"),
        ({"zero_stage": -1}, "out_of_range", "zero_stage", "is -1; one of 0, 1, 2, 3"),
        (
            {"micro_batch": 3},
            "batch_not_divisible",
            "micro_batch",
            "is 3, which does not divide global_batch 8",
        ),
        (
            {"num_heads": 3},
            "heads_not_divisible",
            "num_heads",
            "are 3, which do not divide hidden_size 4; 2 would, or give head_size",
        ),
        (
            {"num_heads": 4, "num_kv_heads": 3},
            "heads_not_divisible",
            "num_kv_heads",
            "are 3, which do not divide the 4 attention heads; 2 would",
        ),
        (
            {"num_heads": 2, "num_kv_heads": 4},
            "heads_not_divisible",
            "num_kv_heads",
            "are 4, which do not divide the 2 attention heads; 2 would",
        ),
        (
            {"experts_per_token": 2},
            "out_of_range",
            "experts_per_token",
            "is 2; at most num_experts, 1",
        ),
        (
            {"num_experts": 2, "expert_interval": 3},
            "out_of_range",
            "expert_interval",
            "is 3; at most num_layers, 2, or there is no layer with experts",
        ),
        (
            {"num_experts": 2, "first_dense_layers": 2},
            "out_of_range",
            "first_dense_layers",
            "is 2; less than 2, the last layer with experts, or there is none",
        ),
        ({"first_dense_layers": -1}, "out_of_range", "first_dense_layers", "is -1; must be at least 0"),
        (
            {"shared_expert_size": 4},
            "useless_field",
            "shared_expert_size",
            "has no meaning without experts: give num_experts",
        ),
        (
            {"capacity_factor": 1.5},
            "useless_field",
            "capacity_factor",
            "has no meaning without experts: give num_experts",
        ),
        (
            {"num_experts": 2, "capacity_factor": 0.5},
            "out_of_range",
            "capacity_factor",
            "is 0.5; from 1, where all experts get as many tokens, to 100",
        ),
        (
            {"global_attention_interval": 2},
            "useless_field",
            "global_attention_interval",
            "has no meaning without attention_window: all layers attend to all tokens",
        ),
        (
            {"query_rank": 2},
            "useless_field",
            "query_rank",
            "has no meaning without kv_rank, which makes the attention latent",
        ),
        (
            {**LATENT, "rotary_head_size": None},
            "missing_field",
            "rotary_head_size",
            "is missing; latent attention (kv_rank) needs head_size, and rotary_head_size of it",
        ),
        (
            {**LATENT, "rotary_head_size": 3},
            "out_of_range",
            "rotary_head_size",
            "is 3; less than head_size, 3, of which it is a part",
        ),
        (
            {**LATENT, "num_kv_heads": 1},
            "out_of_range",
            "num_kv_heads",
            "is 1; latent attention has as many as heads, 2: leave it out",
        ),
        (
            {**LATENT, "query_key_norms": True},
            "useless_field",
            "query_key_norms",
            "is true; latent attention has norms of its own",
        ),
        (
            {**LATENT, "biases": Biases.QKV},
            "out_of_range",
            "biases",
            "is qkv; latent attention is described without biases: none",
        ),
    ],
)
def test_faults_of_a_transformer(changes: dict[str, Any], code: str, field: str, detail: str) -> None:
    model = replace(TINY, **changes)
    (issue,) = model_issues(model, "/jobs/3/transformer")
    assert (issue.code, issue.pointer, issue.detail) == (code, f"/jobs/3/transformer/{field}", detail)
    with pytest.raises(InputError, match="the model has 1 error") as raised:
        profile_of(model)
    assert raised.value.issues[0].pointer == f"/{field}"


def test_all_faults_at_once() -> None:
    model = replace(TINY, num_heads=3, experts_per_token=2, micro_batch=5)
    assert [issue.pointer for issue in model_issues(model, "")] == ["/micro_batch", "/num_heads", "/experts_per_token"]


@pytest.mark.parametrize(
    ("operators", "code", "pointer", "detail"),
    [
        ((), "no_operators", "/operators", "the model has no operators; at least 1"),
        (
            (OPERATOR, replace(OPERATOR, forward_flops=math.nan)),
            "negative",
            "/operators/1/forward_flops",
            "is nan; must be finite and at least 0",
        ),
        (
            (replace(OPERATOR, output_bytes=math.inf),),
            "negative",
            "/operators/0/output_bytes",
            "is inf; must be finite and at least 0",
        ),
        (
            (replace(OPERATOR, parameters=-1),),
            "negative",
            "/operators/0/parameters",
            "is -1; must be finite and at least 0",
        ),
        (
            (replace(OPERATOR, forward_flops=0.0),),
            "no_computation",
            "/operators",
            "no operator has forward_flops above 0",
        ),
    ],
)
def test_faults_of_an_operator_list(operators: tuple[Operator, ...], code: str, pointer: str, detail: str) -> None:
    (issue,) = model_issues(replace(OPERATORS, operators=operators), "")
    assert (issue.code, issue.pointer, issue.detail) == (code, pointer, detail)


def test_legal_models_have_no_issues() -> None:
    assert model_issues(TINY, "") == []
    assert model_issues(OPERATORS, "") == []


def test_what_the_software_does_not_do_is_refused() -> None:
    wanted = replace(TINY, precision=Precision.FP8, sequence_parallel=True)
    issues = model_issues(wanted, "/job")
    assert [(issue.code, issue.pointer) for issue in issues] == [
        ("not_in_software", "/job/precision"),
        ("not_in_software", "/job/sequence_parallel"),
    ]
    assert "megatron-core, torch, torch-eager" in issues[0].detail
    assert model_issues(replace(wanted, software=Software.MEGATRON_CORE), "") == []
    scaled = replace(wanted, precision=Precision.MXFP8, software=Software.TORCH_EAGER)
    (issue,) = model_issues(scaled, "")
    assert issue.detail.endswith("a software that does: megatron-core, torch")
    assert model_issues(replace(scaled, software=Software.TORCH), "") == []
