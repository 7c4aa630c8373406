"""What a scheduler says, posted as texts, becomes a snapshot that can be planned."""

from typing import Any

import httpx
import pytest

from api.schemas.cluster_state import IMPORT_EXAMPLE
from benchmarks.workloads.slurm_documents import document, job, node, running
from tests.api.asking import planned, post
from tests.topology.node_readers.test_nccl import gpu, net, system

_PATH = "/v1/snapshots:import"
_NODES = [node(f"n{k}") for k in range(4)]


def body(*jobs: dict[str, Any], nodes: Any = _NODES, **fields: Any) -> dict[str, Any]:
    texts = {"nodes": document("nodes", nodes), "queue": document("jobs", jobs)}
    documents = [{"role": role, "name": f"{role}.json", "text": text} for role, text in texts.items()]
    return {"format": "slurm", "documents": documents, **fields}


def test_the_example_becomes_a_snapshot_that_is_planned(client: httpx.Client) -> None:
    answer = post(client, _PATH, IMPORT_EXAMPLE)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [(job["id"], job["min_gpus"]) for job in found["snapshot"]["jobs"]] == [("7", 8)]
    plan = planned(client, {"policy": "gang", "snapshot": found["snapshot"]})
    assert plan["verified"], plan
    assert [item["job_id"] for item in plan["allocations"]] == ["7"]


def test_held_jobs_and_notes_stand_beside_it(client: httpx.Client) -> None:
    jobs = [running(1, "n0", ["gpu:h100:2(IDX:0-1)"]), job(2, priority=0), job(3, features="ib"), job(4, features="ib")]
    found = post(client, _PATH, body(*jobs)).json()
    assert found["held"] == [{"id": "2", "num_gpus": 8, "why": "held (priority 0)"}]
    (note,) = found["notes"]
    assert (note["code"], note["document"], note["pointer"], note["count"]) == (
        "constraints_not_planned",
        "queue.json",
        "/jobs/2",
        2,
    )
    released = post(client, _PATH, body(*jobs, jobs={"2": {"weight": 2.0}})).json()
    assert released["held"] == []
    assert {job["id"]: job["weight"] for job in released["snapshot"]["jobs"]}["2"] == 2.0


def test_gpus_are_said_beside_the_documents(client: httpx.Client) -> None:
    nodes = [node("n1", "gpu:8"), node("n2", "gpu:big:4"), node("n3", "gpu:own:2")]
    own = {
        "name": "own",
        "memory_bytes": 10**9,
        "peak_flops_per_s": 1e12,
        "intra_node_bandwidth_bytes_per_s": 1e9,
        "inter_node_bandwidth_bytes_per_s": 1e9,
    }
    said = {"gpu_type": "a100", "gpu_products": {"big": "h200"}, "gpu_types": [own]}
    found = post(client, _PATH, body(nodes=nodes, **said)).json()
    kinds = found["snapshot"]["cluster"]["gpu_types"]
    assert {kind["name"]: kind["memory_bytes"] for kind in kinds} == {
        "a100": 40 * 10**9,
        "big": 141 * 10**9,
        "own": 10**9,
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "pbs"}, "there is no format 'pbs' of cluster states; the formats are slurm"),
        ({"settings": {"zone": "a"}}, "slurm has no setting 'zone'"),
        ({"jobs": {"9": {}}}, "there is no job '9'"),
        ({"jobs": {"1": {"colour": "red"}}}, "/jobs/1/colour"),
        ({"jobs": {"1": {"min_gpus": 0}}}, "/jobs/1/min_gpus"),
        ({"documents": [{"role": "pods", "text": "{}"}]}, "slurm has no document 'pods'"),
        ({"documents": [{"role": "nodes", "text": "{"}]}, "nodes:1: no JSON"),
        ({"minipod_tier": "pod"}, "no tier is called 'pod'"),
    ],
)
def test_what_is_wrong_is_told(client: httpx.Client, change: dict[str, Any], said: str) -> None:
    answer = post(client, _PATH, body(job(1)) | change)
    assert answer.status_code == 422, answer.text
    assert said in answer.text


def test_what_is_wrong_in_a_document_is_told_with_its_place(client: httpx.Client) -> None:
    answer = post(client, _PATH, body(running(1, "n7", ["gpu:h100:1(IDX:0)"])))
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid_file"
    said = "queue.json: /jobs/0/nodes: job '1' runs on node 'n7', which nodes.json does not have"
    assert answer.json()["detail"] == said


def test_nodes_are_known_from_inside(client: httpx.Client) -> None:
    topology = system(gpu(0), gpu(1), net("mlx5_0"))
    found = post(client, _PATH, body(node_topologies={"h100": topology})).json()
    (kind,) = found["snapshot"]["cluster"]["gpu_types"]
    assert kind["inter_node_bandwidth_bytes_per_s"] == 50e9
    (note,) = found["notes"]
    assert (note["code"], note["document"], note["count"]) == ("node_topology_differs", "node_topologies/h100", 4)
    refused = post(client, _PATH, body(node_topologies={"h100": "GPU0 GPU1"}))
    assert refused.status_code == 422
    assert "node_topologies/h100" in refused.text
