"""Jobs with models and 3D plans in requests for plans: what goes in, what comes out, and what is refused."""

from typing import Any

import httpx
import pytest

from tests.api.asking import planned, post, refused
from tests.api.requests import Json, changed, sia_request

GPT: Json = {
    "num_layers": 8,
    "hidden_size": 1024,
    "num_heads": 16,
    "vocabulary_size": 32000,
    "sequence_length": 512,
    "global_batch": 32,
}
OPERATOR: Json = {
    "name": "o",
    "parameters": 1000,
    "forward_flops": 1e9,
    "memory_traffic_bytes": 1e6,
    "activation_bytes": 1e6,
    "output_bytes": 1e5,
    "tensor_parallel_bytes": 0,
}
DEGREES: Json = {"pp": 2, "dp": 1, "tp": 2, "num_micro_batches": 8}
# Job j0 runs on the first node; j1 waits.
RUNNING: Json = {
    "id": "j0",
    "min_gpus": 4,
    "transformer": GPT,
    "current": {"n0": [0, 1, 2, 3]},
    "parallel_plan": DEGREES,
}
WAITING: Json = {"id": "j1", "transformer": {"model": "gpt2-350m", "global_batch": 32}}
ARENA: Json = sia_request([RUNNING, WAITING], policy="arena")
POLICIES = ("sia", "arena", "arena-ilp", "suika", "suika-ilp")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_gives_plans_that_can_be_launched_and_posted_again(client: httpx.Client, policy: str) -> None:
    request = changed(ARENA, "/policy", policy)
    plan = planned(client, request)
    assert (plan["policy"], plan["verified"]) == (policy, True)
    assert plan["bound"] is not None
    jobs = []
    for job, allocation in zip((RUNNING, WAITING), plan["allocations"], strict=True):
        places = [(node, gpu) for node, gpus in allocation["gpus"].items() for gpu in gpus]
        launch = allocation["launch"]
        assert sorted((rank["node"], rank["gpu"]) for rank in launch["ranks"]) == sorted(places)
        assert [rank["rank"] for rank in launch["ranks"]] == list(range(len(places)))
        ranked = [(host["node"], gpu) for host in allocation["ranks"] for gpu in host["gpus"]]
        assert ranked == [(rank["node"], rank["gpu"]) for rank in launch["ranks"]]
        assert launch["hostfile"].count("\n") == len(allocation["gpus"])
        given = {name: allocation[name] for name in ("parallel_plan", "expansions")}
        jobs.append({**job, "current": allocation["gpus"], **given})
    again = changed(request, "/snapshot/jobs", jobs)
    assert post(client, "/v1/plans:validate", again).json() == {"valid": True, "issues": []}
    kept = planned(client, again)
    assert kept["verified"]
    assert client.get(plan["links"]["figure"]).status_code == 200


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_left_open_is_chosen_and_said(client: httpx.Client, policy: str) -> None:
    job = changed(WAITING, "/transformer", {**WAITING["transformer"], "checkpointing": "auto", "zero_stage": "auto"})
    request = sia_request([job], policy=policy)
    (allocation,) = planned(client, request)["allocations"]
    plan = allocation["parallel_plan"]
    assert plan["training"]["checkpointing"] in ("none", "selective", "full")
    running = {**job, "current": allocation["gpus"], "parallel_plan": plan, "expansions": allocation["expansions"]}
    again = changed(request, "/snapshot/jobs", [running])
    assert post(client, "/v1/plans:validate", again).json() == {"valid": True, "issues": []}
    unsaid = changed(again, "/snapshot/jobs/0/parallel_plan/training", None)
    assert ("training", "/snapshot/jobs/0/parallel_plan/training") in refused(client, unsaid)[1]


def test_a_plan_in_short_is_the_plan_in_full(client: httpx.Client) -> None:
    plan = planned(client, changed(ARENA, "/snapshot/jobs/0/preemptible", False))
    stages = plan["allocations"][0]["parallel_plan"]["stages"]
    assert [(stage["num_layers"], stage["replicas"][0]["gpus"]) for stage in stages] == [(4, [0, 1]), (4, [2, 3])]


JOB = "/snapshot/jobs/0"
CASES: list[tuple[str, str, Any, str, str]] = [
    # name, where it is changed, to what, expected code, expected pointer ("": where it was changed)
    ("deadline in the past", f"{JOB}/deadline_s", -60.0, "deadline_in_the_past", ""),
    ("priority 0", f"{JOB}/priority", 0, "not_positive", ""),
    ("priority beyond the queues", f"{JOB}/priority", 9, "priority_out_of_range", ""),
    ("nothing left", f"{JOB}/remaining_iterations", 0.0, "not_positive", ""),
    ("unknown model", "/snapshot/jobs/1/transformer/model", "gpt2-350", "unknown_model", ""),
    ("operators named as transformer", "/snapshot/jobs/1/transformer/model", "wide-resnet-1b", "unknown_model", ""),
    (
        "transformer named as operators",
        "/snapshot/jobs/1/operators",
        {"model": "gpt2-1.3b", "global_batch": 8},
        "unknown_model",
        "/snapshot/jobs/1/operators/model",
    ),
    ("two models", f"{JOB}/operators", {"operators": [OPERATOR], "global_batch": 8}, "one_of", ""),
    ("no operators", f"{JOB}/operators", {"global_batch": 8}, "one_of", ""),
    ("heads that do not divide", f"{JOB}/transformer/num_heads", 7, "heads_not_divisible", ""),
    ("no layers", f"{JOB}/transformer/num_layers", 0, "not_positive", ""),
    ("zero stage", f"{JOB}/transformer/zero_stage", 4, "out_of_range", ""),
    ("micro-batch", f"{JOB}/transformer/micro_batch", 5, "batch_not_divisible", ""),
    ("degrees without a model", f"{JOB}/transformer", None, "invalid_input", f"{JOB}/parallel_plan"),
    ("degrees of a waiting job", f"{JOB}/current", None, "invalid_input", f"{JOB}/parallel_plan"),
    ("degrees and gpus", f"{JOB}/parallel_plan/dp", 2, "invalid_input", f"{JOB}/parallel_plan"),
    ("parts of sequences", f"{JOB}/parallel_plan/context_parallel", 2, "not_in_software", ""),
    ("parts of stages", f"{JOB}/parallel_plan/virtual_stages", 2, "virtual_stages", ""),
    ("checkpointing", f"{JOB}/transformer/checkpointing", "some", "unknown_value", ""),
    (
        "how a plan in short trains",
        f"{JOB}/transformer/checkpointing",
        "auto",
        "training",
        f"{JOB}/parallel_plan/training",
    ),
    ("batch that does not divide", f"{JOB}/parallel_plan/num_micro_batches", 5, "batch_not_divisible", ""),
    ("layers of the stages", f"{JOB}/parallel_plan/layers", [8], "layers", ""),
    (
        "more stages than layers",
        f"{JOB}/transformer/num_layers",
        1,
        "layers",
        f"{JOB}/parallel_plan/pp",
    ),
    (
        "tensor degree that does not divide",
        f"{JOB}/transformer/num_heads",
        1,
        "tensor_degree",
        f"{JOB}/parallel_plan/tp",
    ),
    ("a field of the full plan", f"{JOB}/parallel_plan/stage", [], "unknown_field", ""),
    (
        "plan on other gpus",
        f"{JOB}/parallel_plan",
        {
            "stages": [{"num_layers": 8, "replicas": [{"node": "n1", "gpu_type": "a", "gpus": [0], "local_batch": 4}]}],
            "num_micro_batches": 8,
        },
        "plan_not_on_current",
        "",
    ),
    (
        "expansion elsewhere",
        f"{JOB}/expansions",
        [{"gpus": {"n1": [0]}, "benefit": 1.0}],
        "bad_expansion",
        f"{JOB}/expansions/0",
    ),
    ("parameters of another policy", "/parameters", {"window": 3}, "unknown_field", "/parameters/window"),
    ("horizon", "/parameters", {"horizon_s": 0.0}, "not_positive", "/parameters/horizon_s"),
    ("solver of another policy", "/options", {"solver": "exact"}, "unknown_value", "/options/solver"),
]


@pytest.mark.parametrize(
    ("pointer", "value", "code", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_is_refused(client: httpx.Client, pointer: str, value: Any, code: str, expected: str) -> None:
    status, issues = refused(client, changed(ARENA, pointer, value))
    assert status == 422
    assert (code, expected or pointer) in issues


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("zero_stage", "one", "must be a valid integer, or 'auto'"),
        ("zero_stage", 4, "must be at most 3, or 'auto'"),
        ("checkpointing", "some", "must be 'none', 'selective' or 'full', or 'auto'"),
    ],
)
def test_that_the_search_may_choose_is_told(client: httpx.Client, field: str, value: Any, right: str) -> None:
    answer = post(client, "/v1/plans", changed(ARENA, f"{JOB}/transformer/{field}", value))
    assert [issue["detail"].partition("; ")[2] for issue in answer.json()["errors"]] == [right]
