"""3D-parallel plans over HTTP: what is answered, what is drawn, and what is refused with which words."""

from typing import Any

import httpx
import pytest

import api.parallel.service
from api.schemas.parallel_answer import ParallelPlanAnswer
from tests.api.asking import post
from tests.api.requests import Json, changed

LLAMA: Json = {"model": "llama2-13b", "global_batch": 64}
H100: Json = {"gpu_type": "h100", "counts": [8, 16]}
REQUEST: Json = {"job": LLAMA, "gpus": [H100], "options": {"num_operators": 8}}
GPT: Json = {
    "num_layers": 12,
    "hidden_size": 1024,
    "num_heads": 16,
    "vocabulary_size": 32000,
    "sequence_length": 512,
    "global_batch": 32,
}
_KIND: Json = {
    "name": "a",
    "memory_bytes": 40_000_000_000,
    "peak_flops_per_s": 312e12,
    "intra_node_bandwidth_bytes_per_s": 3e11,
    "inter_node_bandwidth_bytes_per_s": 2.5e10,
}
CLUSTER: Json = {
    "gpu_types": [_KIND],
    "nodes": [{"id": f"n{k}", "gpu_type": "a", "num_gpus": 4} for k in range(2)],
}
RUNNING: Json = {
    "stages": [
        {"num_layers": 6, "replicas": [{"node": "n0", "gpu_type": "a", "gpus": [2 * k, 2 * k + 1], "local_batch": 4}]}
        for k in range(2)
    ],
    "num_micro_batches": 8,
}
GROWING: Json = {"job": GPT, "cluster": CLUSTER, "running": RUNNING, "released": {"n1": [0, 1, 2, 3]}}


def answered(client: httpx.Client, request: Json) -> ParallelPlanAnswer:
    answer = post(client, "/v1/parallel-plans", request)
    assert answer.status_code == 200, answer.text
    return ParallelPlanAnswer.model_validate_json(answer.text)


def refused(client: httpx.Client, request: Json) -> list[tuple[str, str, str]]:
    answer = post(client, "/v1/parallel-plans", request)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code == 422
    return [(issue["code"], issue["pointer"], issue["detail"]) for issue in problem["errors"]]


def test_a_model_of_the_catalogue_on_gpus_of_the_catalogue(client: httpx.Client) -> None:
    answer = answered(client, REQUEST)
    assert answer.verified
    assert answer.job.name == "llama2-13b"
    assert answer.job.num_parameters == pytest.approx(13.0e9, rel=0.02)
    assert [point.num_gpus for point in answer.points] == [8, 16]
    assert answer.best == answer.points[1]
    best = answer.best
    assert best.throughput * best.iteration_s == pytest.approx(64)
    parts = best.breakdown
    split = parts.compute_s + parts.tensor_s + parts.data_s + parts.optimizer_s + parts.bubble_s + parts.send_s
    assert split + parts.straggling_s == pytest.approx(parts.total_s)
    assert parts.total_s == pytest.approx(best.iteration_s)
    assert sum(stage.num_layers for stage in best.stages) == 40
    assert all(stage.total_bytes <= stage.usable_bytes == pytest.approx(72e9) for stage in best.stages)
    assert {grid.num_gpus for grid in answer.grids} == {8, 16}
    assert any(grid.frontier for grid in answer.grids)
    assert answer.tuner is not None
    assert (answer.tuner.gpu_type, answer.tuner.num_gpus) == ("h100", 16)
    assert 1 <= answer.tuner.num_after < answer.tuner.num_before


def test_the_launcher_gets_ranks_hostfile_and_bounds(client: httpx.Client) -> None:
    degrees = {"pp": 2, "dp": 2, "tp": 4, "num_micro_batches": 32}
    launch = answered(client, {"job": LLAMA, "gpus": [{"gpu_type": "h100"}], "degrees": degrees}).launch
    assert (launch.world_size, launch.symmetric, launch.stage_bounds) == (16, True, (0, 20, 40))
    assert launch.hostfile == "0 slots=8\n1 slots=8\n"
    places = [(rank.rank, rank.node, rank.local_rank, rank.pp, rank.dp, rank.tp) for rank in launch.ranks]
    assert places[5] == (5, "0", 5, 0, 1, 1)
    assert places[8] == (8, "1", 0, 1, 0, 0)


def test_replicas_may_share_sequences_and_experts(client: httpx.Client) -> None:
    job = {"model": "mixtral-8x7b", "global_batch": 32, "zero_stage": 3, "software": "megatron-core"}
    degrees = {"pp": 1, "dp": 4, "tp": 2, "num_micro_batches": 8, "context_parallel": 2, "expert_parallel": 8}
    answer = answered(client, {"job": job, "gpus": [{"gpu_type": "h100"}], "degrees": degrees})
    best = answer.best
    assert (best.num_gpus, best.notation) == (16, "PP1 DP4 TP2 CP2 EP8 (32 layers, 8 x 4)")
    assert (best.stages[0].dp, best.plan.context_parallel, best.plan.expert_parallel) == (4, 2, 8)
    assert best.breakdown.all_to_all_s > 0
    assert [(rank.dp, rank.cp, rank.ep, rank.tp) for rank in answer.launch.ranks[:6]] == [
        (0, 0, 0, 0),
        (0, 0, 0, 1),
        (0, 1, 1, 0),
        (0, 1, 1, 1),
        (1, 0, 2, 0),
        (1, 0, 2, 1),
    ]


def test_a_range_of_counts_and_own_types(client: httpx.Client) -> None:
    gpus = [{"gpu_type": "a", "min_gpus": 3, "max_gpus": 9, "gpus_per_node": 4}]
    answer = answered(client, {"job": GPT, "gpus": gpus, "gpu_types": [_KIND]})
    assert {point.num_gpus for point in answer.points} | {missing.num_gpus for missing in answer.missing} == {
        3,
        4,
        8,
        9,
    }


def test_a_wide_resnet_is_named_like_a_transformer(client: httpx.Client) -> None:
    job = {"model": "wide-resnet-500m", "global_batch": 64}
    answer = answered(client, {"job": job, "gpus": [{"gpu_type": "a100", "counts": [4]}]})
    assert answer.job.name == "wide-resnet-500m"
    assert answer.best.gpu_type == "a100-40gb"


def test_operators(client: httpx.Client) -> None:
    sizes = {
        "parameters": 1_000_000,
        "forward_flops": 1e10,
        "memory_traffic_bytes": 1e6,
        "activation_bytes": 1e6,
        "output_bytes": 1e5,
        "tensor_parallel_bytes": 0,
    }
    job = {"operators": [{"name": f"o{k}", **sizes} for k in range(4)], "global_batch": 16, "name": "mine"}
    assert answered(client, {"job": job, "gpus": [{"gpu_type": "v100", "counts": [2]}]}).job.name == "mine"


def test_measured_times_rule(client: httpx.Client) -> None:
    measured = {"gpu_type": "H100-SXM", "pp": 1, "dp": 4, "tp": 2, "num_micro_batches": 1, "iteration_s": 0.001}
    request = {"job": GPT, "gpus": [{"gpu_type": "h100", "counts": [8]}], "measurements": [measured]}
    degrees = {"pp": 1, "dp": 4, "tp": 2, "num_micro_batches": 1}
    best = answered(client, {**request, "degrees": degrees}).best
    assert (best.measured, best.iteration_s) == (True, 0.001)


def test_a_cluster_offers_what_is_free(client: httpx.Client) -> None:
    answer = answered(client, {"job": GPT, "cluster": changed(CLUSTER, "/nodes/1/gpus_in_use", [0])})
    assert {node for point in answer.points for stage in point.plan.stages for node in [stage.replicas[0].node]} <= {
        "n0",
        "n1",
    }
    assert max(point.num_gpus for point in answer.points) == 7
    exact = answered(client, {"job": GPT, "cluster": CLUSTER, "placement": {"n1": [1, 2]}})
    assert [(rank.node, rank.gpu) for rank in exact.launch.ranks] == [("n1", 1), ("n1", 2)]


def test_a_given_plan_that_does_not_fit_is_evaluated(client: httpx.Client) -> None:
    degrees = {"pp": 1, "dp": 1, "tp": 1, "num_micro_batches": 64}
    best = answered(client, {"job": LLAMA, "gpus": [{"gpu_type": "h100"}], "degrees": degrees}).best
    assert not best.fits
    assert best.needed_bytes > best.usable_bytes == 72e9
    assert best.iteration_s > 0.0


def test_checkpointing_is_left_to_the_search(client: httpx.Client) -> None:
    found = answered(
        client,
        {"job": {**GPT, "checkpointing": "auto", "software": "torch"}, "gpus": [{"gpu_type": "h100", "counts": [2]}]},
    )
    assert {other.training.checkpointing for other in found.alternatives} == {"none", "selective", "full"}
    assert found.alternatives[0].training == found.best.training


def test_a_running_job_grows(client: httpx.Client) -> None:
    answer = answered(client, GROWING)
    assert answer.planner == "incremental"
    assert answer.points[0].plan.model_dump(mode="json") == {
        "stages": [{**stage, "checkpointing": None, "recomputed_layers": None} for stage in RUNNING["stages"]],
        "num_micro_batches": 8,
        "virtual_stages": 1,
        "schedule": "1f1b",
        "training": None,
        "context_parallel": 1,
        "expert_parallel": 1,
    }
    assert answer.best.num_gpus > 4
    assert answer.grids == ()


def test_a_running_plan_is_believed_where_the_prediction_is_not(client: httpx.Client) -> None:
    small = {**_KIND, "memory_bytes": 1_600_000_000}
    answer = answered(client, changed(GROWING, "/cluster/gpu_types/0", small))
    assert answer.points[0].stages[0].total_bytes > answer.points[0].stages[0].usable_bytes
    assert {(issue.code, issue.severity) for issue in answer.warnings} == {("out_of_memory", "warning")}
    assert answer.warnings[0].pointer == "/running/stages/0/replicas/0"
    grown = answer.points[-1]
    assert all(stage.total_bytes <= stage.usable_bytes for stage in grown.stages)


def test_what_is_passed_over_is_said(client: httpx.Client) -> None:
    misnamed = {**_KIND, "name": "h100"}
    coefficients = {"compute_s": 1e-3, "backward_ratio": 2.0, "optimizer_s": 1e-3, "overlap": 1.0}
    request = {
        "job": GPT,
        "gpu_types": [misnamed],
        "gpus": [{"gpu_type": "h100", "counts": [4]}],
        "calibration": {"gpus": {"h1000": coefficients, "v100": coefficients}},
    }
    found = {(issue.code, issue.pointer): issue.detail for issue in answered(client, request).warnings}
    assert found.keys() == {
        ("peak_not_used", "/gpu_types/0/peak_flops_per_s"),
        ("calibration_not_used", "/calibration/gpus/h1000"),
    }
    assert "312 TFLOP/s" in found["peak_not_used", "/gpu_types/0/peak_flops_per_s"]
    assert "did you mean 'h100'?" in found["calibration_not_used", "/calibration/gpus/h1000"]


def test_exhaustive_is_no_worse(client: httpx.Client) -> None:
    request = {"job": GPT, "gpus": [{"gpu_type": "a100", "counts": [4]}]}
    grid = answered(client, {**request, "options": {"num_operators": 4}})
    best = answered(client, {**request, "options": {"num_operators": 4, "planner": "exhaustive"}})
    assert best.best.throughput >= grid.best.throughput * (1 - 1e-9)
    assert best.tuner is None


DEGREES = {"pp": 2, "dp": 2, "tp": 4, "num_micro_batches": 32}
GIVEN = {"job": LLAMA, "gpus": [{"gpu_type": "h100"}], "degrees": DEGREES}
CASES: list[tuple[str, Json, str, Any, str, str, str]] = [
    # name, request, where it is changed, to what, expected code, pointer ("": where it was changed), words
    (
        "model fits nowhere",
        REQUEST,
        "/gpus",
        [{"gpu_type": "a10", "counts": [2]}],
        "out_of_memory",
        "/gpus/0",
        "needs at least",
    ),
    ("unknown model", REQUEST, "/job/model", "lama2-13b", "unknown_model", "", "did you mean 'llama2-13b'"),
    ("unknown gpu", REQUEST, "/gpus/0/gpu_type", "h10", "unknown_gpu_type", "", "did you mean 'h100'"),
    ("zero gpus", REQUEST, "/gpus/0/counts/1", 0, "not_positive", "", "is 0; must be at least 1"),
    ("no gpus", REQUEST, "/gpus", [], "one_of", "", "say which GPUs"),
    ("no counts", REQUEST, "/gpus/0", {"gpu_type": "h100"}, "missing_field", "/gpus/0/counts", "say how many"),
    (
        "half a range",
        REQUEST,
        "/gpus/0",
        {"gpu_type": "h100", "min_gpus": 2},
        "one_of",
        "",
        "both min_gpus and max_gpus",
    ),
    (
        "empty range",
        REQUEST,
        "/gpus/0",
        {"gpu_type": "h100", "min_gpus": 4, "max_gpus": 2},
        "out_of_range",
        "",
        "min_gpus above",
    ),
    ("type twice", REQUEST, "/gpus/1", H100, "listed_twice", "/gpus/1/gpu_type", "listed before"),
    ("heads", REQUEST, "/job/num_heads", 7, "heads_not_divisible", "", "do not divide hidden_size"),
    ("micro-batch", REQUEST, "/job/micro_batch", 3, "batch_not_divisible", "", "does not divide global_batch"),
    (
        "model and no shape",
        REQUEST,
        "/job",
        {"global_batch": 1, "num_layers": 3},
        "missing_field",
        "",
        "lacks hidden_size, vocabulary_size, sequence_length",
    ),
    ("tensor degree", GIVEN, "/degrees/tp", 16, "tensor_degree", "", "does not divide the 40"),
    (
        "tensor degree and node",
        {**GIVEN, "job": {**GPT, "num_heads": 16}},
        "/degrees/tp",
        16,
        "tensor_degree",
        "",
        "nodes have 8 GPUs",
    ),
    (
        "a stage of its own runs",
        GROWING,
        "/running/stages/0/checkpointing",
        "full",
        "checkpointing",
        "",
        "stages that recompute alike only",
    ),
    ("more stages than layers", GIVEN, "/degrees/pp", 41, "layers", "", "has 40 layers"),
    ("layers do not add up", GIVEN, "/degrees/layers", [20, 21], "layers", "", "2 stages with 41 layers"),
    ("batch", GIVEN, "/degrees/num_micro_batches", 5, "batch_not_divisible", "", "8 would do"),
    ("no such schedule", GIVEN, "/degrees/schedule", "gpipe", "unknown_value", "", "'1f1b', 'zero-bubble' or 'zbv'"),
    ("a schedule that runs", GROWING, "/running/schedule", "zbv", "schedule", "", "with 1 part a stage"),
    ("no virtual stages", GIVEN, "/degrees/virtual_stages", 2, "virtual_stages", "", "deepspeed has no interleaved"),
    (
        "no contexts",
        GIVEN,
        "/degrees/context_parallel",
        2,
        "not_in_software",
        "",
        "deepspeed has none: use 1, or one of",
    ),
    ("no experts", GIVEN, "/degrees/expert_parallel", 2, "not_in_software", "", "megatron-core"),
    ("degrees and counts", GIVEN, "/gpus/0/counts", [8], "wrong_count", "", "the degrees need 16"),
    ("given without degrees", REQUEST, "/options/planner", "given", "missing_field", "/degrees", "evaluates these"),
    (
        "too many to compare",
        REQUEST,
        "/options",
        {"planner": "exhaustive", "num_operators": 16},
        "too_many_plans",
        "/gpus/0",
        "use fewer GPUs",
    ),
    ("too much time", REQUEST, "/options/time_limit_s", 86400.0, "out_of_range", "", "at most 3600"),
    ("unknown field", REQUEST, "/job/layers", 3, "unknown_field", "", "there is no field 'layers'"),
    (
        "measured on nothing",
        REQUEST,
        "/measurements",
        [{"gpu_type": "x", "pp": 1, "dp": 1, "tp": 1, "iteration_s": 1.0}],
        "unknown_gpu_type",
        "/measurements/0/gpu_type",
        "no GPU product 'x'",
    ),
    ("placement without cluster", REQUEST, "/placement", {"n0": [0]}, "one_of", "", "give the cluster"),
    (
        "placement on taken gpus",
        {"job": GPT, "cluster": CLUSTER},
        "/placement",
        {"n0": [7]},
        "gpu_not_free",
        "/placement/n0",
        "free are",
    ),
    (
        "unknown type of a cluster",
        {"job": GPT, "cluster": CLUSTER},
        "/gpus",
        [{"gpu_type": "aa", "counts": [1]}],
        "unknown_gpu_type",
        "/gpus/0/gpu_type",
        "did you mean 'a'",
    ),
    (
        "own types beside a cluster",
        {"job": GPT, "cluster": CLUSTER},
        "/gpu_types",
        [_KIND],
        "one_of",
        "",
        "leave these",
    ),
    (
        "no free gpus",
        {"job": GPT, "cluster": {**CLUSTER, "nodes": [{"id": "n", "gpu_type": "a", "num_gpus": 1}]}},
        "/cluster/nodes/0/state",
        "drained",
        "no_free_gpus",
        "/cluster/nodes",
        "no node that is up",
    ),
    ("a batch beyond reason", REQUEST, "/job/global_batch", 10**9, "out_of_range", "", "at most 1048576"),
    ("running without cluster", GROWING, "/cluster", None, "missing_field", "", "is missing"),
    ("released what is not there", GROWING, "/released", {"n1": [5]}, "gpu_not_free", "/released/n1", "GPU 5"),
    (
        "released on a node that is down",
        GROWING,
        "/cluster/nodes/1/state",
        "down",
        "gpu_not_free",
        "/released/n1",
        "not up",
    ),
    (
        "released what is in use",
        GROWING,
        "/cluster/nodes/1/gpus_in_use",
        4,
        "gpu_not_free",
        "/released/n1",
        "taken",
    ),
    ("running plan of another model", GROWING, "/job/num_layers", 13, "layers", "/running/stages", "13"),
    (
        "heads that the running plan does not divide",
        GROWING,
        "/job",
        {**GPT, "num_heads": 1, "head_size": 64},
        "tensor_degree",
        "/running/stages/0/replicas",
        "does not divide",
    ),
    ("degrees beside a running plan", GROWING, "/degrees", DEGREES, "one_of", "", "leave it out"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "pointer", "value", "code", "expected", "words"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_is_refused(
    client: httpx.Client, request_: Json, pointer: str, value: Any, code: str, expected: str, words: str
) -> None:
    issues = refused(client, changed(request_, pointer, value))
    assert (code, expected or pointer) in [issue[:2] for issue in issues], issues
    assert any(words in detail for found, _, detail in issues if found == code), issues


def test_what_is_found_within_the_limit_is_answered(client: httpx.Client) -> None:
    # By then a worker is up, and knows the planner.
    answered(client, {"job": GPT, "gpus": [{"gpu_type": "h100", "counts": [1]}]})
    offer = {"gpu_type": "h100", "counts": list(range(1, 65))}
    answer = answered(client, {"job": GPT, "gpus": [offer], "options": {"time_limit_s": 0.5}})
    found = [point.num_gpus for point in answer.points]
    assert found == list(range(1, len(found) + 1))
    assert [missing.num_gpus for missing in answer.missing] == list(range(len(found) + 1, 65))
    assert answer.missing
    assert {rejection.reason for missing in answer.missing for rejection in missing.rejections} == {"time"}


def test_nothing_takes_longer_than_its_limit(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.parallel.service, "_PLAN_TASK", "tests.api.tasks:deaf_task")
    answer = post(client, "/v1/parallel-plans", changed(REQUEST, "/options", {"time_limit_s": 1e-3}))
    assert (answer.status_code, answer.json()["code"]) == (504, "worker_timeout")
    assert "not done within 0.001 s" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("picture", "kind", "start"), [("svg", "image/svg+xml", b"<?xml"), ("png", "image/png", b"\x89PNG")]
)
def test_pictures(client: httpx.Client, picture: str, kind: str, start: bytes) -> None:
    answer = post(client, f"/v1/parallel-plans/figure.{picture}", REQUEST)
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert answer.content.startswith(start)


def test_a_picture_of_another_kind(client: httpx.Client) -> None:
    answer = post(client, "/v1/parallel-plans/figure.gif", REQUEST)
    assert answer.status_code == 422
    assert "path parameter 'picture'" in answer.json()["errors"][0]["detail"]


CONFIG: Json = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}


def test_latent_attention_and_shared_experts_of_your_own(client: httpx.Client) -> None:
    latent = {"head_size": 96, "rotary_head_size": 32, "value_head_size": 64, "query_rank": 256, "kv_rank": 128}
    experts = {"num_experts": 4, "experts_per_token": 2, "expert_feed_forward_size": 512, "shared_expert_size": 512}
    job = {**GPT, **latent, **experts, "first_dense_layers": 1, "biases": "none", "normalisation": "rmsnorm"}
    answer = answered(client, {"job": job, "gpus": [H100]})
    attention = 1024 * 256 + 256 * 16 * 96 + 1024 * (128 + 32) + 128 * 16 * (64 + 64) + 16 * 64 * 1024 + 256 + 128
    dense, mixture = 2 * 1024 * 4096, 5 * 2 * 1024 * 512 + 4 * 1024
    others = 12 * (attention + 2 * 1024) + 1024 + 1024 * (32000 + 512)
    assert answer.job.num_parameters == others + dense + 11 * mixture
    faults = refused(
        client, {"job": {**job, "kv_rank": None, "num_experts": 1, "experts_per_token": 1}, "gpus": [H100]}
    )
    assert {pointer for _, pointer, _ in faults} == {
        f"/job/{field}"
        for field in (*latent, "first_dense_layers", "expert_feed_forward_size", "shared_expert_size")
        if field not in ("head_size", "kv_rank")
    }


def test_a_model_as_hugging_face_describes_it(client: httpx.Client) -> None:
    """The released Qwen3 0.6B costs what the catalogue's does; what stands beside it takes precedence."""
    job = {"config": CONFIG, "sequence_length": 2048, "global_batch": 64}
    offer = {"gpu_type": "h100", "counts": [8]}
    answer = answered(client, {"job": job, "gpus": [offer]})
    assert answer.job.num_parameters == 596_049_920
    named = {"model": "qwen3-0.6b", "sequence_length": 2048, "global_batch": 64}
    known = answered(client, {"job": named, "gpus": [offer]})
    assert answer.best.iteration_s == known.best.iteration_s
    half = answered(client, {"job": {**job, "num_layers": 14}, "gpus": [offer]})
    assert half.best.iteration_s < 0.7 * answer.best.iteration_s


@pytest.mark.parametrize(
    ("job", "pointer", "detail"),
    [
        ({"config": CONFIG}, "/job", "lacks sequence_length; config says only how long sequences may be"),
        ({"config": CONFIG, "sequence_length": 8, "model": "gpt2-350m"}, "/job", "give one of model and config"),
        (
            {"config": {**CONFIG, "hidden_size": None}, "sequence_length": 8},
            "/job/config",
            "the description of the model has 1 fault: /hidden_size is missing; a whole number from 1 on",
        ),
        (
            {"config": {"model_type": "t5"}, "sequence_length": 8},
            "/job/config",
            "/model_type is 't5', which is not read",
        ),
    ],
)
def test_configurations_that_are_refused(client: httpx.Client, job: Json, pointer: str, detail: str) -> None:
    ((_, found, said),) = refused(client, {"job": {"global_batch": 8, **job}, "gpus": [H100]})
    assert found == pointer
    assert detail in said
