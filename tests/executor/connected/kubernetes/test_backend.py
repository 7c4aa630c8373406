"""From the API of a cluster to patches of its pods, and back."""

import json
from pathlib import Path

import pytest

from executor.connected.kubernetes.terms import NODES, NUM_PODS, Terms
from executor.connected.kubernetes.told import Patience
from executor.control.events import Arrival, Completion, Failure, NodeChange, Tick
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.cluster_state import SourceDocument, StateOptions, read_state
from models.cluster_state.kubernetes.pods import PLACEMENT_GATE
from tests.executor.connected.kubernetes.api_server import ApiServer, RefusedError, Request
from tests.executor.connected.kubernetes.scenes import (
    LEAF,
    NOW,
    PATIENCE,
    connected,
    gang,
    nodes,
    patches,
    served,
    until,
    where,
)
from tests.models.cluster_state.kubernetes_documents import listed, node, pod, workload
from tests.waiting import eventually


def remove_job(server: ApiServer, job: str) -> None:
    for namespace, name in list(server.objects["pods"]):
        if name.startswith(f"{job}-"):
            server.remove("pods", name, namespace)


def test_from_arrival_over_patches_and_bound_pods_to_completion() -> None:
    with served(("nodes", nodes())) as server, connected(server) as connection:
        server.binds = True
        for item in gang("train", 3):
            server.put("pods", item)
        (arrival,) = until(connection, Arrival)
        assert (arrival.job.id, arrival.job.min_gpus, arrival.allocation) == ("team/train", 24, None)
        # The intent first, on the first pod, then pods in rank order.
        names = [f"train-workers-0-{k}-x{k}" for k in range(3)]
        assert patches(server) == [names[0], *names]
        assert where(server, "train") == ["n0", "n1", "n2"]
        first = server.get("pods", names[0], "team")
        assert first["metadata"]["annotations"][NODES] == "n0,n1,n2"
        assert first["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n0"}
        remove_job(server, "train")
        (over,) = until(connection, Completion)
        assert (over.job_id, over.fault) == ("team/train", None)
        assert connection.backend.facts().jobs == ()


def test_what_the_api_says_is_what_files_say() -> None:
    items = nodes(6)
    items[5]["spec"]["unschedulable"] = True
    pods = [
        *(pod(f"run-{k}", "run", node=f"n{k}") for k in range(2)),
        pod("lone", "lone", node="n2", gpus=3),
        pod("waits", "waits", gpus=4),
    ]
    works = [workload("queued", pods=2), workload("other", pods=1, conditions=("QuotaReserved",))]
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "default"},
        "spec": {"levels": [{"nodeLabel": LEAF}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }
    given = {"nodes": items, "pods": pods, "workloads": works, "topology": [topology]}
    files = {role: [SourceDocument(name=f"{role}.json", text=listed(*found))] for role, found in given.items()}
    expected = read_state("kubernetes", files, StateOptions(taken_at_s=NOW.timestamp()))
    plural = {"topology": "topologies"}
    objects = tuple((plural.get(role, role), found) for role, found in given.items())
    with served(*objects, kueue="v1beta1") as server, connected(server) as connection:
        found = connection.backend.state.state
    assert found.cluster == expected.cluster
    # The API lists by name.
    assert sorted(found.jobs, key=lambda item: item.job.id) == sorted(expected.jobs, key=lambda item: item.job.id)
    assert {note.code for note in found.notes} == {note.code for note in expected.notes}
    assert len(found.cluster.nodes) == 6
    assert len(found.jobs) == 5


def test_nobody_is_written_to_who_did_not_ask_for_it() -> None:
    elsewhere = gang("other", 1)
    elsewhere[0]["metadata"]["namespace"] = "theirs"
    queued = gang("queued", 1)
    queued[0]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-queue"
    pods = [*gang("plain", 1, gated=False), *elsewhere, *gang("mine", 1), *queued, pod("runs", "runs", node="n3")]
    before = [json.dumps(item) for item in (*elsewhere, pods[0], pods[-1])]
    terms = Terms(namespaces=("team",), queues=("",))
    with served(("nodes", nodes()), ("pods", pods)) as server, connected(server, terms=terms) as connection:
        connection.step()
        assert set(patches(server)) == {"mine-workers-0-0-x0"}
        for item in before:
            given = json.loads(item)
            kept = server.get("pods", given["metadata"]["name"], given["metadata"]["namespace"])
            assert kept["spec"] == given["spec"]
        assert set(connection.backend.state.gangs) == {"team/mine"}


def test_dry_writes_down_what_would_be_sent_and_sends_nothing(tmp_path: Path) -> None:
    dry, wet = tmp_path / "dry.jsonl", tmp_path / "wet.jsonl"
    with served(("nodes", nodes()), ("pods", gang("train", 2))) as server:
        with connected(server, dry=True, file=dry) as connection:
            connection.step()
            server.put("pods", gang("next", 1)[0])
            # As if it had been done: the next one goes beside it.
            until(connection, Arrival)
            assert not any(isinstance(event, Failure) for step in connection.steps for event in step.events)
            assert [request for request in server.requests if request.method != "GET"] == []
            assert connection.said[0].startswith("would send: kubectl patch pods train-workers-0-0-x0 --namespace team")
        written = [json.loads(line) for line in dry.read_text().splitlines()]
        assert [item["sent"] for item in written] == [False] * 5
        assert '"n2"' in json.dumps(written[-1]["body"])
        with connected(server, file=wet) as connection:
            connection.step()
        sent = [json.loads(line) for line in wet.read_text().splitlines()]
        # What is sent is what is written down; of the same gang it is what was written down without being sent.
        assert [item["body"] for item in sent] == [request.body for request in server.writes()]
        train = [{**item, "sent": False} for item in sent if item["job"] == "team/train"]
        assert [item for item in written if item["job"] == "team/train"] == train
        assert len(train) == 3


def test_another_connection_finishes_what_one_began() -> None:
    """The first one is killed when two of four pods were let go."""

    def kill(request: Request) -> None:
        if request.method == "PATCH" and "dryRun" not in request.query and len(server.writes()) == 4:
            raise ConnectionAbortedError

    with served(("nodes", nodes(8)), ("pods", gang("train", 4))) as server:
        server.before = kill
        patience = Patience(settle_s=0.0, tries=10**6, pause_s=10**6)
        with connected(server, patience=patience) as connection:
            connection.step()
            assert any("is tried again" in line for line in connection.said)
        free = [item["metadata"]["name"] for item in server.objects["pods"].values() if not gated(item)]
        assert len(free) == 2
        server.before = lambda _request: None
        # What is free is taken by others meanwhile, so that a new plan would be another one.
        server.bind()
        with connected(server) as connection:
            (told,) = connection.backend.facts().jobs
            assert told.allocation is not None
            assert [part.node for part in told.allocation.gpus] == ["n0", "n1", "n2", "n3"]
            connection.backend.wake_at(0.0)
            connection.step()
        server.bind()
        assert where(server, "train") == ["n0", "n1", "n2", "n3"]


def gated(item: dict[str, object]) -> bool:
    return bool(item["spec"].get("schedulingGates"))  # type: ignore[attr-defined]


def test_a_patch_that_fails_is_tried_again() -> None:
    failures = iter([500, 409, 503])

    def fail(request: Request) -> None:
        if request.method == "PATCH" and "x2" in request.path and "dryRun" not in request.query:
            status = next(failures, None)
            if status is not None:
                raise RefusedError(status, "Internal", "not now")

    patience = Patience(settle_s=0.0, tries=5, pause_s=0.001)
    with (
        served(("nodes", nodes()), ("pods", gang("train", 4))) as server,
        connected(server, patience=patience) as connection,
    ):
        server.before = fail
        connection.step()

        def is_done() -> bool:
            # Somebody wants to know: the wait for events ends.
            connection.backend.wake_at(0.0)
            connection.step()
            return not any(gated(item) for item in server.objects["pods"].values())

        eventually(is_done)
        assert next(failures, None) is None
        assert not any(gated(item) for item in server.objects["pods"].values())
        assert not any(isinstance(event, Completion | Failure) for step in connection.steps for event in step.events)


def test_a_gang_of_which_one_pod_is_refused_does_not_start_by_halves() -> None:
    """An admission webhook refuses the last pod: nothing at all is sent."""

    def refuse(request: Request) -> None:
        if request.method == "PATCH" and "x3" in request.path:
            raise RefusedError(403, "Forbidden", "admission webhook denied the request")

    with served(("nodes", nodes()), ("pods", gang("train", 4))) as server, connected(server) as connection:
        server.before = refuse
        connection.step()
        (over,) = until(connection, Completion)
        assert over.fault.startswith(server.host)
        assert "webhook denied" in over.fault
        assert 'resources: ["pods"], verbs: ["patch"]' in over.fault
        assert "(3 tries)" in over.fault
        assert server.writes() == []
        # It is not tried for ever, but its next pods are.
        remove_job(server, "train")
        server.before = lambda _request: None
        for item in gang("train", 4):
            server.put("pods", item)
        until(connection, Arrival)
        assert len(server.writes()) == 5


@pytest.mark.parametrize("may_delete", [False, True])
def test_what_stays_half_started_is_told_and_taken_back_where_that_is_allowed(may_delete: bool) -> None:
    def fail(request: Request) -> None:
        if request.method == "PATCH" and "x2" in request.path and "dryRun" not in request.query:
            raise RefusedError(500, "Internal", "not now")

    with (
        served(("nodes", nodes()), ("pods", gang("train", 3))) as server,
        connected(server, terms=Terms(may_delete=may_delete)) as connection,
    ):
        server.before = fail
        connection.step()
        if may_delete:
            (broken,) = until(connection, Failure)
            assert broken.job_id == "team/train"
            deleted = [request.path.rpartition("/")[2] for request in server.writes() if request.method == "DELETE"]
            assert deleted == ["train-workers-0-0-x0", "train-workers-0-1-x1"]
            return
        (over,) = until(connection, Completion)
        assert over.fault.startswith("half-started, 2 of 3 pods: ")
        # What was started has its GPUs, though it is not bound yet.
        (arrival,) = until(connection, Arrival)
        assert [part.node for part in arrival.allocation.gpus] == ["n0", "n1"]
        assert not arrival.job.preemptible


def test_others_work_is_planned_around_as_it_comes_and_goes() -> None:
    with (
        served(("nodes", nodes(2)), ("pods", [pod("theirs", "theirs", node="n0", gpus=1)])) as server,
        connected(server) as connection,
    ):
        server.binds = True
        for item in gang("train", 2):
            server.put("pods", item)
        until(connection, Arrival)
        assert server.writes() == []
        server.put("pods", pod("more", "more", node="n1", gpus=8))
        (arrival,) = until(connection, Arrival)
        assert [(part.node, len(part.gpus)) for part in arrival.allocation.gpus] == [("n1", 8)]
        server.remove("pods", "theirs", "team")
        server.remove("pods", "more", "team")
        until(connection, Completion)
        if len(patches(server)) < 3:
            until(connection, Completion)
        assert where(server, "train") == ["n0", "n1"]


def test_others_may_take_the_gpus_of_pods_that_are_not_bound_yet() -> None:
    """They are bound when there is room again; until then the others are planned around as far as they fit."""
    with served(("nodes", nodes(2)), ("pods", gang("train", 1))) as server, connected(server) as connection:
        connection.step()
        assert where(server, "train") == [None]
        server.put("pods", pod("theirs", "theirs", node="n0", gpus=8))
        server.put("pods", pod("small", "small", node="n1", gpus=1))
        (arrival,) = until(connection, Arrival)
        assert arrival.job.id == "team/small"
        server.remove("pods", "theirs", "team")
        assert server.bind() == 1
        assert where(server, "train") == ["n0"]


def test_a_node_that_is_cordoned_or_lost_gets_no_new_work_and_keeps_what_runs() -> None:
    lost = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-20T12:00:00Z"}]
    with served(("nodes", nodes(2)), ("pods", gang("train", 1))) as server, connected(server) as connection:
        server.binds = True
        connection.step()
        assert where(server, "train") == ["n0"]
        server.put("nodes", node("n0", {LEAF: "leaf0"}, conditions=lost))
        (change,) = until(connection, NodeChange)
        assert (change.node, str(change.state)) == ("n0", "drained")
        server.put("nodes", node("n1", {LEAF: "leaf0"}, spec={"unschedulable": True}))
        until(connection, NodeChange)
        server.put("pods", gang("next", 1)[0])
        until(connection, Arrival)
        assert gated(server.get("pods", "next-workers-0-0-x0", "team"))
        assert len(connection.backend.facts().jobs) == 2
        server.put("nodes", node("n1", {LEAF: "leaf0"}))
        until(connection, NodeChange)
        assert where(server, "next") == ["n1"]


def test_heartbeats_of_nodes_are_no_news() -> None:
    with served(("nodes", nodes(2)), ("pods", gang("train", 1))) as server, connected(server) as connection:
        connection.step()
        connection.copy.take_news()
        beat = server.get("nodes", "n0")
        beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-20T12:05:00Z"
        server.put("nodes", beat)
        server.put("nodes", node("n1", {LEAF: "leaf0"}, spec={"unschedulable": True}))
        events = connection.backend.next_events()
        assert [type(event) for event in events] == [NodeChange]


def test_other_nodes_need_a_new_controller_which_takes_over() -> None:
    with served(("nodes", nodes(2)), ("pods", gang("train", 2))) as server, connected(server) as connection:
        connection.step()
        server.put("nodes", node("n9", {LEAF: "leaf9"}))
        assert until(connection, Tick) != []
        facts = connection.backend.facts()
        assert [one.id for one in facts.cluster.nodes] == ["n0", "n1", "n9"]
        (job,) = facts.jobs
        assert job.allocation is not None
        assert [part.node for part in job.allocation.gpus] == ["n0", "n1"]


def test_a_gang_that_is_made_anew_broke_and_is_placed_again() -> None:
    # All within what counts as one event.
    patience = Patience(settle_s=0.5)
    with (
        served(("nodes", nodes(2)), ("pods", gang("train", 2))) as server,
        connected(server, patience=patience) as connection,
    ):
        server.binds = True
        connection.step()
        server.put("nodes", node("n0", {LEAF: "leaf0"}, spec={"unschedulable": True}))
        server.put("nodes", node("n1", {LEAF: "leaf0"}, spec={"unschedulable": True}))
        with server.changed:
            remove_job(server, "train")
            for again in gang("train", 2):
                again["metadata"]["name"] += "-again"
                server.put("pods", again)
        (broken,) = until(connection, Failure)
        assert broken.job_id == "team/train"
        assert all(gated(item) for item in server.objects["pods"].values())
        for name in ("n0", "n1"):
            server.put("nodes", node(name, {LEAF: "leaf0"}))
        until(connection, NodeChange)
        assert where(server, "train") == ["n0", "n1"]


def test_a_pod_that_is_made_anew_goes_where_the_one_before_was() -> None:
    with served(("nodes", nodes(4)), ("pods", gang("train", 3))) as server, connected(server) as connection:
        server.binds = True
        connection.step()
        assert where(server, "train") == ["n0", "n1", "n2"]
        for k in (1, 0):
            server.remove("pods", f"train-workers-0-{k}-x{k}", "team")
            again = gang("train", 3)[k]
            again["metadata"]["name"] += "-again"
            server.put("pods", again)
            server.put("pods", pod(f"tick-{k}", f"tick-{k}", node="n3", gpus=1))
            until(connection, Arrival)
            assert where(server, "train") == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    ("notes", "problem"),
    [
        ({NUM_PODS: "3"}, "has 2 of 3 pods"),
        ({NUM_PODS: "many"}, "must be a whole number"),
        ({"stowplan/parallelism": '{"tp": 8}'}, 'must be such as {"tp": 8, "pp": 2, "dp": 4}'),
    ],
)
def test_a_gang_that_cannot_be_placed_is_told_once(notes: dict[str, str], problem: str) -> None:
    with (
        served(("nodes", nodes()), ("pods", gang("train", 2, notes=notes))) as server,
        connected(server) as connection,
    ):
        server.put("pods", pod("theirs", "theirs", node="n0"))
        until(connection, Arrival)
        assert [line for line in connection.said if problem in line] == [
            line for line in connection.said if line.startswith("team/train: ")
        ]
        assert len([line for line in connection.said if problem in line]) == 1
        assert server.writes() == []


def test_pods_that_do_not_say_how_many_they_are_wait() -> None:
    pods = gang("train", 2)
    for item in pods:
        del item["metadata"]["annotations"][NUM_PODS]
    with served(("nodes", nodes()), ("pods", pods)) as server, connected(server) as connection:
        assert [line for line in connection.said if "annotate them with stowplan/pods" in line] != []
        assert server.writes() == []


def test_what_waits_is_let_go_when_somebody_wants_out() -> None:
    pods = [*gang("placed", 1), *gang("waits", 5)]
    with served(("nodes", nodes()), ("pods", pods)) as server, connected(server) as connection:
        server.binds = True
        connection.step()
        placed = len(server.writes())
        assert connection.backend.release() == 5
        assert len(server.writes()) == placed + 5
        assert not any(gated(item) for item in server.objects["pods"].values())
        # Where there was room.
        assert sorted(map(str, where(server, "waits"))) == ["None", "None", "n1", "n2", "n3"]


def test_a_more_urgent_job_gets_gpus_only_where_pods_may_be_deleted() -> None:
    parameters = GangParameters(order=QueueOrder.PRIORITY, preemption=True)
    for may_delete in (False, True):
        with (
            served(("nodes", nodes(1)), ("pods", gang("low", 1, priority=1))) as server,
            connected(server, parameters=parameters, terms=Terms(may_delete=may_delete)) as connection,
        ):
            server.binds = True
            connection.step()
            server.put("pods", gang("high", 1, priority=1000)[0])
            # With it the other one has another rank.
            assert until(connection, Tick) != []
            deleted = [request for request in server.writes() if request.method == "DELETE"]
            assert len(deleted) == may_delete
            assert gated(server.get("pods", "high-workers-0-0-x0", "team")) is not may_delete


def test_pods_that_cannot_be_deleted_keep_their_gpus() -> None:
    def refuse(request: Request) -> None:
        if request.method == "DELETE":
            raise RefusedError(403, "Forbidden", "pods is forbidden")

    parameters = GangParameters(order=QueueOrder.PRIORITY, preemption=True)
    with (
        served(("nodes", nodes(1)), ("pods", gang("low", 1, priority=1))) as server,
        connected(server, parameters=parameters, terms=Terms(may_delete=True)) as connection,
    ):
        server.binds = True
        server.before = refuse
        connection.step()
        server.put("pods", gang("high", 1, priority=1000)[0])
        until(connection, Tick)
        assert any('verbs: ["delete"]' in line for line in connection.said)
        # The next look finds it where it is.
        server.put("pods", pod("others", "others", gpus=1))
        server.put("nodes", node("n0", {LEAF: "leaf0"}, spec={"unschedulable": True}))
        until(connection, NodeChange)
        assert where(server, "low") == ["n0"]


def test_the_first_event_is_a_tick_where_somebody_waits() -> None:
    with served(("nodes", nodes()), ("pods", gang("train", 1))) as server, connected(server) as connection:
        assert [type(event) for event in connection.backend.next_events()] == [Tick]
        assert connection.backend.now_s >= 0
        connection.backend.close()
        assert connection.backend.next_events() == ()


def test_a_job_of_several_groups_is_in_rank_order() -> None:
    """Ten pods of one group: by number, not by name."""
    pods = gang("train", 11, gpus=4)
    with served(("nodes", nodes(6)), ("pods", pods)) as server, connected(server, patience=PATIENCE) as connection:
        server.binds = True
        connection.step()
        assert where(server, "train") == [f"n{k // 2}" for k in range(11)]
        assert PLACEMENT_GATE not in json.dumps([item["spec"] for item in server.objects["pods"].values()])
