import json

import httpx
import pytest

from api.common.examples import example
from tests.api.asking import planned, post
from tests.api.requests import Json, changed
from tests.models.cluster_state.kubernetes_documents import listed, node, pod


@pytest.fixture(scope="module")
def plan(client: httpx.Client) -> Json:
    return planned(client, example("arnold-fig12").request)


def test_a_placement_is_exported(client: httpx.Client, plan: Json) -> None:
    answer = client.get(f"{plan['links']['self']}/jobs/moe-24b/export", params={"to": ["megatron", "slurm"]})
    assert answer.status_code == 200, answer.text
    files = answer.json()["files"]
    assert files["slurm_hosts"].split()[::8] == list(plan["communication"]["hosts"])
    # The stored request says what the job trains.
    assert "--hidden-size" in files["megatron.sh"]


@pytest.mark.parametrize(
    ("job", "to", "status", "code"),
    [
        ("moe-24b", "jax", 422, "invalid_input"),
        ("nobody", "slurm", 404, "not_found"),
        ("moe-24b", "torchtitan", 422, "invalid_input"),
    ],
)
def test_what_cannot_be_exported(client: httpx.Client, plan: Json, job: str, to: str, status: int, code: str) -> None:
    answer = client.get(f"{plan['links']['self']}/jobs/{job}/export", params={"to": to})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_a_format_has_to_be_named(client: httpx.Client, plan: Json) -> None:
    assert client.get(f"{plan['links']['self']}/jobs/moe-24b/export").status_code == 422


def test_a_job_is_exported_with_options(client: httpx.Client, plan: Json) -> None:
    query = {"to": "slurm", "option": ["partition=gpu", "command=python train.py"]}
    answer = client.get(f"{plan['links']['self']}/jobs/moe-24b/export", params=query)
    script = answer.json()["files"]["job.sbatch"]
    assert "#SBATCH --partition=gpu" in script
    assert "python train.py" in script
    wrong = client.get(f"{plan['links']['self']}/jobs/moe-24b/export", params={"to": "slurm", "option": "x=1"})
    assert (wrong.status_code, wrong.json()["errors"][0]["code"]) == (422, "unknown_option")


def test_a_whole_plan_is_handed_over(client: httpx.Client) -> None:
    request = changed(example("arnold-fig12").request, "/snapshot/jobs/0/id", "41")
    whole = planned(client, request)
    answer = client.get(f"{whole['links']['self']}/export", params={"to": "scontrol", "option": "priority=keep"})
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert document["plan_id"] == whole["id"]
    actions = json.loads(document["files"]["actions.json"])
    assert [item["action"] for item in actions["actions"]] == ["hold", "steer", "release"]
    assert set(actions["actions"][1]["nodes"]) == set(whole["communication"]["hosts"])
    # Of a snapshot that says no moment: when it came.
    assert actions["taken_at_s"] > 0
    assert document["files"]["hosts-41"].split()[::8] == whole["communication"]["hosts"]
    assert document["notes"] == actions["notes"] == []


def test_what_cannot_be_handed_over(client: httpx.Client, plan: Json) -> None:
    def said(path: str, **query: str) -> tuple[int, str]:
        answer = client.get(path, params=query)
        return answer.status_code, answer.json()["code"]

    path = f"{plan['links']['self']}/export"
    assert said(path, to="slurm") == (422, "invalid_input")
    assert said(path, to="scontrol") == (422, "invalid_input")
    assert client.get(path).status_code == 422
    assert said("/v1/plans/nobody/export", to="scontrol") == (404, "not_found")
    infeasible = planned(client, example("infeasible-reservations").request)
    assert said(f"{infeasible['links']['self']}/export", to="scontrol") == (404, "not_found")


@pytest.fixture(scope="module")
def export(client: httpx.Client) -> Json:
    """What a client makes of an answer of the planner: 16 GPUs on two nodes that it calls 0 and 1."""
    model = {"model": "llama3.1-8b", "global_batch": 64, "software": "torch"}
    degrees = {"pp": 2, "dp": 4, "tp": 2, "num_micro_batches": 16}
    asked = {"job": model, "gpus": [{"gpu_type": "h100"}], "degrees": degrees}
    answer = post(client, "/v1/parallel-plans", asked).json()
    body: Json = {"plan": answer["best"]["plan"], "job": answer["transformer"], "hosts": ["gpu-[7,3] slots=8"]}
    return body | {"to": ["torchtitan", "slurm"], "job_id": "llm"}


def test_a_parallel_plan_is_exported_to_hosts(client: httpx.Client, export: Json) -> None:
    answer = post(client, "/v1/parallel-plans:export", export)
    assert answer.status_code == 200, answer.text
    files = answer.json()["files"]
    assert files["slurm_hosts"].split() == ["gpu-7"] * 8 + ["gpu-3"] * 8
    assert "pipeline_parallel_degree = 2" in files["torchtitan.toml"]
    assert "job llm" in files["torchtitan.toml"]
    # Launchers need no model.
    bare = export | {"job": None} | {"to": ["torchrun", "mpi"]}
    assert post(client, "/v1/parallel-plans:export", bare).json()["files"]["rankfile"].startswith("rank 0=gpu-7")


@pytest.mark.parametrize(
    ("pointer", "value", "where", "message"),
    [
        ("/hosts", ["gpu-7"], "/hosts", "16 ranks on 2 nodes; the file names 1 host"),
        ("/hosts", ["a", "b", "a"], "/hosts/2", "a is named again"),
        ("/hosts", ["a", "b; rm"], "/hosts/1", "'b; rm' is no host name"),
        ("/hosts", ["a", "b slots=4"], "/hosts", "host b has 4 slots; the plan uses GPU 7"),
        ("/hosts", [f"n{k}-[1-65000]" for k in range(9)], "/hosts", "more than 200000 hosts are named"),
        ("/hosts", None, "/hosts", "nodes 0, 1, which are no hosts; name yours with hosts"),
        ("/to/0", "jax", "/to/0", "'megatron', 'nemo', 'torchtitan'"),
        ("/to", [], "/to", "at least 1"),
        ("/plan/stages/1/replicas/2/local_batch", 3, "/plan/stages", "micro-batches of [4, 6] sequences"),
        ("/plan/stages/0/num_layers", 15, "/plan/stages", "the plan has 31 layers, the model 32"),
        ("/plan/num_micro_batches", 8, "/plan", "the plan makes 32 sequences a step, the model's global batch is 64"),
        ("/job/optimizer", "sgd", "/to/0", "torchtitan has no optimiser sgd"),
        ("/options", {"x": "1"}, "/options/x", "no such option of torchtitan and slurm"),
        ("/job", None, "/to/0", "torchtitan trains models of its own"),
    ],
)
def test_what_is_wrong_is_said(
    client: httpx.Client, export: Json, pointer: str, value: object, where: str, message: str
) -> None:
    answer = post(client, "/v1/parallel-plans:export", changed(export, pointer, value))
    assert answer.status_code == 422, answer.text
    assert any(
        issue["pointer"].startswith(where) and message in issue["detail"] for issue in answer.json()["errors"]
    ), answer.text


def test_stages_that_differ_are_for_launchers_only(client: httpx.Client, export: Json) -> None:
    """Four replicas on two GPUs each, then eight on one."""
    wide, narrow = (stage["replicas"] for stage in export["plan"]["stages"])
    pairs = [{**one, "local_batch": 2} for one in wide]
    alone = [{**one, "gpus": [gpu]} for one in narrow for gpu in one["gpus"]]
    uneven = changed(changed(export, "/plan/stages/0/replicas", pairs), "/plan/stages/1/replicas", alone)
    uneven["plan"]["num_micro_batches"] = 8
    for to in ("megatron", "nemo", "torchtitan", "deepspeed"):
        answer = post(client, "/v1/parallel-plans:export", uneven | {"to": [to]})
        assert answer.status_code == 422, answer.text
        (issue,) = answer.json()["errors"]
        assert (issue["pointer"], "needs the same degrees in all stages" in issue["detail"]) == ("/to/0", True)
    assert post(client, "/v1/parallel-plans:export", uneven | {"to": ["torchrun", "slurm", "mpi"]}).status_code == 200


def test_a_plan_is_handed_over_to_kubernetes(client: httpx.Client) -> None:
    gated = [{"name": "stowplan/placement"}]
    documents = [
        {"role": "nodes", "text": listed(node("n1", {}))},
        {"role": "pods", "text": listed(pod("x-0", "x", schedulingGates=gated))},
    ]
    asked = {"format": "kubernetes", "documents": documents}
    snapshot = post(client, "/v1/snapshots:import", asked).json()["snapshot"]
    plan = planned(client, {"policy": "gang", "snapshot": snapshot})
    given = {"to": "kubernetes", "options": {"pods": documents[1]["text"]}}
    answer = post(client, f"{plan['links']['self']}:export", given)
    assert answer.status_code == 200, answer.text
    assert "kubectl patch pods x-0 --namespace team" in answer.json()["files"]["apply.sh"]
    # Small documents go into the path, too.
    query = {"to": "kubernetes", "option": [f"pods={documents[1]['text']}"]}
    assert client.get(f"{plan['links']['self']}/export", params=query).json() == answer.json()
    query = {"to": "trainjob", "option": ["image=a:1", "command=train.py"]}
    files = client.get(f"{plan['links']['self']}/jobs/team/x/export", params=query).json()["files"]
    assert "kubernetes.io/hostname: n1" in files["trainjob.yaml"]
    for wrong, pointer in (
        ({"to": "jobset"}, "/to"),
        ({"to": "kubernetes", "options": {"pods": documents[1]["text"], "retry": "x"}}, "/retry"),
        ({"to": "kubernetes", "options": {"queue": "x"}}, "/queue"),
    ):
        answer = post(client, f"{plan['links']['self']}:export", wrong)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer), answer.text
