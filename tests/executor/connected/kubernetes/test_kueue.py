"""Workloads of Kueue that wait for our admission check."""

from typing import Any

import pytest

from executor.connected.kubernetes.terms import CONTROLLER, NODES, NUM_PODS
from executor.control.events import Completion
from models.cluster_state.kubernetes.pods import PLACEMENT_GATE
from tests.executor.connected.kubernetes.api_server import ApiServer, Json
from tests.executor.connected.kubernetes.scenes import connected, gang, nodes, patches, served, until, where
from tests.models.cluster_state.kubernetes_documents import workload

CHECK = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "AdmissionCheck", "metadata": {"name": "placed"}}
SINCE = "2026-11-20T11:40:00Z"


def waiting(owner: str, pods: int, *, gated: bool = True, quota: str | None = SINCE, **spec: Any) -> Json:
    """A workload with quota that waits for our check."""
    made = workload(owner, pods=pods, **spec)
    if gated:
        made["spec"]["podSets"][0]["template"]["spec"]["schedulingGates"] = [{"name": PLACEMENT_GATE}]
    conditions = [] if quota is None else [{"type": "QuotaReserved", "status": "True", "lastTransitionTime": quota}]
    check = {"name": "placed", "state": "Pending", "message": "", "lastTransitionTime": SINCE}
    made["status"] = {"conditions": conditions, "admissionChecks": [check]}
    return made


def admitted(server: ApiServer, owner: str, pods: int) -> None:
    """What Kueue does when all checks are ready: the job starts, and its pods wait for us alone."""
    for item in gang(owner, pods):
        del item["metadata"]["annotations"][NUM_PODS]
        server.put("pods", item)


def check_of(server: ApiServer, owner: str) -> Json:
    (found,) = server.get("workloads", f"jobset-{owner}-1a2b3", "team")["status"]["admissionChecks"]
    return dict(found)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_workload_is_let_in_and_its_pods_go_where_it_was_noted(version: str) -> None:
    check = {**CHECK, "spec": {"controllerName": CONTROLLER}}
    objects = (("nodes", nodes()), ("workloads", [waiting("train", 3)]), ("admissionchecks", [check]))
    with served(*objects, kueue=version) as server:
        server.binds = True
        with connected(server) as connection:
            connection.backend.serve_checks()
            (condition,) = server.get("admissionchecks", "placed")["status"]["conditions"]
            assert (condition["type"], condition["status"]) == ("Active", "True")
            connection.backend.serve_checks()
            connection.step()
            assert patches(server) == ["status", "jobset-train-1a2b3", "status"]
            assert check_of(server, "train")["state"] == "Ready"
            noted = server.get("workloads", "jobset-train-1a2b3", "team")["metadata"]["annotations"]
            assert noted[NODES] == "n0,n1,n2"
        # Another connection has the pods when Kueue has let them in.
        admitted(server, "train", 3)
        with connected(server) as connection:
            connection.backend.wake_at(0.0)
            connection.step()
            assert where(server, "train") == ["n0", "n1", "n2"]
            done = server.get("workloads", "jobset-train-1a2b3", "team")
            done["status"]["conditions"].append({"type": "Finished", "status": "True"})
            for k in range(3):
                server.remove("pods", f"train-workers-0-{k}-x{k}", "team")
            server.put("workloads", done)
            (over,) = until(connection, Completion)
            assert over.job_id == "team/train"


def test_a_set_that_stays_together_needs_no_gate() -> None:
    check = {**CHECK, "spec": {"controllerName": CONTROLLER}}
    works = [waiting("small", 2, gated=False, gpus=4)]
    objects = (("nodes", nodes()), ("workloads", works), ("admissionchecks", [check]))
    with served(*objects, kueue="v1beta1") as server, connected(server) as connection:
        connection.step()
        (update,) = check_of(server, "small")["podSetUpdates"]
        assert update == {"name": "workers", "nodeSelector": {"kubernetes.io/hostname": "n0"}}


def test_a_set_that_is_torn_apart_without_a_gate_is_refused_and_told() -> None:
    check = {**CHECK, "spec": {"controllerName": CONTROLLER}}
    objects = (("nodes", nodes()), ("workloads", [waiting("large", 2, gated=False)]), ("admissionchecks", [check]))
    with served(*objects, kueue="v1beta1") as server, connected(server) as connection:
        connection.step()
        (over,) = until(connection, Completion)
        assert "goes to 2 hosts" in over.fault
        assert server.writes() == []


def test_workloads_without_quota_or_of_other_checks_are_left_alone() -> None:
    ours, other = {**CHECK, "spec": {"controllerName": CONTROLLER}}, {**CHECK, "spec": {"controllerName": "theirs"}}
    for check, work in ((ours, waiting("train", 2, quota=None)), (other, waiting("train", 2))):
        objects = (("nodes", nodes()), ("workloads", [work]), ("admissionchecks", [check]))
        with served(*objects, kueue="v1beta1") as server, connected(server) as connection:
            connection.backend.serve_checks()
            connection.backend.wake_at(0.0)
            connection.step()
            assert patches(server) == (["status"] if check is ours else [])
            assert connection.backend.facts().jobs == ()


def test_an_admission_that_is_taken_back_ends_the_job_and_the_next_one_is_placed_anew() -> None:
    check = {**CHECK, "spec": {"controllerName": CONTROLLER}}
    objects = (("nodes", nodes()), ("workloads", [waiting("train", 2)]), ("admissionchecks", [check]))
    with served(*objects, kueue="v1beta1") as server, connected(server) as connection:
        connection.step()
        assert check_of(server, "train")["state"] == "Ready"
        noted = server.get("workloads", "jobset-train-1a2b3", "team")["metadata"]
        server.put("workloads", {**waiting("train", 2, quota=None), "metadata": noted})
        (over,) = until(connection, Completion)
        assert over.job_id == "team/train"
        later = "2026-11-20T11:50:00Z"
        server.put("workloads", {**waiting("train", 2, quota=later), "metadata": noted})
        for _ in range(5):
            if check_of(server, "train")["state"] == "Ready":
                break
            connection.step()
        assert check_of(server, "train")["state"] == "Ready"


def test_released_workloads_are_let_in_without_nodes() -> None:
    check = {**CHECK, "spec": {"controllerName": CONTROLLER}}
    objects = (("nodes", nodes(1)), ("workloads", [waiting("train", 2)]), ("admissionchecks", [check]))
    with served(*objects, kueue="v1beta1") as server, connected(server) as connection:
        assert connection.backend.release() == 1
        found = check_of(server, "train")
        assert (found["state"], found.get("podSetUpdates")) == ("Ready", None)
