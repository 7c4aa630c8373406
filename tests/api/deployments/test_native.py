"""Plans that are not symmetric, deployed under the native engine: those of Suika, and those that cannot be run."""

from typing import Any

import httpx
import pytest

from api.deployments.choice import PlannedJob, choose, engine_of, given_model
from api.schemas.deployment import DeploymentBody
from models.software import Software
from tests.api.asking import planned
from tests.api.deployments.test_checks import refusal
from tests.api.deployments.test_deployments import body, client, folder, wait
from tests.api.requests import json_text

pytestmark = pytest.mark.slow

# pytest finds fixtures by name in the module that uses them.
__all__ = ["client", "folder"]

NATIVE: dict[str, Any] = {"device": "cpu", "num_steps": 2000, "checkpoint_interval": 5, "engine": "native"}
MODEL: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 64,
    "vocabulary_size": 96,
    "sequence_length": 32,
    "global_batch": 8,
    "num_heads": 4,
    "precision": "fp32",
}


def _kind(name: str, peak: float) -> dict[str, Any]:
    links = {"intra_node_bandwidth_bytes_per_s": 1e8, "inter_node_bandwidth_bytes_per_s": 1e8}
    return {"name": name, "memory_bytes": 4 * 2**30, "peak_flops_per_s": peak, **links}


CLUSTER: dict[str, Any] = {
    "gpu_types": [_kind("fast", 6e10), _kind("slow", 4e10)],
    "nodes": [{"id": node, "gpu_type": "fast", "num_gpus": 2} for node in ("f1", "f2", "f3")]
    + [{"id": "s1", "gpu_type": "slow", "num_gpus": 2}],
}
LONG: dict[str, Any] = {
    "id": "long",
    "min_gpus": 4,
    "max_gpus": 6,
    "gpu_types": ["fast"],
    "transformer": MODEL,
    "parallelism": {"pp": 2, "dp": 2, "tp": 1},
}
SHORT: dict[str, Any] = {
    "id": "short",
    "min_gpus": 2,
    "max_gpus": 2,
    "gpu_types": ["fast"],
    "transformer": MODEL,
    "parallelism": {"pp": 1, "dp": 2, "tp": 1},
}


def uneven(*shares: int, node: str = "s1", gpu_type: str = "slow", layers: int = 3) -> dict[str, Any]:
    """A replica for every share on one node, then a tensor group with four sequences on GPUs of another type."""
    first = [{"node": node, "gpu_type": gpu_type, "gpus": [k], "local_batch": batch} for k, batch in enumerate(shares)]
    second = {"node": "f1", "gpu_type": "fast", "gpus": [0, 1], "local_batch": 4}
    stages = [{"num_layers": layers, "replicas": first}, {"num_layers": 1, "replicas": [second]}]
    return {"stages": stages, "num_micro_batches": 2}


def test_what_suika_plans_is_deployed_and_grown(client: httpx.Client) -> None:
    """A job beside it ends: its GPUs go to the one that runs, whose next plan is not symmetric."""
    first = planned(client, {"policy": "suika", "snapshot": {"cluster": CLUSTER, "jobs": [SHORT, LONG]}})
    # Both before anything is measured.
    (given,) = (known for known in first["allocations"] if known["job_id"] == "long")
    now = {**LONG, "current": given["gpus"], "parallel_plan": given["parallel_plan"]}
    second = planned(client, {"policy": "suika", "snapshot": {"cluster": CLUSTER, "jobs": [now]}})
    request = {key: value for key, value in body(job_id="long", plan_id=first["id"]).items() if key != "plan"}
    request |= {"job": MODEL, "training": NATIVE}
    made = client.post("/v1/deployments", json=request)
    assert made.status_code == 201, made.text
    assert made.json()["notation"] == "PP2 DP2 TP1 (2+2 layers, 2 x 4)"
    path = made.headers["Location"]
    wait(client, path, lambda document: document["phase"] == "running" and document["step"] > 0)
    changed = client.post(f"{path}:reconfigure", json={"plan_id": second["id"]})
    assert changed.status_code == 202, changed.text
    grown = wait(client, path, lambda document: document["runs"][-1]["change"] == "rescale")
    assert (grown["notation"], grown["projection"]) == ("1L 2x1 | 3L 4x1 (1 x 8)", None)
    assert grown["restart_cost_s"] == grown["change_costs_s"]["rescale"]
    client.post(f"{path}:stop")
    wait(client, path, lambda document: document["phase"] == "stopped")


@pytest.mark.parametrize(
    ("plan", "code", "pointer", "says"),
    [
        (uneven(3, 2), "micro_batch_differs", "/plan/stages", "micro-batches of [4, 5] sequences"),
        (uneven(4, 0), "not_positive", "/plan/stages/0/replicas/1/local_batch", "must be at least 1"),
        (uneven(3, 1, layers=2), "layers", "/plan/stages", "have 3 layers together; transformer has 4"),
        (uneven(2, 1, 1), "gpu_not_free", "/plan/stages/0/replicas/2/gpus", "GPU 2 of node 's1' is taken or does not"),
        (uneven(3, 1, node="s2"), "unknown_node", "/plan/stages/0/replicas/0/node", "there is no node 's2'"),
        (uneven(3, 1, gpu_type="fast"), "gpu_type", "/plan/stages/0/replicas/0/gpu_type", "has GPUs of type 'slow'"),
    ],
    ids=["shares", "no-share", "layers", "ranks-beyond-the-host", "host", "type"],
)
def test_what_the_native_engine_cannot_run(
    client: httpx.Client, plan: dict[str, Any], code: str, pointer: str, says: str
) -> None:
    answer = client.post("/v1/deployments", json=body(job=MODEL, plan=plan, cluster=CLUSTER, training=NATIVE))
    status, issues = refusal(answer)
    assert (status, issues[0]) == (422, (code, pointer))
    assert says in answer.json()["errors"][0]["detail"]
    assert client.get("/v1/deployments").json() == {"deployments": []}


@pytest.mark.parametrize("software", ["deepspeed", "torch-eager", "native"])
def test_a_plan_is_predicted_by_the_engine_that_runs_it(software: str) -> None:
    text = body(job={**MODEL, "software": software}, plan=uneven(3, 1), cluster=CLUSTER, training=NATIVE)
    asked = DeploymentBody.model_validate_json(json_text(text))
    model = given_model(asked)
    assert model is not None
    found = choose(asked, "long", model, _no_plan, engine=engine_of(asked)).model
    assert found.software is Software.NATIVE
    # Trained as it was planned.
    assert found.splits_sequences == model.splits_sequences == (software != "deepspeed")


def _no_plan(plan_id: str, job_id: str) -> PlannedJob:
    raise AssertionError(f"nobody asked for {job_id} of {plan_id}")


def test_uneven_shares_on_gpus_of_two_types_are_deployed(client: httpx.Client) -> None:
    """Also where nobody knows the nodes; but every node has GPUs of one type. At ZeRO stage 3 beside a pipeline, which
    the engine has, whatever the plan was made for."""
    sharded = {**MODEL, "zero_stage": 3}
    request = body(job=sharded, plan=uneven(3, 1), training={**NATIVE, "num_steps": 12})
    mixed = uneven(3, 1)
    mixed["stages"][0]["replicas"][1]["gpu_type"] = "fast"
    refused = client.post("/v1/deployments", json={**request, "plan": mixed})
    assert refusal(refused) == (422, [("gpu_type", "/plan/stages/0/replicas/1/gpu_type")])
    eager = {"job": {**sharded, "software": "torch-eager"}, "cluster": CLUSTER}
    for known in ({}, eager):
        made = client.post("/v1/deployments", json={**request, **known})
        assert made.status_code == 201, made.text
        done = wait(client, made.headers["Location"], lambda document: document["phase"] == "finished")
        assert (done["notation"], done["step"]) == ("3L 2x1 | 1L 1x2 (2 x 4)", 12)
