"""Plans from request to answer, for all policies and for the odd inputs that are no errors."""

import json
import re

import httpx
import pytest

from api.schemas.plan import PlanDoc
from tests.api.asking import PNG, planned, post
from tests.api.requests import arnold_request, changed, sia_request, table_job

EXAMPLE_IDS = (
    *("quickstart", "sia-paper-table1", "arnold-fig12", "infeasible-reservations"),
    *("arena-two-types", "suika-growing"),
)


def test_the_running_example_of_the_sia_paper(client: httpx.Client) -> None:
    # Sia Table 1: J1 gets (1,4,B), J2 gets (1,2,A).
    plan = planned(client, client.get("/v1/examples/sia-paper-table1").json())
    assert plan["status"] == "succeeded"
    assert plan["verified"]
    assert plan["proven_optimal"]
    given = {job["job_id"]: (job["num_gpus"], job["gpu_type"]) for job in plan["allocations"]}
    assert given == {"J1": (4, "B"), "J2": (2, "A")}
    assert plan["objective"] == pytest.approx(8.0)
    assert sum(term["value"] for term in plan["score"]) == pytest.approx(plan["objective"])
    assert plan["termination"] == {"reason": "optimal", "limit": None}
    assert {"validate", "performance", "build", "solve", "place", "verify"} <= set(plan["timings"]["phases_ms"])
    assert plan["times"]["queued"] <= plan["times"]["building"] <= plan["times"]["finished"]


@pytest.mark.slow
@pytest.mark.parametrize("example_id", EXAMPLE_IDS)
def test_every_small_example_is_answered(client: httpx.Client, example_id: str) -> None:
    plan = planned(client, client.get(f"/v1/examples/{example_id}").json())
    PlanDoc.model_validate_json(json.dumps(plan))
    assert plan["status"] == ("infeasible" if example_id.startswith("infeasible") else "succeeded")
    figure = client.get(plan["links"]["figure"])
    assert figure.headers["content-type"].startswith("image/svg+xml")
    assert "<svg" in figure.text
    drawn = client.get(plan["links"]["figure_png"])
    assert drawn.headers["content-type"] == "image/png"
    assert drawn.content.startswith(PNG)
    assert client.get(plan["links"]["model"]).text.startswith("NAME")


def test_ranks_of_a_pretraining_job(client: httpx.Client) -> None:
    plan = planned(client, arnold_request())
    (allocation,) = plan["allocations"]
    matrix = plan["communication"]
    # Stage-major: the first column of the matrix, then the second; two ranks per node.
    columns = [row[column] for column in range(2) for row in matrix["cells"]]
    assert [host["node"] for host in allocation["ranks"]] == columns == matrix["hosts"]
    assert [host["first_rank"] for host in allocation["ranks"]] == [0, 2, 4, 6]
    assert [host["gpus"] for host in allocation["ranks"]] == [[0, 1]] * 4
    assert matrix["alpha"] == 0.3
    assert set(matrix["minipod_spread"]) == {"dp", "pp"}


def test_eq2_with_spare_nodes(client: httpx.Client) -> None:
    """Twelve nodes of Fig. 12 over three minipods of six free nodes and more; one node of each used one stays free."""
    request = client.get("/v1/examples/arnold-fig12").json()
    request["parameters"] = {"alpha": 0.3, "spread_objective": "eq2", "spare_nodes_per_minipod": 1}
    plan = planned(client, request)
    matrix = plan["communication"]
    assert plan["verified"]
    assert plan["objective"] == pytest.approx(matrix["objective_eq2"])
    assert len(matrix["spares"]) == matrix["num_minipods_used"]
    assert not set(matrix["spares"]) & set(matrix["hosts"])


def test_tier_weights_add_up_over_tiers(client: httpx.Client) -> None:
    request = client.get("/v1/examples/arnold-fig12").json()
    request["parameters"] = {"alpha": 0.3, "tier_weights": {"minipod": 2.0}}
    once = planned(client, {**request, "parameters": {"alpha": 0.3}})
    assert planned(client, request)["objective"] == pytest.approx(2 * once["objective"])


def test_changes_against_the_current_placement(client: httpx.Client) -> None:
    jobs = [table_job("stays", min_gpus=4, max_gpus=4, current={"n0": [0, 1, 2, 3]}), table_job("waits")]
    plan = planned(client, sia_request(jobs))
    by_id = {job["job_id"]: job for job in plan["allocations"]}
    assert by_id["stays"]["change"] == "kept"
    assert by_id["stays"]["previous"] == {"n0": [0, 1, 2, 3]}
    assert by_id["waits"]["change"] == "started"
    assert by_id["waits"]["previous"] is None


def test_no_jobs_give_an_empty_plan(client: httpx.Client) -> None:
    plan = planned(client, sia_request(jobs=[]))
    assert plan["status"] == "succeeded"
    assert plan["allocations"] == plan["unplaced"] == []
    assert plan["verified"]


def test_a_job_that_fits_nowhere_is_explained(client: httpx.Client) -> None:
    plan = planned(client, sia_request([table_job("giant", min_gpus=64), table_job("small")]))
    assert plan["status"] == "succeeded"
    (giant,) = plan["unplaced"]
    assert giant["job_id"] == "giant"
    assert giant["reason"]
    assert giant["counts"]
    assert giant["remedy"]
    assert not giant["preempted"]


def test_more_forced_demand_than_capacity_is_infeasible_with_names(client: httpx.Client) -> None:
    reserved = {"reservation": {"gpu_type": "a", "num_gpus": 4}}
    plan = planned(client, sia_request([table_job(f"j{k}", **reserved) for k in range(3)]))
    assert plan["status"] == "infeasible"
    assert plan["termination"]["reason"] == "infeasible"
    assert plan["objective"] is None
    assert not plan["verified"]
    assert any(re.search("capacity", name) for name in plan["conflicts"])
    assert any("j0" in name for name in plan["conflicts"])


def test_a_pretraining_job_without_room_is_unplaced_and_says_what_would_help(client: httpx.Client) -> None:
    request = arnold_request()
    del request["snapshot"]["cluster"]["nodes"][3:]
    plan = planned(client, request)
    assert plan["status"] == "infeasible"
    (job,) = plan["unplaced"]
    assert (job["job_id"], job["reason"]) == ("llm", "capacity")
    assert job["remedy"].startswith("free 1 more")


def test_a_limit_of_one_millisecond_never_lies(client: httpx.Client) -> None:
    hard = client.get("/v1/examples/sia-heterogeneous-64").json()
    plan = planned(client, changed(hard, "/options", {"time_limit_s": 0.001, "relative_gap": 0.0}))
    if plan["status"] == "timed_out":
        assert plan["allocations"] == []
        assert plan["termination"] == {"reason": "no_solution_found", "limit": "time"}
    else:
        assert plan["status"] == "succeeded"
        assert plan["verified"]
        assert plan["termination"]["reason"] in ("optimal", "feasible")


@pytest.mark.parametrize("solver", ["highs", "scip"])
def test_the_same_input_gives_the_same_plan(client: httpx.Client, solver: str) -> None:
    request = sia_request(options={"solver": solver, "seed": 7})
    first, second = planned(client, request), planned(client, request)
    assert first["solver"]["name"] == solver
    assert first["input_hash"] == second["input_hash"]
    for field in ("objective", "bound", "allocations", "unplaced", "score"):
        assert first[field] == second[field]
    assert planned(client, changed(request, "/options/seed", 8))["input_hash"] != first["input_hash"]


def test_warnings_travel_with_the_plan(client: httpx.Client) -> None:
    drained = changed(sia_request(), "/snapshot/cluster/nodes/0/state", "drained")
    plan = planned(client, changed(drained, "/snapshot/jobs/0/current", {"n0": [0]}))
    found = [(issue["code"], issue["pointer"], issue["severity"]) for issue in plan["warnings"]]
    assert ("runs_on_drained_node", "/snapshot/jobs/0/current", "warning") in found


def test_the_input_can_be_posted_again(client: httpx.Client) -> None:
    plan = planned(client, sia_request())
    again = client.get(plan["links"]["input"]).json()
    assert again["options"]["relative_gap"] == 1e-4
    assert planned(client, again)["input_hash"] == plan["input_hash"]


def test_a_stored_snapshot_is_planned_like_an_inline_one(client: httpx.Client) -> None:
    request = sia_request()
    first = post(client, "/v1/snapshots", request["snapshot"])
    second = post(client, "/v1/snapshots", request["snapshot"])
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert first.json() | {"num_nodes": 2, "num_gpus": 8, "num_jobs": 2} == first.json()
    assert client.get(first.headers["location"]).json()["jobs"][0]["id"] == "j0"
    by_reference = planned(client, {**request, "snapshot": {"snapshot_id": first.json()["id"]}})
    assert by_reference["input_hash"] == planned(client, request)["input_hash"]
    assert client.get(by_reference["links"]["figure"]).status_code == 200


def test_validation_of_a_sound_request(client: httpx.Client) -> None:
    assert post(client, "/v1/plans:validate", sia_request()).json() == {"valid": True, "issues": []}


def test_verification_of_a_foreign_placement(client: httpx.Client) -> None:
    snapshot = sia_request()["snapshot"]
    legal = [{"job_id": "j0", "gpus": {"n0": [0, 1]}}, {"job_id": "j1", "gpus": {"n1": [0, 1, 2, 3]}}]
    answer = post(client, "/v1/placements:verify", {"snapshot": snapshot, "allocations": legal}).json()
    assert answer == {"legal": True, "violations": []}
    wrong = [
        {"job_id": "j0", "gpus": {"n0": [0, 9]}},
        {"job_id": "j1", "gpus": {"n0": [0]}},
        {"job_id": "j1", "gpus": {"n1": [0]}},
        {"job_id": "ghost", "gpus": {"n7": [0]}},
    ]
    answer = post(client, "/v1/placements:verify", {"snapshot": snapshot, "allocations": wrong}).json()
    assert not answer["legal"]
    found = {(issue["code"], issue["pointer"]) for issue in answer["violations"]}
    assert {
        ("unknown_gpu", "/allocations/0/gpus/n0"),
        ("gpu_taken_twice", "/allocations/1/gpus/n0"),
        ("job_allocated_twice", "/allocations/2/job_id"),
        ("unknown_job", "/allocations/3/job_id"),
        ("unknown_node", "/allocations/3/gpus/n7"),
    } <= found


def test_verification_beside_a_calendar(client: httpx.Client) -> None:
    """j0 is over in half an hour with probability 0.9; from then on n0 is reserved."""
    snapshot = changed(sia_request(), "/snapshot/taken_at", "2026-12-01T00:00:00Z")["snapshot"]
    times = {"from_time": "2026-12-01T00:30:00Z", "until_time": "2026-12-02T00:00:00Z"}
    snapshot["calendar"] = [{"name": "r", "kind": "reservation", "nodes": ["n0"], **times}]
    snapshot["jobs"][0]["lasting"] = {"probabilities": [0.9], "seconds": [1800.0]}
    body = {"snapshot": snapshot, "allocations": [{"job_id": "j0", "gpus": {"n0": [0, 1]}}]}
    (issue,) = post(client, "/v1/placements:verify", body).json()["violations"]
    assert (issue["code"], issue["pointer"]) == ("calendar_not_honoured", "/allocations/0/gpus/n0")
    assert post(client, "/v1/placements:verify", {**body, "epsilon": 0.1}).json()["legal"]
    assert post(client, "/v1/placements:verify", {**body, "epsilon": 1.0}).status_code == 422


def test_verification_of_a_plan_of_ours(client: httpx.Client) -> None:
    request = sia_request()
    given = [{"job_id": job["job_id"], "gpus": job["gpus"]} for job in planned(client, request)["allocations"]]
    answer = post(client, "/v1/placements:verify", {"snapshot": request["snapshot"], "allocations": given})
    assert answer.json()["legal"]
