"""Deployments over HTTP, on local processes that only pretend to train."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import httpx
import pytest

from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.deployments.folder import DeploymentFolder
from api.deployments.service import Deployments
from api.jobs.feedback import JobFeedback
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, DeploymentState, Phase, Run
from executor.records import write_record
from solver.pool import WorkerPool
from tests.api.asking import planned
from tests.api.serving import serving
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.slow

DEFAULTS = Settings()
JOB: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 128,
    "vocabulary_size": 100,
    "sequence_length": 32,
    "global_batch": 8,
}


def plan(degrees: list[tuple[int, int]], local: int = 4) -> dict[str, Any]:
    """Stages with (layers, replicas) on CPUs of one host; `local` sequences per replica."""
    stages, first = [], 0
    for layers, dp in degrees:
        replicas = [
            {"node": "a", "gpu_type": "cpu", "gpus": [first + k], "local_batch": local * degrees[0][1] // dp}
            for k in range(dp)
        ]
        first += dp
        stages.append({"num_layers": layers, "replicas": replicas})
    return {"stages": stages, "num_micro_batches": 8 // (local * degrees[0][1])}


def body(**changes: Any) -> dict[str, Any]:
    training = {"device": "cpu", "num_steps": 12, "checkpoint_interval": 5}
    launch = {"master_port": free_port(), "grace_s": 1.0}
    request = {"job_id": "tiny", "job": JOB, "plan": plan([(2, 1), (2, 1)]), "training": training, "launch": launch}
    return request | changes


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "deployments"
    for run in (tmp_path / "deployments").glob("deployment-*/runs/*"):
        LocalBackend().stop(run, grace_s=1.0)


@pytest.fixture
def client(folder: Path, pool: WorkerPool, pretending: None) -> Iterator[httpx.Client]:  # noqa: ARG001 - ranks pretend
    with serving(create_app(settings(folder), pool=pool)) as made:
        yield made


def settings(folder: Path | None) -> Settings:
    return Settings(
        database=IN_MEMORY,
        deployments=str(folder or ""),
        launch_variables=f"{DEFAULTS.launch_variables},PRETEND_*",
        launch_hosts="127.0.0.*,trainer@127.0.0.*",
    )


def wait(client: httpx.Client, path: str, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    return eventually(lambda: client.get(path).json(), until, poll_s=0.05)


def test_a_deployment_runs_to_its_end_and_its_logs_can_be_read(client: httpx.Client) -> None:
    created = client.post("/v1/deployments", json=body())
    assert created.status_code == 201, created.text
    path = created.headers["Location"]
    assert created.json()["time_limit_s"] is None
    assert created.json()["notation"] == "PP2 DP1 TP1 (2+2 layers, 2 x 4)"
    done = wait(client, path, lambda document: document["phase"] == "finished")
    assert (done["step"], done["num_steps"], done["run_state"]) == (12, 12, "succeeded")
    assert done["synthetic_data"]
    assert [known["id"] for known in client.get("/v1/deployments").json()["deployments"]] == [done["id"]]
    assert client.get(f"{path}/logs", params={"rank": 1, "follow": True}).status_code == 200
    assert client.get(f"{path}/logs", params={"rank": 2}).json()["detail"].endswith("there is no rank 2")
    stopped = client.post(f"{path}:stop")
    assert (stopped.status_code, stopped.json()["phase"]) == (202, "finished")


CLUSTER = {
    "gpu_types": [
        {
            "name": "cpu",
            "memory_bytes": 2**34,
            "peak_flops_per_s": 1e11,
            "intra_node_bandwidth_bytes_per_s": 4e9,
            "inter_node_bandwidth_bytes_per_s": 1e9,
        }
    ],
    "nodes": [{"id": "a", "gpu_type": "cpu", "num_gpus": 2}],
}


def test_what_ranks_measure_becomes_known_of_the_job(client: httpx.Client) -> None:
    path = client.post("/v1/deployments", json=body(cluster=CLUSTER)).headers["Location"]
    wait(client, path, lambda document: document["phase"] == "finished")
    known = wait(client, "/v1/jobs/tiny/metrics", lambda document: len(document.get("steps", [])) == 12)
    assert known["steps"][0]["step"] == 12
    performance = client.get("/v1/jobs/tiny/performance").json()
    assert performance["runs"][0]["notation"].startswith("PP2 DP1 TP1")


def test_a_placement_by_arnold_is_deployed(client: httpx.Client) -> None:
    fabric = {"tiers": [{"name": "minipod"}], "minipod_tier": "minipod"}
    nodes = [{"id": f"n{k}", "gpu_type": "cpu", "num_gpus": 2, "path": [f"m{k % 2}"]} for k in range(4)]
    job = {
        "id": "tiny",
        "transformer": {**JOB, "num_layers": 5, "micro_batch": 2},
        "parallelism": {"tp": 1, "pp": 2, "dp": 2},
    }
    cluster = {**CLUSTER, **fabric, "nodes": nodes}
    request = {"policy": "arnold", "parameters": {"alpha": 0.5}, "snapshot": {"cluster": cluster, "jobs": [job]}}
    made = planned(client, request)
    assert made["communication"]["parallelism"] == job["parallelism"]
    asked = {name: value for name, value in body(plan_id=made["id"]).items() if name not in ("plan", "job")}
    answer = client.post("/v1/deployments", json=asked)
    assert answer.status_code == 201, answer.text
    # Layers are spread evenly, stages are the columns of the communication matrix.
    assert answer.json()["notation"] == "PP2 DP2 TP1 (3+2 layers, 2 x 4)"
    stages = answer.json()["plan"]["stages"]
    placed = [{replica["node"] for replica in stage["replicas"]} for stage in stages]
    assert placed == [{host} for host in made["communication"]["hosts"]]
    # Without a micro-batch nothing says how the batch is cut.
    unsaid = {**job, "transformer": {**JOB, "global_batch": 7}}
    made = planned(client, {**request, "snapshot": {"cluster": cluster, "jobs": [unsaid]}})
    refused = client.post("/v1/deployments", json={**asked, "plan_id": made["id"], "job_id": "tiny"})
    assert (refused.status_code, "with micro_batch" in refused.text) == (404, True)


def test_a_goodput_job_of_sia_is_deployed_data_parallel(client: httpx.Client) -> None:
    times = {"alpha_c": 0.02, "beta_c": 0.005, "alpha_r": 0.001, "beta_r": 0.0, "alpha_n": 0.1, "beta_n": 0.0}
    performance = {
        "kind": "goodput",
        "batch": {"initial": 16, "maximum": 16},
        "gradient": {"squared_norm": 1.0, "variance": 100.0},
        "profiles": {"cpu": {"parameters": {**times, "gamma": 2.5}, "max_local_batch": 4}},
    }
    job = {"id": "tiny", "transformer": JOB, "performance": performance, "min_gpus": 2, "max_gpus": 2}
    made = planned(client, {"policy": "sia", "snapshot": {"cluster": CLUSTER, "jobs": [job]}})
    (allocation,) = made["allocations"]
    asked = {name: value for name, value in body(plan_id=made["id"]).items() if name not in ("plan", "job")}
    answer = client.post("/v1/deployments", json=asked)
    assert answer.status_code == 201, answer.text
    batch = f"{allocation['accumulation_steps']} x {2 * allocation['local_batch_size']}"
    assert answer.json()["notation"] == f"PP1 DP2 TP1 (4 layers, {batch})"


def test_the_batch_may_change_with_the_plan_where_the_learning_rate_follows(client: httpx.Client) -> None:
    larger = {"plan": plan([(4, 2)], local=4) | {"num_micro_batches": 2}}
    training = {"device": "cpu", "num_steps": 60, "checkpoint_interval": 5}
    fixed = client.post("/v1/deployments", json=body(training=training)).headers["Location"]
    wait(client, fixed, lambda document: document["step"] >= 1)
    refused = client.post(f"{fixed}:reconfigure", json=larger)
    assert (refused.status_code, "16 sequences" in refused.text) == (422, True), refused.text
    client.post(f"{fixed}:stop")
    wait(client, fixed, lambda document: document["phase"] == "stopped")
    schedule = {"scaling": "square_root", "initial_batch": 8}
    wrong = body(training=training | {"schedule": schedule | {"scaling": "adascale"}})
    problem = client.post("/v1/deployments", json=wrong).json()
    assert [issue["pointer"] for issue in problem["errors"]] == ["/training/schedule/scaling"]
    path = client.post("/v1/deployments", json=body(training=training | {"schedule": schedule})).headers["Location"]
    wait(client, path, lambda document: document["step"] >= 1)
    changed = client.post(f"{path}:reconfigure", json=larger)
    assert changed.status_code == 202, changed.text
    done = wait(client, path, lambda document: document["phase"] == "finished")
    assert done["notation"] == "PP1 DP2 TP1 (4 layers, 2 x 8)"


def test_reconfiguring_goes_on_with_the_next_step(client: httpx.Client) -> None:
    training = {"device": "cpu", "num_steps": 60, "checkpoint_interval": 5}
    path = client.post("/v1/deployments", json=body(training=training)).headers["Location"]
    wait(client, path, lambda document: document["step"] >= 2)
    changed = client.post(f"{path}:reconfigure", json={"plan": plan([(4, 2)], local=2)})
    assert changed.status_code == 202, changed.text
    assert changed.json()["phase"] == "reconfiguring"
    done = wait(client, path, lambda document: document["phase"] == "finished")
    assert [run["cause"] for run in done["runs"]] == ["deployed", "reconfigured"]
    assert done["notation"].startswith("PP1 DP2")
    assert done["restart_cost_s"] is not None
    assert done["change_costs_s"].keys() == {"start", "degrees"}
    assert done["change_costs_s"]["degrees"] == done["restart_cost_s"] == done["runs"][1]["cost_s"]
    metrics = client.get("/metrics").text
    assert 'stowplan_deployment_changes_total{change="degrees"} 1.0' in metrics
    assert done["step"] == 60


def test_the_ranks_that_broke_a_run_stay_known(client: httpx.Client) -> None:
    launch = {"master_port": free_port(), "grace_s": 1.0, "environment": {"PRETEND_FAULT": "8"}}
    path = client.post("/v1/deployments", json=body(launch=launch)).headers["Location"]
    done = wait(client, path, lambda document: document["phase"] == "finished")
    assert [run["cause"] for run in done["runs"]] == ["deployed", "restarted"]
    assert [(rank["rank"], rank["signal"]) for rank in done["dead"]] == [(0, "SIGKILL")]
    assert done["dead_run"] == 1
    # What a fault costs is known of the run, and no price of a change.
    assert (done["runs"][1]["cost_s"] is None, done["restart_cost_s"]) == (False, None)
    runs = Path(done["folder"]).parent
    for number in (1, 2):
        (runs / f"000{number}" / "logs" / "rank-1.log").write_text(f"run {number}\n")
    said = [client.get(f"{path}/logs", params={"rank": 1, **query}).text for query in ({}, {"run": 1}, {"run": 2})]
    assert said == ["run 2\n", "run 1\n", "run 2\n"]
    assert client.get(f"{path}/logs", params={"run": 3}).json()["detail"].endswith("has no run 3")


def test_logs_are_those_of_the_run_that_trains_while_the_next_one_begins(client: httpx.Client) -> None:
    training = {"device": "cpu", "num_steps": 1000, "checkpoint_interval": 5}
    path = client.post("/v1/deployments", json=body(training=training)).headers["Location"]
    wait(client, path, lambda document: document["step"] >= 2)
    changed = client.post(f"{path}:reconfigure", json={"plan": plan([(4, 1)], local=8)}).json()
    # The next run has no rank 1.
    assert client.get(f"{path}/logs", params={"rank": 1}).status_code == 200
    assert (changed["phase"], len(changed["runs"])) == ("reconfiguring", 2)
    client.post(f"{path}:stop")


def test_what_was_stopped_goes_on(client: httpx.Client) -> None:
    training = {"device": "cpu", "num_steps": 40, "checkpoint_interval": 5}
    path = client.post("/v1/deployments", json=body(training=training)).headers["Location"]
    wait(client, path, lambda document: document["step"] >= 2)
    client.post(f"{path}:stop")
    stopped = wait(client, path, lambda document: document["phase"] == "stopped")
    second = client.post("/v1/deployments", json=body()).json()
    change = {"plan": plan([(4, 2)], local=2)}
    refused = client.post(f"{path}:reconfigure", json=change)
    assert (refused.status_code, refused.json()["code"]) == (409, "deployment_conflict")
    assert second["id"] in refused.json()["detail"]
    wait(client, second["links"]["self"], lambda document: document["phase"] == "finished")
    resumed = client.post(f"{path}:reconfigure", json=change)
    assert (resumed.status_code, resumed.json()["phase"]) == (202, "starting"), resumed.text
    done = wait(client, path, lambda document: document["phase"] == "finished")
    assert [(run["cause"], run["from_step"]) for run in done["runs"]] == [("deployed", 0), ("resumed", stopped["step"])]
    assert done["step"] == 40
    refused = client.post(f"{path}:reconfigure", json=change)
    assert (refused.status_code, refused.json()["code"]) == (409, "deployment_conflict")
    assert "is finished" in refused.json()["detail"]


def test_the_native_engine_takes_and_keeps_plans_that_are_not_symmetric(client: httpx.Client) -> None:
    training = {"device": "cpu", "num_steps": 40, "checkpoint_interval": 5, "engine": "native"}
    made = client.post("/v1/deployments", json=body(training=training, plan=plan([(2, 1), (2, 2)]), project=True))
    assert made.status_code == 201, made.text
    assert (made.json()["notation"], made.json()["projection"]) == ("2L 1x1 | 2L 2x1 (2 x 4)", None)
    path = made.json()["links"]["self"]
    wait(client, path, lambda document: (document["step"] or 0) > 0)
    changed = client.post(f"{path}:reconfigure", json={"plan": plan([(1, 2), (3, 1)], local=2)})
    assert changed.status_code == 202, changed.text
    done = wait(client, path, lambda document: document["phase"] == "finished")
    assert [run["cause"] for run in done["runs"]] == ["deployed", "reconfigured"]
    assert done["notation"] == "1L 2x1 | 3L 1x1 (2 x 4)"


def test_a_job_has_one_deployment_at_a_time(client: httpx.Client) -> None:
    first = client.post("/v1/deployments", json=body(training={"device": "cpu", "num_steps": 1000})).json()
    refused = client.post("/v1/deployments", json=body())
    assert (refused.status_code, refused.json()["code"]) == (409, "deployment_conflict")
    assert first["id"] in refused.json()["detail"]
    client.post(f"{first['links']['self']}:stop")
    wait(client, first["links"]["self"], lambda document: document["phase"] == "stopped")
    assert client.post("/v1/deployments", json=body()).status_code == 201


@pytest.mark.parametrize(
    ("changes", "status", "code", "says"),
    [
        ({"plan": plan([(2, 1), (2, 2)])}, 422, "asymmetric_plan", "stage 1 has DP2"),
        ({"plan": plan([(2, 1), (1, 1)])}, 422, "invalid_input", "the plan has 3 layers, the model 4"),
        ({"plan": None, "plan_id": "plan-7"}, 404, "not_found", "plan-7"),
        ({"plan_id": "plan-7"}, 422, "invalid_input", "exactly one of plan and plan_id"),
        ({"job": None}, 422, "invalid_input", "say what it trains"),
        ({"job_id": "a\nb"}, 422, "invalid_input", "must not hold control characters or line breaks"),
        ({"launch": {"backend": "pdsh"}}, 422, "invalid_input", "/launch/backend"),
        ({"launch": {"backend": "slurm"}}, 502, "launch_failed", "sbatch"),
        ({"training": {"device": "tpu"}}, 422, "invalid_input", "/training/device"),
        ({"training": {"engine": "steam"}}, 422, "invalid_input", "/training/engine"),
        ({"launch": {"environment": {"A=B": "x"}}}, 422, "invalid_input", "environment names 'A=B'"),
        ({"surprise": 1}, 422, "invalid_input", "surprise"),
    ],
)
def test_what_cannot_be_deployed(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], status: int, code: str, says: str
) -> None:
    monkeypatch.setattr("executor.launch.slurm.shutil.which", lambda _: None)
    request = {key: value for key, value in body(**changes).items() if value is not None}
    answer = client.post("/v1/deployments", json=request)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert says in answer.text
    assert client.get("/v1/deployments").json() == {"deployments": []}


def test_unknown_deployments(client: httpx.Client) -> None:
    for answer in (
        client.get("/v1/deployments/deployment-7"),
        client.get("/v1/deployments/..%2Fx"),
        client.post("/v1/deployments/deployment-7:stop"),
        client.post("/v1/deployments/deployment-7:reconfigure", json={"plan": plan([(4, 1)], local=8)}),
        client.get("/v1/deployments/deployment-7/logs"),
    ):
        assert answer.status_code == 404, answer.text


def test_a_service_without_a_folder_deploys_nothing(pool: WorkerPool) -> None:
    with serving(create_app(settings(None), pool=pool)) as client:
        refused = client.post("/v1/deployments", json=body())
        assert (refused.status_code, refused.json()["code"]) == (409, "nothing_deployed")
        assert "--deployments" in refused.json()["detail"]


def test_a_change_does_not_make_a_deployment_newer(client: httpx.Client) -> None:
    training = {"device": "cpu", "num_steps": 1000, "checkpoint_interval": 5}
    paths = [
        client.post("/v1/deployments", json=body(job_id=job, training=training)).headers["Location"]
        for job in ("first", "second")
    ]
    wait(client, paths[0], lambda document: document["phase"] == "running")
    assert client.post(f"{paths[0]}:reconfigure", json={"plan": plan([(4, 2)], local=2)}).status_code == 202
    listed = client.get("/v1/deployments").json()["deployments"]
    assert [known["job_id"] for known in listed] == ["second", "first"]
    for path in paths:
        client.post(f"{path}:stop")


def test_a_broken_deployment_keeps_nothing_from_the_others(client: httpx.Client, folder: Path) -> None:
    broken = client.post("/v1/deployments", json=body(job_id="broken")).json()
    wait(client, broken["links"]["self"], lambda document: document["phase"] == "finished")
    shutil.rmtree(folder / broken["id"] / "runs" / "0001")
    nameless = folder / "deployment-nameless"
    nameless.mkdir()
    shutil.copy(folder / broken["id"] / "state.json", nameless)
    path = client.post("/v1/deployments", json=body()).headers["Location"]
    wait(client, path, lambda document: document["phase"] == "finished")
    listed = client.get("/v1/deployments")
    assert listed.status_code == 200, listed.text
    assert [known["job_id"] for known in listed.json()["deployments"]] == ["tiny"]


def test_deployments_are_looked_after_again_after_an_error(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = client.post("/v1/deployments", json=body()).headers["Location"]
    whole, errors = DeploymentFolder.ids, [OSError("the folder is away"), KeyError("state")]

    def failing(known: DeploymentFolder) -> list[str]:
        if errors:
            raise errors.pop()
        return whole(known)

    monkeypatch.setattr(DeploymentFolder, "ids", failing)
    wait(client, path, lambda document: document["phase"] == "finished")
    assert not errors


def test_the_cost_of_a_change_is_read_without_asking_a_backend(tmp_path: Path) -> None:
    for name, started_at_s, cost_s in (("a", 2.0, 7.0), ("b", 1.0, 5.0), ("c", 3.0, None)):
        root = tmp_path / f"deployment-{name}"
        root.mkdir()
        (root / "request.json").write_text('{"job_id": "tiny", "backend": "slurm"}')
        first = Run(number=1, plan="", cause=Cause.DEPLOYED, started_at_s=started_at_s)
        changed = Run(number=2, plan="", cause=Cause.RECONFIGURED, started_at_s=started_at_s + 9.0, cost_s=cost_s)
        state = DeploymentState(name="tiny", phase=Phase.FINISHED, runs=(first, changed), phase_since_s=9.0)
        write_record(state, root / "state.json")
    deployments = Deployments(settings(tmp_path), Mock(), create_autospec(JobFeedback, instance=True), Mock())
    try:
        assert [deployments.restart_cost_s(job) for job in ("tiny", "other")] == [7.0, None]
    finally:
        deployments.close()


def over(root: Path, cases: dict[str, tuple[Phase, float]]) -> dict[str, str]:
    """Folders of deployments whose states were written so many days ago, by the names of the cases."""
    run = Run(number=1, plan="", cause=Cause.DEPLOYED, started_at_s=1.0)
    for k, (phase, age_days) in enumerate(cases.values()):
        folder = root / f"deployment-{k:032x}"
        folder.mkdir()
        (folder / "request.json").write_text('{"job_id": "tiny", "backend": "local"}')
        write_record(DeploymentState(name="tiny", phase=phase, runs=(run,), phase_since_s=9.0), folder / "state.json")
        at_s = time.time() - age_days * 86_400
        os.utime(folder / "state.json", (at_s, at_s))
    return {name: f"deployment-{k:032x}" for k, name in enumerate(cases)}


@pytest.mark.parametrize(
    ("keep_days", "most", "left"),
    [
        (0.0, 0, {"old", "young", "runs"}),
        (30.0, 0, {"young", "runs"}),
        (0.0, 2, {"old", "young", "runs"}),
        # Those go that have been over for longest.
        (0.0, 1, {"young", "runs"}),
    ],
)
def test_folders_of_deployments_that_have_long_been_over_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_days: float, most: int, left: set[str]
) -> None:
    monkeypatch.setattr(Deployments, "_look_after", Mock())
    names = over(
        tmp_path, {"old": (Phase.FINISHED, 31.0), "young": (Phase.STOPPED, 29.0), "runs": (Phase.RUNNING, 99.0)}
    )
    kept = {"keep_deployments_days": keep_days, "keep_deployments": most}
    set_to = settings(tmp_path).model_copy(update=kept)
    deployments = Deployments(set_to, Mock(), create_autospec(JobFeedback, instance=True), Mock())
    deployments.purge()
    deployments.close()
    assert {path.name for path in tmp_path.iterdir()} == {names[name] for name in left}


def test_the_projection_is_that_of_the_plan_that_holds(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    training = {"device": "cpu", "num_steps": 1000, "checkpoint_interval": 5}
    cluster = {**CLUSTER, "nodes": [{"id": "a", "gpu_type": "cpu", "num_gpus": 3}]}
    made = client.post("/v1/deployments", json=body(training=training, cluster=cluster)).json()
    path = made["links"]["self"]
    wait(client, path, lambda document: document["phase"] == "running")
    # The new ranks never get ready, so that a stop takes the change back.
    monkeypatch.setattr("executor.run_folders.RunFolders.all_ready", lambda *_: False)
    change = client.post(f"{path}:reconfigure", json={"plan": plan([(2, 1), (2, 2)]), "project": True}).json()
    assert change["projection"]["asked"] == "2L 1x1 | 2L 2x1 (2 x 4)"
    client.post(f"{path}:stop")
    stopped = wait(client, path, lambda document: document["phase"] == "stopped")
    assert (stopped["notation"], stopped["projection"]) == (made["notation"], None)


@pytest.mark.usefixtures("client")
def test_the_next_service_looks_after_what_the_last_one_started(folder: Path, pool: WorkerPool) -> None:
    other = folder.with_name("other")
    training = {"device": "cpu", "num_steps": 80, "checkpoint_interval": 5}
    with serving(create_app(settings(other), pool=pool)) as first:
        path = first.post("/v1/deployments", json=body(training=training)).headers["Location"]
        wait(first, path, lambda document: document["step"] >= 1)
    with serving(create_app(settings(other), pool=pool)) as second:
        assert wait(second, path, lambda document: document["phase"] == "finished")["step"] == 80
