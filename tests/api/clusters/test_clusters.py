"""Clusters are written once; snapshots name them, or say what has changed since another one."""

import copy
from typing import Any

import httpx
import pytest

from tests.api.asking import JSON, planned, post, refused
from tests.api.requests import Json, json_text, sia_request, table_job

CLUSTER: Json = sia_request()["snapshot"]["cluster"]
JOBS: list[Json] = sia_request()["snapshot"]["jobs"]


def put(client: httpx.Client, name: str, cluster: Json, **headers: str) -> httpx.Response:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return client.put(f"/v1/clusters/{name}", content=json_text(cluster), headers={**JSON, **named})


def asked(snapshot: Json) -> Json:
    return {"policy": "sia", "snapshot": snapshot}


@pytest.fixture(scope="module")
def client(each_client: httpx.Client) -> httpx.Client:
    return each_client


@pytest.fixture
def main(client: httpx.Client) -> str:
    """The name of a cluster that is there."""
    assert put(client, "main", CLUSTER).status_code in (200, 201)
    return "main"


def test_a_cluster_is_written_looked_at_and_deleted(client: httpx.Client) -> None:
    made = put(client, "a%20b", CLUSTER)
    assert (made.status_code, made.headers["etag"], made.headers["location"]) == (201, '"1"', "/v1/clusters/a%20b")
    summary = made.json()
    assert (summary["name"], summary["version"], summary["num_nodes"], summary["num_gpus"]) == ("a b", 1, 2, 8)
    seen = client.get("/v1/clusters/a%20b")
    assert seen.headers["etag"] == '"1"'
    assert [node["id"] for node in seen.json()["cluster"]["nodes"]] == ["n0", "n1"]
    again = put(client, "a%20b", CLUSTER, If_Match='"1"')
    assert (again.status_code, again.headers["etag"]) == (200, '"2"')
    stale = put(client, "a%20b", CLUSTER, If_Match='"1"')
    assert stale.status_code == 412
    assert "is not of version 1 (it has version 2)" in stale.json()["detail"]
    assert client.delete("/v1/clusters/a%20b").status_code == 204
    missing = client.get("/v1/clusters/a%20b")
    assert (missing.status_code, missing.json()["detail"]) == (404, "there is no cluster 'a b'; PUT it first")
    assert client.delete("/v1/clusters/a%20b").status_code == 404
    assert put(client, "a%20b", CLUSTER, If_Match='"1"').status_code == 412


def test_clusters_are_listed_by_name(client: httpx.Client) -> None:
    for name in ("list-b", "list-a", "list-c"):
        put(client, name, CLUSTER)
    page = client.get("/v1/clusters", params={"limit": 2, "after": "list"}).json()
    assert [each["name"] for each in page["clusters"]] == ["list-a", "list-b"]
    following = client.get(page["next"]).json()
    assert following["clusters"][0]["name"] == "list-c"


def test_what_is_no_cluster_is_refused(client: httpx.Client) -> None:
    doubled = {**CLUSTER, "nodes": [*CLUSTER["nodes"], CLUSTER["nodes"][0]]}
    answer = put(client, "wrong", doubled)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("/nodes")
    assert put(client, "wrong", {**CLUSTER, "colour": "red"}).status_code == 422
    assert put(client, "wrong", CLUSTER, If_Match="1").json()["code"] == "invalid_header"
    assert client.get("/v1/clusters/wrong").status_code == 404


def test_a_snapshot_on_a_named_cluster_is_planned_like_the_whole_one(client: httpx.Client, main: str) -> None:
    whole = planned(client, sia_request())
    named = planned(client, asked({"cluster": main, "jobs": JOBS}))
    assert named["objective"] == whole["objective"]
    assert named["allocations"] == whole["allocations"]
    stored = client.get(named["links"]["input"]).json()["snapshot"]
    assert stored == client.get(whole["links"]["input"]).json()["snapshot"]
    # Nodes as they are now, of a cluster that stays as it is.
    drained = planned(client, asked({"cluster": main, "nodes": {"n0": {"state": "drained"}}, "jobs": JOBS}))
    assert {node for each in drained["allocations"] for node in each["gpus"]} == {"n1"}
    assert client.get("/v1/clusters/main").json()["cluster"]["nodes"][0]["state"] == "up"


def test_a_plan_keeps_the_cluster_that_it_was_made_with(client: httpx.Client) -> None:
    put(client, "shrinking", CLUSTER)
    plan = planned(client, asked({"cluster": "shrinking", "jobs": JOBS}))
    put(client, "shrinking", {**CLUSTER, "nodes": CLUSTER["nodes"][:1]})
    assert len(client.get(plan["links"]["input"]).json()["snapshot"]["cluster"]["nodes"]) == 2
    assert client.get(plan["links"]["figure"]).status_code == 200


def test_the_same_request_under_a_key_is_the_same_whatever_is_in_the_cluster(client: httpx.Client) -> None:
    put(client, "keyed", CLUSTER)
    request = asked({"cluster": "keyed", "jobs": JOBS})
    first = post(client, "/v1/plans", request, Prefer="wait=50", Idempotency_Key="keyed-cluster")
    put(client, "keyed", {**CLUSTER, "nodes": CLUSTER["nodes"][:1]})
    second = post(client, "/v1/plans", request, Prefer="wait=50", Idempotency_Key="keyed-cluster")
    assert second.json()["id"] == first.json()["id"]


def test_a_snapshot_says_what_has_changed_since_a_plan(client: httpx.Client) -> None:
    base = planned(client, sia_request())
    changes = {
        "base": base["id"],
        "nodes": {"n1": {"state": "down"}},
        "jobs": {"j0": {"current": {"n0": [0, 1]}, "age_s": 600}},
        "remove_jobs": ["j1"],
        "add_jobs": [table_job("j2", weight=2.0)],
    }
    plan = planned(client, asked(changes))
    whole = copy.deepcopy(sia_request()["snapshot"])
    whole["cluster"]["nodes"][1]["state"] = "down"
    whole["jobs"] = [{**JOBS[0], "current": {"n0": [0, 1]}, "age_s": 600}, table_job("j2", weight=2.0)]
    same = planned(client, asked(whole))
    assert plan["allocations"] == same["allocations"]
    assert client.get(plan["links"]["input"]).json() == client.get(same["links"]["input"]).json()
    # And so on, from that one.
    third = planned(client, asked({"base": plan["id"], "remove_jobs": ["j0"]}))
    assert [each["job_id"] for each in third["allocations"]] == ["j2"]


def test_a_stored_snapshot_is_a_base_as_well_and_null_is_a_value(client: httpx.Client) -> None:
    snapshot = copy.deepcopy(sia_request()["snapshot"])
    snapshot["jobs"][0]["current"] = {"n0": [0]}
    id_ = post(client, "/v1/snapshots", snapshot).json()["id"]
    plan = planned(client, asked({"base": id_, "jobs": {"j0": {"current": None}}}))
    assert client.get(plan["links"]["input"]).json()["snapshot"]["jobs"][0]["current"] is None
    verified = post(client, "/v1/placements:verify", {"snapshot": {"base": id_}, "allocations": []}).json()
    assert verified["legal"]


@pytest.mark.parametrize(
    ("snapshot", "code", "pointer"),
    [
        ({"cluster": "nowhere", "jobs": []}, "unknown_cluster", "/snapshot/cluster"),
        ({"cluster": "main", "jobs": [], "nodes": {"x/y": {"state": "up"}}}, "unknown_value", "/snapshot/nodes/x~1y"),
        (
            {"cluster": "main", "jobs": [], "nodes": {"n1": {"gpus_in_use": [9]}}},
            "unknown_gpu",
            "/snapshot/nodes/n1/gpus_in_use",
        ),
        ({"cluster": "main"}, "missing_field", "/snapshot/jobs"),
        ({"base": "plan-0"}, "unknown_snapshot", "/snapshot/base"),
        ({"base": "BASE", "jobs": {"j9": {}}}, "unknown_value", "/snapshot/jobs/j9"),
        ({"base": "BASE", "remove_jobs": ["j0", "j9"]}, "unknown_value", "/snapshot/remove_jobs/1"),
        ({"base": "BASE", "jobs": {"j0": {"age_s": 1}}, "remove_jobs": ["j0"]}, "unknown_value", "/snapshot/jobs/j0"),
        ({"base": "BASE", "jobs": {"j0": {"id": "j5"}}}, "unknown_field", "/snapshot/jobs/j0/id"),
        ({"base": "BASE", "jobs": {"j0": {"min_gpus": -1}}}, "not_positive", "/snapshot/jobs/j0/min_gpus"),
        ({"base": "BASE", "jobs": {"j0": {"colour": 1}}}, "unknown_field", "/snapshot/jobs/j0/colour"),
        ({"base": "BASE", "nodes": {"n0": {"state": "asleep"}}}, "unknown_value", "/snapshot/nodes/n0/state"),
        ({"base": "BASE", "cluster": CLUSTER}, "unknown_field", "/snapshot/cluster"),
        ({"base": "DATED"}, "missing_field", "/snapshot/taken_at"),
    ],
)
def test_wrong_changes_are_refused_by_name(
    client: httpx.Client, main: str, snapshot: dict[str, Any], code: str, pointer: str
) -> None:
    whole = sia_request()["snapshot"]
    stored = {"BASE": whole, "DATED": {**whole, "taken_at": "2026-12-01T06:00:00Z"}}
    if (base := snapshot.get("base")) in stored:
        snapshot = {**snapshot, "base": post(client, "/v1/snapshots", stored[base]).json()["id"]}
    answer = post(client, "/v1/plans", asked(snapshot)).json()["detail"]
    assert not answer.startswith("the the"), answer
    assert refused(client, asked(snapshot)) == (422, [(code, pointer)])
    assert main


def test_what_comes_of_the_changes_is_checked_like_a_whole_snapshot(client: httpx.Client) -> None:
    id_ = post(client, "/v1/snapshots", sia_request()["snapshot"]).json()["id"]
    wrong = {**table_job("j2"), "min_gpus": 4, "max_gpus": 2}
    for changes, code, pointers in (
        ({"add_jobs": [table_job("j2"), table_job("j0")]}, "duplicate_id", ["add_jobs/1/id"]),
        ({"add_jobs": [table_job("j2"), table_job("j2")]}, "duplicate_id", ["add_jobs/0/id", "add_jobs/1/id"]),
        ({"remove_jobs": ["j0"], "add_jobs": [wrong]}, "min_above_max", ["add_jobs/0/max_gpus"]),
        ({"jobs": {"j1": {"performance": None}}}, "missing_performance", ["jobs/j1/performance"]),
        ({"jobs": {"j1": {"current": {"n0": [0, 9]}}}}, "unknown_gpu", ["jobs/j1/current/n0"]),
        ({"nodes": {"n1": {"gpus_in_use": [9]}}}, "unknown_gpu", ["nodes/n1/gpus_in_use"]),
    ):
        expected = [(code, f"/snapshot/{pointer}") for pointer in pointers]
        assert refused(client, asked({"base": id_, **changes})) == (422, expected)


def test_warnings_lead_into_the_changes(client: httpx.Client) -> None:
    id_ = post(client, "/v1/snapshots", sia_request()["snapshot"]).json()["id"]
    late = [{**table_job("j2"), "remaining_iterations": 7.0}]
    plan = planned(client, asked({"base": id_, "add_jobs": late}))
    assert [each["pointer"] for each in plan["warnings"]] == ["/snapshot/add_jobs/0/remaining_iterations"]
    again = planned(client, asked({"base": plan["id"], "remove_jobs": ["j0"]}))
    assert [each["pointer"] for each in again["warnings"]] == ["/snapshot/base"]
    assert again["warnings"][0]["detail"].startswith("job 'j2', remaining_iterations: is not used")
    answer = post(client, "/v1/plans", {"policy": "arnold", "snapshot": {"base": id_}})
    (told,) = (each for each in answer.json()["errors"] if each["code"] == "no_pretraining_job")
    assert (told["pointer"], told["detail"][:26]) == ("/snapshot/base", "the jobs: Arnold plans one")


def test_what_has_changed_is_stored_as_the_whole_snapshot_would_be(client: httpx.Client, main: str) -> None:
    whole = sia_request()["snapshot"]
    base = post(client, "/v1/snapshots", whole).json()["id"]
    plan = planned(client, sia_request())["id"]
    newer = copy.deepcopy(whole)
    newer["cluster"]["nodes"][1]["state"] = "down"
    newer["jobs"] = [{**JOBS[0], "age_s": 600}, table_job("j2")]
    changes = {"nodes": {"n1": {"state": "down"}}, "jobs": {"j0": {"age_s": 600}}}
    changes |= {"remove_jobs": ["j1"], "add_jobs": [table_job("j2")]}
    made = [post(client, "/v1/snapshots", {"base": each, **changes}) for each in (base, plan)]
    named = {"cluster": main, "nodes": {"n1": {"state": "down"}}, "jobs": newer["jobs"]}
    made += [post(client, "/v1/snapshots", each) for each in (named, newer)]
    assert [answer.status_code for answer in made] == [201, 200, 200, 200], made[0].text
    (id_,) = {answer.json()["id"] for answer in made}
    assert made[0].json()["num_jobs"] == 2
    assert client.get(f"/v1/snapshots/{id_}").json()["jobs"][0]["age_s"] == 600
    # And so on, from that one.
    next_ = post(client, "/v1/snapshots", {"base": id_, "remove_jobs": ["j0", "j2"]})
    assert (next_.status_code, next_.json()["num_jobs"]) == (201, 0)


@pytest.mark.parametrize(
    ("snapshot", "code", "pointer"),
    [
        ({"base": "snapshot-0"}, "unknown_snapshot", "/base"),
        ({"cluster": "nowhere", "jobs": []}, "unknown_cluster", "/cluster"),
        ({"base": "BASE", "jobs": {"j9": {}}}, "unknown_value", "/jobs/j9"),
        ({"base": "BASE", "jobs": {"j0": {"min_gpus": -1}}}, "not_positive", "/jobs/j0/min_gpus"),
        ({"base": "BASE", "cluster": "main"}, "unknown_field", "/cluster"),
        ({"base": "BASE", "add_jobs": [table_job("j0")]}, "duplicate_id", "/add_jobs/0/id"),
        ({"base": "BASE", "jobs": {"j1": {"gpu_types": ["b"]}}}, "unknown_gpu_type", "/jobs/j1/gpu_types/0"),
        ({"base": "BASE", "forecaster": "durations"}, "stored_forecaster", "/forecaster"),
        ({"base": ["BASE"]}, "wrong_type", "/base"),
        ({"cluster": "main"}, "missing_field", "/jobs"),
        ({"snapshot_id": "BASE"}, "missing_field", "/cluster"),
        ([], "wrong_type", ""),
    ],
)
def test_wrong_changes_are_not_stored(client: httpx.Client, main: str, snapshot: Any, code: str, pointer: str) -> None:
    if isinstance(snapshot, dict) and snapshot.get("base") == "BASE":
        snapshot = {**snapshot, "base": post(client, "/v1/snapshots", sia_request()["snapshot"]).json()["id"]}
    answer = post(client, "/v1/snapshots", snapshot)
    assert answer.status_code == 422, answer.text
    issue = answer.json()["errors"][0]
    assert (issue["code"], issue["pointer"]) == (code, pointer)
    assert main


def test_variants_of_a_plan_by_reference_are_planned(client: httpx.Client) -> None:
    id_ = post(client, "/v1/snapshots", sia_request()["snapshot"]).json()["id"]
    plan = planned(client, asked({"snapshot_id": id_}))
    body = {"variants": [{"name": "drained", "drain": ["n0"]}]}
    answer = post(client, f"/v1/plans/{plan['id']}:what-if", body, Prefer="wait=50")
    assert answer.status_code in (200, 202), answer.text


def test_a_calendar_takes_the_nodes_of_the_cluster(client: httpx.Client) -> None:
    put(client, "with-calendar", CLUSTER)
    answer = client.put("/v1/clusters/with-calendar/calendar", content=json_text({"entries": []}), headers=JSON)
    assert (answer.status_code, answer.json()["num_nodes"]) == (201, 2)
