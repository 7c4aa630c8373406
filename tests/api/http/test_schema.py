"""Does the service keep what its OpenAPI document promises? Requests are drawn from the document, right ones and wrong.

Of every answer status, content type, headers and body are declared, none is a 5xx, and what the document forbids is
refused.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import BaseSchema, Case, GenerationMode

from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.openapi import PATH
from api.schemas.calibration import CALIBRATION_EXAMPLE
from api.schemas.replay import REPLAY_EXAMPLE
from api.schemas.reservation import CALENDAR_EXAMPLE, RESERVATION_EXAMPLE
from solver.pool import WorkerPool
from tests.api.asking import JSON, planned, post, waited
from tests.api.forecast_requests import forecaster_request
from tests.api.requests import Json, json_text, sia_request
from tests.api.serving import serving

_DOCUMENT: Json = json.loads(PATH.read_text(encoding="utf-8"))
_OPERATIONS = [(path, method) for path, methods in _DOCUMENT["paths"].items() for method in methods]
# What a document can break: a text in a path cannot.
_REFUSING = [(path, method) for path, method in _OPERATIONS if "requestBody" in _DOCUMENT["paths"][path][method]]
_CHECKS: Json = {
    "checks": {
        # No schema says that a node must be of a type that the cluster knows: that is a 422 with issues.
        "positive_data_acceptance": {"expected-statuses": ["2xx", "404", "409", "412", "422", "428"]},
    },
    "operations": [
        # Whatever is JSON is answered: the issues are the answer.
        {"include-name": "POST /v1/plans:validate", "checks": {"negative_data_rejection": {"enabled": False}}},
    ],
}
# The same requests at every run. What fails is told as it is: to make it smaller takes minutes.
_drawn = settings(
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def service(pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service that works and waits for two seconds at most."""
    options = Settings(database=IN_MEMORY, time_limit_s=1.0, max_time_limit_s=2.0, max_wait_s=2.0, max_threads=1)
    with serving(create_app(options, pool=pool)) as client:
        yield client


@pytest.fixture(scope="module")
def schema() -> BaseSchema:
    return schemathesis.openapi.from_dict(_DOCUMENT, config=schemathesis.Config.from_dict(_CHECKS))


def trained(service: httpx.Client) -> str:
    """A forecaster under a name of its own."""
    answer = post(service, "/v1/forecasters", forecaster_request(f"f{uuid4().hex}"))
    return str(waited(service, answer).json()["name"])


def calibrated(service: httpx.Client) -> str:
    """A calibration under a name of its own."""
    answer = post(service, "/v1/calibrations", {**CALIBRATION_EXAMPLE, "name": f"c{uuid4().hex}"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["name"])


def with_calendar(service: httpx.Client, name: str) -> str:
    """A cluster that has a calendar."""
    answer = service.put(f"/v1/clusters/{name}/calendar", content=json_text(CALENDAR_EXAMPLE), headers=JSON)
    # Several times the same: it was there before then.
    assert answer.status_code in {200, 201, 412, 428}, answer.text
    return name


def reserved(service: httpx.Client) -> str:
    """A reservation of the cluster `main`."""
    with_calendar(service, "main")
    return str(post(service, "/v1/reservations", {**RESERVATION_EXAMPLE, "until_time": None}).json()["id"])


# What makes the thing that a parameter of a path names.
_MAKERS: dict[str, Callable[[httpx.Client], str]] = {
    "name": lambda service: with_calendar(service, f"c{uuid4().hex}"),
    "reservation_id": reserved,
    "plan_id": lambda service: str(planned(service, sia_request())["id"]),
    "snapshot_id": lambda service: str(post(service, "/v1/snapshots", sia_request()["snapshot"]).json()["id"]),
    "replays_id": lambda service: str(waited(service, post(service, "/v1/replays", REPLAY_EXAMPLE)).json()["id"]),
    "forecaster": trained,
    "calibration": calibrated,
    "example_id": lambda _: "quickstart",
}


@pytest.fixture(scope="module")
def shared(service: httpx.Client) -> dict[str, str]:
    """What all operations find but those that delete."""
    return {name: make(service) for name, make in _MAKERS.items()} | {"name": "main"}


@pytest.fixture
def known(service: httpx.Client, shared: dict[str, str], path: str, method: str) -> dict[str, str]:
    """Parameters of paths where there is something; what is deleted is there for this test alone."""
    if method != "delete":
        return shared
    return {name: make(service) for name, make in _MAKERS.items() if f"{{{name}}}" in path}


@pytest.mark.parametrize(("path", "method"), _OPERATIONS)
def test_parameters_are_said_or_left_out(path: str, method: str) -> None:
    # A client that sends null as the document allows it sends the text `null`.
    for parameter in _DOCUMENT["paths"][path][method].get("parameters", ()):
        assert '"null"' not in json.dumps(parameter["schema"])


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), _OPERATIONS)
def test_answers_to_right_requests_are_as_documented(
    path: str, method: str, service: httpx.Client, schema: BaseSchema, known: dict[str, str]
) -> None:
    @settings(_drawn, max_examples=4)
    @given(case=schema[path][method].as_strategy(generation_mode=GenerationMode.POSITIVE), exists=st.booleans())
    def is_kept(case: Case[Any], exists: bool) -> None:
        if exists:
            case.path_parameters.update((name, known[name]) for name in known.keys() & case.path_parameters.keys())
        case.call_and_validate(base_url=str(service.base_url))

    is_kept()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), _REFUSING)
def test_wrong_requests_are_refused_as_documented(
    path: str, method: str, service: httpx.Client, schema: BaseSchema
) -> None:
    @settings(_drawn, max_examples=2)
    @given(case=schema[path][method].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def is_kept(case: Case[Any]) -> None:
        case.call_and_validate(base_url=str(service.base_url))

    is_kept()
