"""What is looked at before a plan is deployed: its nodes, their memory, who has the GPUs, room, names."""

import errno
import os
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from executor.launch.agent import GPUS_GIVEN
from executor.launch.backends import BACKENDS
from executor.launch.base import LaunchError
from executor.lifecycle import PhaseError
from stowplan.child_environment import child_environment
from tests.api.asking import planned, post
from tests.api.deployments.test_deployments import CLUSTER, JOB, body, client, folder, wait
from tests.api.measurements import batch_of

pytestmark = pytest.mark.slow

# pytest finds fixtures by name in the module that uses them.
__all__ = ["client", "folder"]

LONG: dict[str, Any] = {"device": "cpu", "num_steps": 2000, "checkpoint_interval": 5}
SHORT: dict[str, Any] = {"device": "cpu", "num_steps": 60, "checkpoint_interval": 5}
LLAMA = {"model": "llama2-13b", "global_batch": 1}


def on(*gpus: tuple[str, int], gpu_type: str = "cpu", num_layers: int = 4) -> dict[str, Any]:
    """One stage with a replica on each of these GPUs, and a step of eight sequences (one GPU: of one micro-batch)."""
    replicas = [
        {"node": node, "gpu_type": gpu_type, "gpus": [gpu], "local_batch": 8 // len(gpus)} for node, gpu in gpus
    ]
    return {"stages": [{"num_layers": num_layers, "replicas": replicas}], "num_micro_batches": 1}


def nodes(*names: str, **more: Any) -> dict[str, Any]:
    return {**CLUSTER, "nodes": [{"id": name, "gpu_type": "cpu", "num_gpus": 2, **more} for name in names]}


def deployed(client: httpx.Client, **changes: Any) -> str:
    answer = client.post("/v1/deployments", json=body(**changes))
    assert answer.status_code == 201, answer.text
    return answer.headers["Location"]


def refusal(answer: httpx.Response) -> tuple[int, list[tuple[str, str]]]:
    problem = answer.json()
    return answer.status_code, [(issue["code"], issue["pointer"]) for issue in problem["errors"]]


def stop(client: httpx.Client, path: str) -> None:
    client.post(f"{path}:stop")
    wait(client, path, lambda document: document["phase"] == "stopped")


@pytest.mark.parametrize("given", [False, True], ids=["catalogue", "given"])
def test_after_a_move_to_other_nodes_both_runs_are_measured(client: httpx.Client, folder: Path, given: bool) -> None:
    kind = "cpu" if given else "h100"
    first = {"cluster": nodes("n1")} if given else {}
    path = deployed(client, plan=on(("n1", 0), gpu_type=kind), training=SHORT, **first)
    wait(client, path, lambda document: document["step"] >= 2)
    change = {"plan": on(("n1", 0), ("n2", 0), gpu_type=kind)} | ({"cluster": nodes("n1", "n2")} if given else {})
    assert client.post(f"{path}:reconfigure", json=change).status_code == 202
    done = wait(client, path, lambda document: document["phase"] == "finished")
    assert [run["cause"] for run in done["runs"]] == ["deployed", "reconfigured"]
    known = wait(client, "/v1/jobs/tiny/metrics", lambda document: document["steps"][0]["step"] == 60)
    assert known["steps"][0]["launch"] != known["steps"][-1]["launch"]
    notations = {run["notation"][:11] for run in client.get("/v1/jobs/tiny/performance").json()["runs"]}
    assert notations == {"PP1 DP1 TP1", "PP1 DP2 TP1"}
    assert list(folder.glob("deployment-*/refused-*.jsonl")) == []


def test_nodes_that_become_known_later_are_measured_from_then_on(client: httpx.Client, folder: Path) -> None:
    path = deployed(client, plan=on(("n1", 0)), training=SHORT)
    wait(client, path, lambda document: document["step"] >= 2)
    change = {"plan": on(("n2", 0), ("n2", 1)), "cluster": nodes("n2")}
    assert client.post(f"{path}:reconfigure", json=change).status_code == 202
    wait(client, path, lambda document: document["phase"] == "finished")
    wait(client, "/v1/jobs/tiny/metrics", lambda document: document.get("steps", [{"step": 0}])[0]["step"] == 60)
    assert len(client.get("/v1/jobs/tiny/performance").json()["runs"]) == 1
    (aside,) = folder.glob("deployment-*/refused-*.jsonl")
    assert "lacks the nodes ['n1']" in aside.read_text()


@pytest.mark.parametrize(
    ("place", "cluster", "code", "pointer"),
    [
        (("host-99", 0), nodes("a"), "unknown_node", "/plan/stages/0/replicas/1/node"),
        (("a", 7), nodes("a"), "gpu_not_free", "/plan/stages/0/replicas/1/gpus"),
        (("a", 1), nodes("a", gpus_in_use=[1]), "gpu_not_free", "/plan/stages/0/replicas/1/gpus"),
        (("b", 1), {**CLUSTER, "nodes": [*nodes("a")["nodes"], *nodes("b", state="drained")["nodes"]]}, "unknown_node",
         "/plan/stages/0/replicas/1/node"),
    ],
)  # fmt: skip
def test_a_plan_must_lie_on_the_cluster(
    client: httpx.Client, place: tuple[str, int], cluster: dict[str, Any], code: str, pointer: str
) -> None:
    answer = client.post("/v1/deployments", json=body(plan=on(("a", 0), place), cluster=cluster))
    assert refusal(answer) == (422, [(code, pointer)])
    assert client.get("/v1/deployments").json() == {"deployments": []}


def test_a_cluster_once_given_holds_for_the_next_plan(client: httpx.Client) -> None:
    path = deployed(client, plan=on(("a", 0)), cluster=nodes("a", gpus_in_use=[1]), training=LONG)
    refused = client.post(f"{path}:reconfigure", json={"plan": on(("b", 0))})
    assert refusal(refused) == (422, [("unknown_node", "/plan/stages/0/replicas/0/node")])
    assert "give cluster where that has changed" in refused.json()["detail"]
    # GPUs on which the job runs are its own, even where the cluster calls them taken.
    mine = {"plan": {**on(("a", 0)), "num_micro_batches": 2}, "cluster": nodes("a", gpus_in_use=[0])}
    mine["plan"]["stages"][0]["replicas"][0]["local_batch"] = 4
    assert client.post(f"{path}:reconfigure", json=mine).status_code == 202
    client.post(f"{path}:stop")


def test_a_plan_without_enough_memory_is_refused_unless_asked_for(client: httpx.Client) -> None:
    too_large = on(("n1", 0), gpu_type="h100", num_layers=40)
    too_large["stages"][0]["replicas"][0]["local_batch"] = 1
    request = body(job=LLAMA, plan=too_large)
    refused = client.post("/v1/deployments", json=request)
    assert refusal(refused) == (422, [("out_of_memory", "/plan/stages/0/replicas/0")])
    assert "GB are usable" in refused.json()["errors"][0]["detail"]
    assert "ignore_memory" in refused.json()["detail"]
    path = deployed(client, job=LLAMA, plan=too_large, ignore_memory=True)
    moved = client.post(f"{path}:reconfigure", json={"plan": too_large})
    assert refusal(moved) == (422, [("out_of_memory", "/plan/stages/0/replicas/0")])
    client.post(f"{path}:stop")


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_only_the_native_engine_trains_zero_2_and_3(client: httpx.Client, zero_stage: int) -> None:
    job = {**JOB, "zero_stage": zero_stage}
    answer = client.post("/v1/deployments", json=body(job=job))
    assert refusal(answer) == (422, [("zero_stage", "/job/zero_stage")])
    assert f"is {zero_stage}; the trainer runs stage 1 only under DeepSpeed" in answer.text


def test_what_the_trainer_refuses_is_shown_in_the_request(client: httpx.Client) -> None:
    split = on(("a", 0))
    split["stages"][0]["replicas"][0]["gpus"] = [0, 1, 2]
    answer = client.post("/v1/deployments", json=body(plan=split))
    assert {pointer for _, pointer in refusal(answer)[1]} == {"/plan"}
    assert "3 does not divide" in answer.text


def test_what_is_no_host_is_shown_in_the_request(client: httpx.Client) -> None:
    launch = {"backend": "ssh", "addresses": {"a": "-oProxyCommand=id"}, "spares": ["b", "--x"]}
    answer = client.post("/v1/deployments", json=body(plan=on(("$(id)", 0)), launch=launch))
    names = ("/plan/stages/0/replicas/0/node", "/launch/spares/1")
    wrong = [*(("bad_node_name", name) for name in names), ("bad_address", "/launch/addresses/a")]
    assert refusal(answer) == (422, wrong)


def test_what_slurm_cannot_be_told_is_shown_in_the_request(client: httpx.Client) -> None:
    slurm = {"partition": "gpu", "extra_lines": ["#SBATCH --nice=1", "#SBATCH --error=/etc/passwd"]}
    answer = client.post("/v1/deployments", json=body(launch={"backend": "slurm", "slurm": slurm}))
    assert refusal(answer) == (422, [("bad_slurm_option", "/launch/slurm/extra_lines/1")])
    assert "must be one `#SBATCH --option=value` without spaces, quotes and #" in answer.text


@pytest.fixture
def two_hosts(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Bodies of deployments on hosts a (also called x) and b, which are this machine under two addresses; it has GPUs
    as far as agents know."""
    assert client.get("/v1/deployments").status_code == 200
    monkeypatch.setitem(BACKENDS, "ssh", BACKENDS["local"])
    gpus = {**child_environment(), GPUS_GIVEN: "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    monkeypatch.setattr("executor.launch.local.child_environment", lambda: gpus)
    addresses = {"a": "127.0.0.1", "x": "trainer@127.0.0.1", "b": "127.0.0.2"}

    def made(**changes: Any) -> dict[str, Any]:
        request = body(**changes)
        request["launch"] |= {"backend": "ssh", "addresses": addresses}
        return request | {"training": request["training"] | {"device": "cuda"}}

    return made


def test_gpus_belong_to_one_deployment(client: httpx.Client, two_hosts: Callable[..., dict[str, Any]]) -> None:
    one = deployed(client, **two_hosts(job_id="one", plan=on(("a", 0), ("a", 1)), training=LONG))
    refused = client.post("/v1/deployments", json=two_hosts(job_id="two", plan=on(("b", 0), ("a", 1))))
    assert refusal(refused) == (409, [("gpu_taken", "/plan/stages/0/replicas/1/gpus")])
    assert "GPU 1 of node 'a' is used by job 'one'" in refused.json()["detail"]
    # Another name of the same host.
    assert client.post("/v1/deployments", json=two_hosts(job_id="two", plan=on(("x", 0)))).status_code == 409
    two = deployed(client, **two_hosts(job_id="two", plan=on(("b", 0)), training=LONG))
    wait(client, two, lambda document: document["step"] >= 2)
    taken = client.post(f"{two}:reconfigure", json={"plan": on(("b", 0), ("a", 0))})
    assert refusal(taken) == (409, [("gpu_taken", "/plan/stages/0/replicas/1/gpus")])
    stop(client, one)
    assert client.post(f"{two}:reconfigure", json={"plan": on(("b", 0), ("a", 0))}).status_code == 202
    # While it moves it has the old and the new ones.
    for gpu in (("b", 0), ("a", 0)):
        assert client.post("/v1/deployments", json=two_hosts(job_id="three", plan=on(gpu))).status_code == 409
    client.post(f"{two}:stop")


def test_gpus_to_which_a_deployment_may_return_are_kept(
    client: httpx.Client, two_hosts: Callable[..., dict[str, Any]]
) -> None:
    training = {**LONG, "checkpoint_interval": 1000}
    path = deployed(client, **two_hosts(job_id="one", plan=on(("a", 0)), training=training))
    wait(client, path, lambda document: document["step"] >= 2)
    client.post(f"{path}:reconfigure", json={"plan": on(("b", 0))})
    wait(client, path, lambda document: len(document["runs"]) == 2 and document["phase"] == "running")
    refused = client.post("/v1/deployments", json=two_hosts(job_id="two", plan=on(("a", 0))))
    assert refused.status_code == 409
    assert "GPU 0 of node 'a' is kept for job 'one'" in refused.json()["detail"]
    stop(client, path)
    deployed(client, **two_hosts(job_id="two", plan=on(("a", 0))))


def test_nodes_of_a_local_deployment_are_one_machine(client: httpx.Client) -> None:
    training = {**LONG, "device": "cuda"}
    deployed(client, job_id="one", plan=on(("a", 0)), training=training)
    refused = client.post("/v1/deployments", json=body(job_id="two", plan=on(("b", 0)), training=training))
    assert refusal(refused) == (409, [("gpu_taken", "/plan/stages/0/replicas/0/gpus")])
    assert "GPU 0 of node 'b' is used by job 'one'" in refused.json()["detail"]


def test_what_runs_on_cpus_takes_no_gpus(client: httpx.Client) -> None:
    first = deployed(client, job_id="one", plan=on(("a", 0)), training=LONG)
    second = deployed(client, job_id="two", plan=on(("a", 0)), training=LONG)
    for path in (first, second):
        wait(client, path, lambda document: document["step"] >= 1)
        client.post(f"{path}:stop")


@pytest.mark.parametrize("job_id", ["gpt2-2.6b", "a/b: é", "UPPER"])
def test_any_job_of_a_snapshot_can_be_deployed(client: httpx.Client, folder: Path, job_id: str) -> None:
    path = deployed(client, job_id=job_id, cluster=CLUSTER)
    done = wait(client, path, lambda document: document["phase"] == "finished")
    assert done["job_id"] == job_id
    wait(client, done["links"]["job_performance"], lambda document: document.get("num_records") == 12)
    (script,) = folder.glob("deployment-*/runs/0001/job.sbatch")
    (name,) = (line for line in script.read_text().splitlines() if "--job-name" in line)
    word = name.partition("=")[2]
    assert word.isascii()
    assert word.replace("-", "").isalnum()


@pytest.mark.parametrize("module", ["api.deployments.service", "executor.bundle", "executor.records"])
def test_a_full_disk_is_said_and_leaves_nothing(
    client: httpx.Client, folder: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(f"{module}.write_text", full)
        answer = client.post("/v1/deployments", json=body())
    assert (answer.status_code, answer.json()["code"]) == (507, "storage_full"), answer.text
    assert str(folder) in answer.json()["detail"]
    assert list(folder.glob("deployment-*")) == []
    deployed(client)


def records(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root / "request.json", *root.glob("cluster*.json"))}


@pytest.mark.parametrize("plan_changes", [False, True])
@pytest.mark.parametrize(
    ("fails", "error", "status"),
    [
        ("executor.supervision.Supervisor.reconfigure", PhaseError("is changing already"), 409),
        ("executor.launch.local.LocalBackend.start", LaunchError("host a is away"), 502),
        ("api.deployments.service.write_text", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 507),
    ],
    ids=["phase", "launch", "disk"],
)
def test_a_refused_change_leaves_nothing(
    client: httpx.Client,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
    error: Exception,
    status: int,
    plan_changes: bool,
) -> None:
    path = deployed(client, plan=on(("a", 0)), cluster=nodes("a"), training=LONG)
    wait(client, path, lambda document: document["phase"] == "running")
    (root,) = folder.glob("deployment-*")
    before = records(root)
    whole, errors = pkgutil.resolve_name(fails), [error]

    def failing(*arguments: Any) -> None:
        if errors:
            raise errors.pop()
        whole(*arguments)

    change = {"plan": on(("b" if plan_changes else "a", 0)), "cluster": nodes("a", "b")}
    with monkeypatch.context() as patched:
        patched.setattr(fails, failing)
        answer = client.post(f"{path}:reconfigure", json=change)
    assert answer.status_code == status, answer.text
    assert records(root) == before
    document = client.get(path).json()
    assert (document["phase"], len(document["runs"])) == ("running", 1)


@pytest.mark.parametrize("policy", ["sia", "arena", "suika"])
def test_a_measured_job_is_planned_and_deployed_again(client: httpx.Client, policy: str) -> None:
    measured = batch_of(10, pp=1, dp=2)
    post(client, "/v1/jobs/llm/metrics", measured)
    job = {"id": "llm", "transformer": measured["run"]["transformer"], "min_gpus": 2, "max_gpus": 2}
    made = planned(client, {"policy": policy, "snapshot": {"cluster": measured["run"]["cluster"], "jobs": [job]}})
    request = {
        key: value for key, value in body(job_id="llm", plan_id=made["id"]).items() if key not in ("plan", "job")
    }
    answer = client.post("/v1/deployments", json=request)
    assert answer.status_code == 201, answer.text
    assert answer.json()["plan"] == made["allocations"][0]["parallel_plan"]
    again = client.post("/v1/deployments", json={**request, "job_id": "other"})
    assert (again.status_code, again.json()["detail"].endswith("it holds some for ['llm']")) == (404, True)
    # Other batches than the plan's are wrong at the plan.
    wider = {**request["training"], "num_steps": 5}
    model = {**job["transformer"], "global_batch": 32}
    stop(client, answer.headers["Location"])
    refused = client.post("/v1/deployments", json={**request, "job": model, "training": wider})
    assert refusal(refused) == (422, [("global_batch", "/plan_id")])
