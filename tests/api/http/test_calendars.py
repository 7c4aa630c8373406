"""Calendars and reservations over HTTP: statuses, headers, iCalendar, pictures."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import icalendar
import pytest

from api.schemas.reservation import CALENDAR_EXAMPLE
from tests.api.asking import JSON, planned, post, refused
from tests.api.requests import Json, changed, json_text, sia_request

# The service goes by the clock of the machine.
NOW = datetime.now(UTC)
ENTRY: Json = {
    "name": "switches",
    "kind": "maintenance",
    "nodes": ["n0"],
    "from_time": (NOW + timedelta(9)).isoformat(),
}


def put(client: httpx.Client, name: str, document: Any, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.put(f"/v1/clusters/{name}/calendar", content=json_text(document), headers={**JSON, **named})


def code_of(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["code"])


def reservation(cluster: str, name: str, *nodes: str, days: int = 30, **fields: Any) -> Json:
    """From now on."""
    times = {"from_time": NOW.isoformat(), "until_time": (NOW + timedelta(days)).isoformat()}
    return {"cluster": cluster, "name": name, "nodes": nodes, **times, **fields}


def test_a_calendar_over_http(client: httpx.Client) -> None:
    path = "/v1/clusters/floor%20one/calendar"
    assert code_of(client.get(path), 404) == "not_found"
    made = put(client, "floor one", CALENDAR_EXAMPLE)
    assert (made.status_code, made.headers["etag"], made.headers["location"]) == (201, '"1"', path)
    assert code_of(put(client, "floor one", CALENDAR_EXAMPLE), 428) == "precondition_required"
    assert code_of(put(client, "floor one", CALENDAR_EXAMPLE, If_Match='"9"'), 412) == "precondition_failed"
    assert code_of(put(client, "floor one", CALENDAR_EXAMPLE, If_Match="1"), 400) == "invalid_header"
    answer = put(client, "floor one", {"entries": [ENTRY]}, If_Match='"1"')
    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    seen = client.get(path)
    assert seen.headers["etag"] == '"2"'
    assert seen.json() == answer.json()
    assert [entry["name"] for entry in seen.json()["entries"]] == ["switches"]
    assert code_of(put(client, "floor one", {"entrys": []}, If_Match='"2"'), 422) == "invalid_input"


def test_a_reservation_over_http(client: httpx.Client) -> None:
    put(client, "hall", CALENDAR_EXAMPLE)
    made = post(client, "/v1/reservations", reservation("hall", "175b", "n0", "n1"))
    assert made.status_code == 201, made.text
    document = made.json()
    assert made.headers["location"] == document["links"]["self"]
    assert client.post(document["links"]["confirm"]).json()["status"] == "active"
    assert client.get(document["links"]["self"]).json()["status"] == "active"
    refused = post(client, "/v1/reservations", reservation("hall", "other", "n1"))
    assert code_of(refused, 409) == "calendar_conflict"
    assert "'175b'" in refused.json()["detail"]
    assert "'other'" in refused.json()["detail"]
    assert client.get("/v1/reservations?cluster=hall").json()["reservations"][0]["id"] == document["id"]
    assert client.get(document["links"]["calendar"]).json()["reservations"][0]["entry"]["name"] == "175b"
    assert client.delete(document["links"]["self"]).json()["status"] == "canceled"
    assert code_of(client.post(document["links"]["confirm"]), 409) == "reservation_final"
    assert client.delete(document["links"]["self"]).status_code == 204
    for answer in (client.get(document["links"]["self"]), client.post(document["links"]["confirm"])):
        assert code_of(answer, 404) == "not_found"


@pytest.mark.slow
def test_what_is_planned_ahead_is_reserved_for_when_it_starts(client: httpx.Client) -> None:
    # The job starts in two days on one of two minipods, and keeps it for three days.
    nodes = [{"id": f"{m}{n}", "gpu_type": "a", "num_gpus": 4, "path": [m]} for m in "xy" for n in (1, 2)]
    cluster: Json = {
        **sia_request()["snapshot"]["cluster"],
        "nodes": nodes,
        "tiers": [{"name": "pod"}],
        "minipod_tier": "pod",
    }
    cluster["gpu_types"] = [{**cluster["gpu_types"][0], "name": "a"}]
    day_s = 86_400.0
    job = {
        "id": "llm",
        "parallelism": {"tp": 4, "pp": 1, "dp": 2},
        "earliest_start_s": 2 * day_s,
        "remaining_s": 3 * day_s,
    }
    snapshot = {"cluster": cluster, "jobs": [job], "taken_at": NOW.isoformat()}
    plan = planned(client, {"policy": "ahead", "snapshot": snapshot, "parameters": {"alpha": 0.5}})
    put(client, "ahead", {"entries": [], "cluster": cluster})
    body = {"cluster": "ahead", "name": "llm", "plan_id": plan["id"]}
    entry = post(client, "/v1/reservations", body).json()["entry"]
    assert entry["nodes"] in (["x1", "x2"], ["y1", "y2"])
    times = [datetime.fromisoformat(entry[name]) for name in ("from_time", "until_time")]
    assert times == [NOW + timedelta(2), NOW + timedelta(5)]
    missing = post(client, "/v1/reservations", {**body, "plan_id": None, "nodes": ["x1"]})
    assert [issue["pointer"] for issue in missing.json()["errors"]] == ["/from_time"]


@pytest.mark.slow
def test_a_plan_is_reserved(client: httpx.Client) -> None:
    plan = planned(client, sia_request())
    nodes = {job["job_id"]: list(job["gpus"]) for job in plan["allocations"]}
    put(client, "planned", {"entries": [], "cluster": sia_request()["snapshot"]["cluster"]})
    body = reservation("planned", "j1", plan_id=plan["id"], job_id="j1")
    assert post(client, "/v1/reservations", body).json()["entry"]["nodes"] == nodes["j1"]
    for wrong, code in (({"job_id": "j9"}, 404), ({"job_id": None}, 404), ({"plan_id": "plan-0"}, 404)):
        assert code_of(post(client, "/v1/reservations", {**body, **wrong}), code) == "not_found"


@pytest.mark.slow
def test_a_plan_goes_by_a_calendar_of_the_service(client: httpx.Client) -> None:
    put(client, "known", {"entries": [ENTRY], "cluster": sia_request()["snapshot"]["cluster"]})
    kept = post(client, "/v1/reservations", reservation("known", "175b", "n1")).json()
    client.post(kept["links"]["confirm"])
    request = changed(sia_request(), "/snapshot/calendar", {"cluster": "known"})
    plan = planned(client, request)
    # n1 is kept for others.
    assert all("n1" not in job["gpus"] for job in plan["allocations"])
    used = client.get(plan["links"]["input"]).json()["snapshot"]
    assert [entry["name"] for entry in used["calendar"]] == ["switches", "175b"]
    assert datetime.fromisoformat(used["taken_at"]) >= NOW
    # The same of a snapshot that is stored, which says itself when it was taken.
    snapshot = {**sia_request()["snapshot"], "taken_at": NOW.isoformat()}
    id_ = post(client, "/v1/snapshots", snapshot).json()["id"]
    stored = {"snapshot_id": id_, "calendar": {"cluster": "known"}}
    used = client.get(planned(client, {**request, "snapshot": stored})["links"]["input"]).json()["snapshot"]
    assert [entry["name"] for entry in used["calendar"]] == ["switches", "175b"]
    assert datetime.fromisoformat(used["taken_at"]) == NOW
    # One request under one key, whatever became of the calendar meanwhile.
    first = post(client, "/v1/plans", request, Idempotency_Key="calendar").json()["id"]
    client.delete(kept["links"]["self"])
    assert post(client, "/v1/plans", request, Idempotency_Key="calendar").json()["id"] == first
    wrong = changed(request, "/snapshot/calendar/cluster", "unknown")
    assert refused(client, wrong) == (422, [("unknown_cluster", "/snapshot/calendar/cluster")])
    assert code_of(post(client, "/v1/snapshots", wrong["snapshot"]), 422) == "invalid_input"


def test_programs_read_the_calendar(client: httpx.Client) -> None:
    entry = {**ENTRY, "name": "a; long, name\\ with ümläuts " * 4, "owner": "team"}
    put(client, "read", {**CALENDAR_EXAMPLE, "entries": [entry]})
    answer = client.get("/v1/clusters/read/calendar.ics")
    assert answer.headers["content-type"].startswith("text/calendar")
    (event,) = icalendar.Calendar.from_ical(answer.text).walk("VEVENT")
    assert event["SUMMARY"] == f"maintenance {entry['name']}"
    assert event.decoded("DTSTART") == datetime.fromisoformat(ENTRY["from_time"]).replace(microsecond=0)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_calendar_is_drawn(client: httpx.Client, kind: str, begins: bytes) -> None:
    put(client, f"drawn-{kind}", CALENDAR_EXAMPLE)
    answer = client.get(f"/v1/clusters/drawn-{kind}/calendar/figure.{kind}")
    assert answer.content.startswith(begins)
    assert code_of(client.get(f"/v1/clusters/nowhere/calendar/figure.{kind}"), 404) == "not_found"
