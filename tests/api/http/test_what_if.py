"""What if over HTTP: variants are plans, beside the plan that they are variants of."""

import httpx
import pytest

from api.schemas.what_if import WhatIfDoc
from tests.api.asking import PNG, planned, post
from tests.api.requests import Json, arnold_request, changed, json_text, sia_request, table_job


def ask(client: httpx.Client, plan: Json, *variants: Json, status: int = 200, **headers: str) -> Json:
    answer = post(client, f"{plan['links']['self']}:what-if", {"variants": variants}, Prefer="wait=50", **headers)
    assert answer.status_code == status, answer.text
    document: Json = answer.json()
    return document


def test_variants_stand_beside_their_plan(client: httpx.Client) -> None:
    # j0 and j1 have a node each; without n1 both share n0, and rescale.
    plan = planned(client, sia_request())
    found = ask(
        client,
        plan,
        {"name": "drain n1", "drain": ["pod1"]},
        {"name": "gang", "policy": "gang"},
        {"name": "nothing"},
    )
    assert WhatIfDoc.model_validate_json(json_text(found)).base.id == plan["id"]
    drained, gang, nothing = found["variants"]
    assert drained["plan"]["status"] == "succeeded"
    assert {node for job in drained["plan"]["allocations"] for node in job["gpus"]} == {"n0"}
    difference = drained["difference"]
    assert difference["num_by_change"] == {"rescaled": 2}
    assert difference["gpus"] == [{"name": "a", "base": 8.0, "other": 4.0, "difference": -4.0}]
    assert difference["objective"]["difference"] == pytest.approx(drained["plan"]["objective"] - plan["objective"])
    assert gang["plan"]["policy"] == "gang"
    assert gang["difference"]["objective"]["difference"] is None
    assert nothing["difference"]["same"]
    assert nothing["plan"]["input_hash"] == plan["input_hash"]
    # It is a plan like others, with an input that can be posted again.
    again = planned(client, client.get(drained["plan"]["links"]["input"]).json())
    assert again["input_hash"] == drained["plan"]["input_hash"]
    figure = client.get(drained["figure"])
    assert figure.headers["content-type"].startswith("image/svg+xml")
    assert "drained or down" in figure.text
    assert client.get(drained["figure_png"]).content.startswith(PNG)
    path = f"{plan['links']['self']}/differences/{drained['plan']['id']}"
    assert client.get(path).json() == difference


def test_why_not_there(client: httpx.Client) -> None:
    plan = planned(client, sia_request([table_job("j0"), table_job("small", max_gpus=1)]))
    allowed, forbidden = ask(
        client,
        plan,
        {"name": "j0 on two", "place": {"job": "j0", "nodes": {"n0": [0, 1]}}},
        {"name": "small on two", "place": {"job": "small", "nodes": {"n0": [0, 1]}}},
    )["variants"]
    assert [job["gpus"] for job in allowed["plan"]["allocations"] if job["job_id"] == "j0"] == [{"n0": [0, 1]}]
    # There is room enough elsewhere.
    assert allowed["price"] == pytest.approx(0.0, abs=1e-6)
    assert forbidden["plan"] is None
    assert [(issue["code"], issue["pointer"]) for issue in forbidden["forbidden"]] == [
        ("above_max_gpus", "/place/nodes")
    ]


def test_the_price_of_a_place_for_a_pretraining_job(client: httpx.Client) -> None:
    # Four nodes: at best three in one minipod and one in the other; two and two spread it otherwise.
    plan = planned(client, arnold_request())
    nodes = {name: [0, 1] for name in ("n0", "n1", "n3", "n4")}
    variant: Json = {"name": "two and two", "place": {"job": "llm", "nodes": nodes}}
    (row,) = ask(client, plan, variant)["variants"]
    assert set(row["plan"]["communication"]["hosts"]) == set(nodes)
    assert row["price"] == pytest.approx(row["plan"]["objective"] - plan["objective"])
    assert row["price"] >= 0


def test_the_same_key_gives_the_same_plans(client: httpx.Client) -> None:
    plan = planned(client, sia_request())
    variant = {"name": "drain", "drain": ["n1"]}
    first = ask(client, plan, variant, Idempotency_Key="what-if-1")
    again = ask(client, plan, variant, Idempotency_Key="what-if-1")
    assert first["variants"][0]["plan"]["id"] == again["variants"][0]["plan"]["id"]
    other = {"name": "drain", "drain": ["n0"]}
    assert ask(client, plan, other, status=409, Idempotency_Key="what-if-1")["code"] == "idempotency_conflict"


@pytest.mark.parametrize(
    ("variant", "code", "pointer"),
    [
        ({"name": "v", "drain": ["n9"]}, "unknown_node", "/variants/0/drain/0"),
        ({"name": "v", "drian": ["n0"]}, "unknown_field", "/variants/0/drian"),
        ({"name": "v", "jobs": {"j9": {"priority": 1}}}, "unknown_job", "/variants/0/jobs/j9"),
        ({"name": "v", "jobs": {"j0": {"prio": 1}}}, "unknown_field", "/variants/0/jobs/j0/prio"),
        ({"name": "v", "jobs": {"j0": {"id": "k"}}}, "unknown_field", "/variants/0/jobs/j0/id"),
        ({"name": "v", "jobs": {"j0": {"weight": 0}}}, "not_positive", "/variants/0/jobs/j0/weight"),
        ({"name": "v", "parameters": {"queue_penalty": "a"}}, "wrong_type", "/variants/0/parameters/queue_penalty"),
        ({"name": "v", "policy": "siah"}, "unknown_value", "/variants/0/policy"),
        # Nothing says tp, pp and dp.
        ({"name": "v", "policy": "arnold"}, "no_pretraining_job", "/variants/0"),
        ({"name": "v", "place": {"job": "j0"}}, "one_of", "/variants/0/place"),
        (
            {
                "name": "v",
                "add_entries": [
                    {"name": "e", "kind": "maintenance", "from_time": "2026-12-07T09:00:00Z", "nodes": ["n0"]}
                ],
            },
            "missing_field",
            "/variants/0/add_entries",
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(
    client: httpx.Client, sia_plan: Json, variant: Json, code: str, pointer: str
) -> None:
    problem = ask(client, sia_plan, variant, status=422)
    assert (code, pointer) in [(issue["code"], issue["pointer"]) for issue in problem["errors"]]


@pytest.fixture(scope="module")
def sia_plan(client: httpx.Client) -> Json:
    return planned(client, sia_request())


def test_plans_without_allocations_have_no_difference(client: httpx.Client, sia_plan: Json) -> None:
    reserved = [table_job(f"j{k}", reservation={"gpu_type": "a", "num_gpus": 4}) for k in range(3)]
    infeasible = planned(client, sia_request(reserved))
    (row,) = ask(client, infeasible, {"name": "one less", "remove_jobs": ["j2"]})["variants"]
    assert (row["plan"]["status"], row["difference"], row["figure"]) == ("succeeded", None, None)
    path = f"{sia_plan['links']['self']}/differences/{infeasible['id']}"
    for address in (path, f"{path}/figure.svg", f"{path}/figure.png"):
        assert client.get(address).json()["code"] == "no_outcome"
    assert client.get(f"{sia_plan['links']['self']}/differences/plan-0").status_code == 404
    assert post(client, "/v1/plans/plan-0:what-if", {"variants": [{"name": "v"}]}).status_code == 404


def test_measurements_and_calendars_go_along(client: httpx.Client) -> None:
    entry = {"name": "pdu", "kind": "maintenance", "from_time": "2026-12-07T09:00:00Z", "nodes": ["n0"]}
    request = changed(
        changed(sia_request(), "/snapshot/taken_at", "2026-12-07T08:00:00Z"), "/snapshot/calendar", [entry]
    )
    plan = planned(client, request)
    later = {**entry, "name": "later", "from_time": "2026-12-08T09:00:00Z"}
    variant = {"name": "v", "remove_entries": ["pdu"], "add_entries": [later]}
    (row,) = ask(client, plan, variant)["variants"]
    stored = client.get(row["plan"]["links"]["input"]).json()["snapshot"]
    assert [(item["name"], item["from_time"]) for item in stored["calendar"]] == [("later", "2026-12-08T09:00:00Z")]
    assert stored["taken_at"] == "2026-12-07T08:00:00Z"


def test_a_start_that_is_asked_for_counts_from_its_window(client: httpx.Client) -> None:
    # Nothing runs: a day later costs a day of lateness, and idle hours of four nodes, 24 x 4 x 0.001.
    day_s = 86_400.0
    request = changed(arnold_request(policy="ahead"), "/snapshot/jobs/0/latest_start_s", 7 * day_s)
    request = changed(request, "/snapshot/jobs/0/lasting", {"probabilities": [1.0], "seconds": [day_s]})
    plan = planned(client, request)
    (row,) = ask(client, plan, {"name": "tomorrow", "place": {"job": "llm", "start_s": day_s}})["variants"]
    assert row["price"] == pytest.approx(1.0 + 0.096)
    assert row["difference"]["num_by_change"] == {"later": 1}
    # The plan itself takes the start to be its earliest.
    assert row["plan"]["objective"] == pytest.approx(plan["objective"] + 0.096)
