"""Forecasters over HTTP: trained, looked at, asked, ended, and found again by the next service."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import api.forecasts.service
from api.app import create_app
from api.common.settings import IN_MEMORY, Settings
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
from tests.api.asking import post, until, waited
from tests.api.forecast_requests import PATH, forecaster_request
from tests.api.requests import Json
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
    tmp_path: Path, pool: WorkerPool, site: Json, client: httpx.Client
) -> None:
    settings = Settings(database=str(tmp_path / "plans.sqlite"), shutdown_s=1.0, max_wait_s=50.0)
    document = ForecasterDoc.model_validate(site, strict=False)
    running = document.model_copy(update={"name": "crashed", "status": ForecasterStatus.RUNNING})
    store = Store(tmp_path / "plans.sqlite")
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
