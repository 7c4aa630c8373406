"""Forecasters over HTTP: trained, looked at, asked, ended, and found again by the next service."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import api.forecasts.service
from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.schemas.forecast import ForecastsDoc
from api.schemas.forecast_answer import ForecasterDoc, ForecasterReportDoc, ForecasterStatus
from api.store.database import Store
from api.store.forecasters import ForecasterStore
from api.store.keys import RequestKey
from models.forecast import extra
from models.forecast.forecaster import Forecaster
from solver.pool import WorkerPool
from stowplan.records import from_document
from tests.api import forecast_requests
from tests.api.asking import planned, post, refused, until, waited
from tests.api.forecast_requests import PATH, forecaster_request
from tests.api.requests import Json, arnold_request, changed, sia_request
from tests.api.serving import serving

pytestmark = pytest.mark.slow

ASKED = {
    "jobs": [
        {"id": "short", "num_gpus": 1, "user": "anna"},
        {"id": "long", "num_gpus": 1, "user": "bert"},
        {"id": "endless", "num_gpus": 1, "user": "bert", "age_s": 1e9},
    ]
}


@pytest.fixture(scope="module")
def site(client: httpx.Client) -> Iterator[Json]:
    """A forecaster that tests share."""
    document: Json = waited(client, post(client, PATH, forecaster_request("site"), Prefer="wait=50")).json()
    yield document
    client.delete(document["links"]["self"])


def seconds_of(client: httpx.Client, request: Json) -> dict[str, list[float] | None]:
    answer = post(client, f"{PATH}/site:predict", request)
    assert answer.status_code == 200, answer.text
    ForecastsDoc.model_validate_json(answer.text)
    return {one["id"]: one["lasting"] and one["lasting"]["seconds"] for one in answer.json()["forecasts"]}


def stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers do not learn."""
    task = f"{forecast_requests.__name__}:{forecast_requests.patient_task.__name__}"
    monkeypatch.setattr(api.forecasts.service, "TRAIN_TASK", task)


def test_it_is_trained_and_says_how_well_it_did(client: httpx.Client, site: Json) -> None:
    ForecasterDoc.model_validate_json(json.dumps(site))
    assert (site["status"], site["history"], site["num_jobs"]) == ("succeeded", "made", 300)
    report = client.get(site["links"]["report"])
    ForecasterReportDoc.model_validate_json(report.text)
    assert [score["predictor"] for score in report.json()["scores"]][:2] == ["forecaster", "history"]
    record = client.get(site["links"]["record"]).json()
    assert from_document(Forecaster, record, "forecaster").digest == site["digest"]
    svg, png = (client.get(site["links"][name]) for name in ("figure", "figure_png"))
    assert "probability that was said" in svg.text
    assert png.content.startswith(b"\x89PNG")
    assert client.get(site["links"]["self"]).json() == site
    listed = client.get(PATH).json()["forecasters"]
    assert {"name": "site", "status": "succeeded"}.items() <= next(
        one for one in listed if one["name"] == "site"
    ).items()


@pytest.mark.usefixtures("site")
def test_it_is_asked_how_long_jobs_last(client: httpx.Client) -> None:
    found = seconds_of(client, ASKED)
    short, long = found["short"], found["long"]
    assert short is not None
    assert long is not None
    assert short == sorted(short)
    assert max(short) < max(long)
    assert found["endless"] is None
    # All that ended since took a minute: it follows.
    since = [
        {"id": f"s{k}", "submit_s": 1e6 + 100 * k, "num_gpus": 1, "duration_s": 60, "user": "bert"} for k in range(100)
    ]
    told = seconds_of(client, {**ASKED, "since": {"name": "since", "origin_s": 20_000 * 86400.0, "jobs": since}})
    assert told["long"] is not None
    assert told["long"][5] < long[5]


def planned_by(name: str = "site", **fields: object) -> Json:
    """Two nodes that are closed an hour from the last submission on; a job of anna, one of bert, one of nobody."""
    entry = {
        "name": "service",
        "kind": "maintenance",
        "from_time": "2024-10-04T06:00:00Z",
        "until_time": "2024-10-04T09:00:00Z",
        "nodes": ["n0", "n1"],
    }
    jobs: list[Json] = [
        {"id": "short", "min_gpus": 4, "user": "anna", "priority": 2},
        {"id": "long", "min_gpus": 4, "user": "bert"},
        {"id": "whose", "min_gpus": 4},
    ]
    request = sia_request(jobs, policy="gang", parameters={"epsilon": 0.2})
    more = {"taken_at": "2024-10-04T05:00:00Z", "calendar": [entry], "forecaster": name, **fields}
    return {**request, "snapshot": {**request["snapshot"], **more}}


@pytest.mark.usefixtures("site")
def test_a_request_that_names_it_is_planned_by_what_it_says(client: httpx.Client) -> None:
    plan = planned(client, planned_by())
    assert [job["job_id"] for job in plan["allocations"]] == ["short"]
    assert {job["job_id"]: job["reason"] for job in plan["unplaced"]} == {"long": "reserved", "whose": "reserved"}
    told = {note["code"]: note for note in plan["warnings"]}
    assert told["forecast"]["pointer"] == "/snapshot/jobs/0/lasting"
    assert "2 jobs ('short', 'long')" in told["forecast"]["detail"]
    assert told["not_forecast"]["pointer"] == "/snapshot/jobs/2/user"
    # The input has what was said, and no name any more: posted again it is planned the same, whatever is said later.
    input_ = client.get(plan["links"]["input"]).json()
    assert (input_["snapshot"]["forecaster"], input_["snapshot"]["jobs"][2]["lasting"]) == (None, None)
    again = planned(client, input_)
    assert (again["input_hash"], again["allocations"]) == (plan["input_hash"], plan["allocations"])
    # The forecaster itself says the same.
    questions = [{"id": "short", "num_gpus": 4, "user": "anna", "submit_s": 18_000}]
    assert input_["snapshot"]["jobs"][0]["lasting"]["seconds"] == seconds_of(client, {"jobs": questions})["short"]
    # Variants go by the same.
    variant = {"name": "no service", "remove_entries": ["service"]}
    what_if = post(client, f"{plan['links']['self']}:what-if", {"variants": [variant]}, Prefer="wait=50").json()
    other = what_if["variants"][0]["plan"]
    assert {job["job_id"] for job in other["allocations"]} > {"short"}
    lasting = [client.get(one["links"]["input"]).json()["snapshot"]["jobs"][0]["lasting"] for one in (plan, other)]
    assert lasting[0] == lasting[1]


@pytest.mark.usefixtures("site")
def test_planning_ahead_goes_by_it(client: httpx.Client) -> None:
    """All nodes are in use by bert, whose jobs take hours; one of eight GPUs starts in a day."""
    request = arnold_request(policy="ahead")
    (llm,) = request["snapshot"]["jobs"]
    window = {"earliest_start_s": 86_400.0, "latest_start_s": 86_400.0, "remaining_s": 3600.0}
    runs: list[Json] = [
        {"id": f"r{k}", "min_gpus": 2, "user": "bert", "running_s": 60.0, "current": {f"n{k}": [0, 1]}}
        for k in range(6)
    ]
    request["snapshot"] |= {"taken_at": "2024-10-04T05:00:00Z", "jobs": [{**llm, **window}, *runs]}
    unknown = planned(client, request)
    named = planned(client, changed(request, "/snapshot/forecaster", "site"))
    # Four nodes, and nobody knows whether their jobs end; or all but surely over by then.
    before, after = (sum(t["value"] for t in plan["score"] if t["term"] == "evictions") for plan in (unknown, named))
    assert after < 0.05 * before
    (note,) = [note for note in named["warnings"] if note["code"] == "forecast"]
    assert "6 jobs ('r0'," in note["detail"]


@pytest.mark.usefixtures("site")
def test_stored_snapshots_and_placements_go_by_it_too(client: httpx.Client) -> None:
    request = planned_by()
    bare = {name: value for name, value in request["snapshot"].items() if name != "forecaster"}
    id_ = post(client, "/v1/snapshots", bare).json()["id"]
    stored = planned(client, {**request, "snapshot": {"snapshot_id": id_, "forecaster": "site"}})
    assert stored["allocations"] == planned(client, request)["allocations"]
    placement = {"snapshot": request["snapshot"], "epsilon": 0.2}
    verdicts = [
        post(
            client,
            "/v1/placements:verify",
            {**placement, "allocations": [{"job_id": job, "gpus": {"n0": [0, 1, 2, 3]}}]},
        )
        for job in ("short", "long")
    ]
    assert [verdict.json()["legal"] for verdict in verdicts] == [True, False]
    validated = post(client, "/v1/plans:validate", request).json()
    assert validated["valid"]
    assert {"forecast", "not_forecast"} <= {issue["code"] for issue in validated["issues"]}


@pytest.mark.usefixtures("site")
def test_the_same_key_is_the_same_request_whatever_is_forecast(client: httpx.Client) -> None:
    # It has no moment of its own: what is forecast changes with the time.
    request = planned_by(taken_at=None, calendar=[])
    ids = [post(client, "/v1/plans", request, Idempotency_Key="forecast").json()["id"] for _ in range(2)]
    assert ids[0] == ids[1]
    other = post(client, "/v1/plans", planned_by(calendar=[]), Idempotency_Key="forecast")
    assert other.status_code == 409


def test_forecasters_that_cannot_be_asked_are_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    pointer = "/snapshot/forecaster"
    assert refused(client, planned_by("nobody")) == (422, [("unknown_forecaster", pointer)])
    validated = post(client, "/v1/plans:validate", planned_by("nobody")).json()
    assert [issue["code"] for issue in validated["issues"]] == ["unknown_forecaster"]
    assert refused(client, planned_by("no/name")) == (422, [("wrong_format", pointer)])
    stored = post(client, "/v1/snapshots", planned_by()["snapshot"])
    assert [issue["code"] for issue in stored.json()["errors"]] == ["stored_forecaster"]
    stands_in(monkeypatch)
    post(client, PATH, forecaster_request("learning"))
    assert refused(client, planned_by("learning")) == (422, [("forecaster_not_ready", pointer)])
    assert client.delete(f"{PATH}/learning").status_code == 202


@pytest.mark.parametrize(
    ("request_", "status", "pointer"),
    [
        ({"jobs": []}, 422, "/jobs"),
        ({"jobs": [{"id": "a", "num_gpus": 1, "age_s": -1}]}, 422, "/jobs/0/age_s"),
        (
            {**ASKED, "since": {"name": "s", "jobs": [{"id": "b", "submit_s": 1, "num_gpus": 1}]}},
            422,
            "/since/origin_s",
        ),
    ],
)
@pytest.mark.usefixtures("site")
def test_wrong_questions_say_where(client: httpx.Client, request_: Json, status: int, pointer: str) -> None:
    answer = post(client, f"{PATH}/site:predict", request_)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (status, pointer)


def test_wrong_histories_are_refused_at_once(client: httpx.Client) -> None:
    request = forecaster_request("few", 3)
    few = post(client, PATH, request)
    assert (few.status_code, few.json()["errors"][0]["code"]) == (422, "too_few_jobs")
    assert few.json()["errors"][0]["pointer"] == "/history/jobs"
    request["history"]["jobs"][1]["duration_s"] = -5
    assert post(client, PATH, request).json()["errors"][0]["pointer"] == "/history/jobs/1/duration_s"
    unsorted = forecaster_request("unsorted")
    unsorted["history"]["jobs"].reverse()
    assert post(client, PATH, unsorted).json()["errors"][0]["pointer"] == "/history/jobs/1/submit_s"
    late = post(client, PATH, forecaster_request("late", time_limit_s=1e4))
    assert late.status_code == 422
    assert client.get(f"{PATH}/few").status_code == 404


def test_names_and_keys_are_taken_once(client: httpx.Client, site: Json) -> None:
    again = post(client, PATH, forecaster_request("site"))
    assert (again.status_code, again.json()["code"]) == (409, "forecaster_exists")
    keyed = forecaster_request("keyed")
    first = waited(client, post(client, PATH, keyed, Idempotency_Key="f", Prefer="wait=50")).json()
    same = post(client, PATH, keyed, Idempotency_Key="f")
    assert (same.status_code, same.json()) == (200, first)
    other = post(client, PATH, {**keyed, "name": "other"}, Idempotency_Key="f")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert client.delete(first["links"]["self"]).status_code == 204
    assert client.get(first["links"]["self"]).status_code == 404
    assert client.get(site["links"]["self"]).status_code == 200


def test_what_is_no_better_than_the_history_fails_with_the_figures(client: httpx.Client) -> None:
    request = forecaster_request("swapped", 600)
    for job in request["history"]["jobs"][540:]:
        job["user"] = {"anna": "bert", "bert": "anna"}[job["user"]]
    document = waited(client, post(client, PATH, request, Prefer="wait=50")).json()
    assert (document["status"], document["failure"]["errors"][0]["code"]) == ("failed", "forecaster_refused")
    asked = post(client, f"{PATH}/swapped:predict", ASKED)
    assert (asked.status_code, asked.json()["code"]) == (409, "no_outcome")
    client.delete(document["links"]["self"])


def test_training_is_ended_at_its_limit_and_by_clients(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch)
    late = post(client, PATH, forecaster_request("late", time_limit_s=0.2))
    assert late.status_code == 202
    waits = post(client, PATH, forecaster_request("waits"))
    assert waits.json()["status"] == "queued"
    assert client.delete(f"{PATH}/waits").status_code == 202
    assert waited(client, waits).json()["status"] == "canceled"
    assert waited(client, late).json()["status"] == "timed_out"
    long = post(client, PATH, forecaster_request("long"))
    until(client, f"{PATH}/long", lambda seen: seen["status"] == "running")
    assert client.delete(f"{PATH}/long").status_code == 202
    assert waited(client, long).json()["status"] == "canceled"
    for name in ("late", "waits", "long"):
        assert client.delete(f"{PATH}/{name}").status_code == 204


def test_without_the_extra_it_says_what_to_install(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda _: None)
    answer = post(client, PATH, forecaster_request("none"))
    assert (answer.status_code, answer.json()["code"]) == (501, "extra_missing")
    assert "pip install" in answer.json()["detail"]


def test_forecasters_outlive_the_service_and_crashes(
    lasting: Path | str, pool: WorkerPool, site: Json, client: httpx.Client
) -> None:
    settings = Settings(database=str(lasting), shutdown_s=1.0, max_wait_s=50.0)
    document = ForecasterDoc.model_validate(site, strict=False)
    running = document.model_copy(update={"name": "crashed", "status": ForecasterStatus.RUNNING})
    store = Store(lasting)
    kept = ForecasterStore(store)
    key = RequestKey(collection=PATH, key="k", input_hash="sha256:0")
    kept.add("crashed", running.model_dump_json(), key)
    kept.add("site", document.model_dump_json())
    texts = (client.get(site["links"][name]).text for name in ("record", "report"))
    kept.finish("site", document.model_dump_json(), *texts)
    store.close()
    with serving(create_app(settings, pool=pool)) as again:
        crashed = again.get(f"{PATH}/crashed").json()
        assert (crashed["status"], crashed["failure"]["code"]) == ("interrupted", "interrupted")
        # Asked for again, under the same key or not, it begins anew.
        for _ in range(2):
            anew = post(again, PATH, forecaster_request("crashed"), Idempotency_Key="k")
            assert (anew.status_code in (200, 202), anew.json()["status"] != "interrupted") == (True, True), anew.text
        assert again.get(f"{PATH}/site").json() == site
        assert seconds_of(again, ASKED)["endless"] is None


def test_a_service_that_stops_ends_training(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch)
    with serving(create_app(Settings(database=IN_MEMORY, shutdown_s=5.0), pool=pool)) as stopping:
        assert post(stopping, PATH, forecaster_request("long")).status_code == 202
        until(stopping, f"{PATH}/long", lambda seen: seen["status"] == "running")
