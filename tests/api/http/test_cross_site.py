"""Pages of other sites, which a browser lends its place in the network, read nothing and change nothing."""

import socket

import httpx
import pytest

from api.common.settings import Settings
from stowplan.errors import InputError
from tests.api.asking import JSON, planned
from tests.api.requests import json_text, sia_request


def _refused(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "localhost.evil.example", "[::1", ""])
@pytest.mark.parametrize("path", ["/v1/policies", "/healthz", "/openapi.json"])
def test_a_name_that_is_not_the_services_is_told_nothing(client: httpx.Client, host: str, path: str) -> None:
    answer = client.get(path, headers={"Host": host})
    assert _refused(answer) == (421, "misdirected_request")
    assert "STOWPLAN_ALLOWED_HOSTS" in answer.json()["detail"]


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:8080", "10.1.2.3", socket.gethostname()]
)
def test_the_services_own_names_and_addresses_are_answered(client: httpx.Client, host: str) -> None:
    assert client.get("/v1/policies", headers={"Host": host}).status_code == 200


def test_hosts_are_named_by_settings() -> None:
    settings = Settings(host="plan.example", insecure=True, allowed_hosts="planner, Planner.example.org")
    machine = socket.gethostname().lower()
    assert settings.host_names == {"localhost", "plan.example", "planner", "planner.example.org", machine}
    for wrong in ("http://planner", "planner:8080", "planner,,x", "*"):
        with pytest.raises(InputError, match="names without scheme and port"):
            Settings(allowed_hosts=wrong)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "null"])
def test_a_page_of_another_origin_changes_nothing(client: httpx.Client, origin: str) -> None:
    plan = planned(client, sia_request())["links"]["self"]
    foreign = {**JSON, "Origin": origin}
    for method, path in (("POST", "/v1/plans"), ("POST", f"{plan}:cancel"), ("DELETE", plan), ("PUT", "/v1/plans")):
        answer = client.request(method, path, content=json_text(sia_request()), headers=foreign)
        assert _refused(answer) == (403, "foreign_origin")
        assert origin in answer.json()["detail"]
    # Reading is left to the browser, which shows the answer to no page that we do not name.
    seen = client.get(plan, headers={"Origin": origin})
    assert (seen.status_code, seen.headers.get("access-control-allow-origin")) == (200, None)


def test_a_page_of_the_service_may_change_things(client: httpx.Client) -> None:
    own = {**JSON, "Origin": f"http://{client.base_url.netloc.decode()}"}
    assert client.post("/v1/plans:validate", content=json_text(sia_request()), headers=own).status_code == 200
    # A proxy in front that ends TLS passes the name on, not the scheme.
    proxied = {**JSON, "Host": "localhost", "Origin": "https://localhost"}
    assert client.post("/v1/plans:validate", content=json_text(sia_request()), headers=proxied).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", None]
)
def test_what_a_form_can_send_is_not_taken(client: httpx.Client, kind: str | None) -> None:
    declared = {} if kind is None else {"Content-Type": kind}
    for path in ("/v1/plans", "/v1/plans/plan-0:cancel", "/v1/deployments/deployment-0:stop"):
        answer = client.post(path, content=b"{}", headers=declared)
        assert _refused(answer) == (415, "unsupported_media_type")
        assert "send Content-Type: application/json" in answer.json()["detail"]
    assert _refused(client.post("/v1/plans", content=iter([b"{}"]), headers=declared))[0] == 415


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_a_change_without_a_body_needs_no_declaration_and_no_foreign_origin(client: httpx.Client, origin: str) -> None:
    plan = planned(client, sia_request())["links"]["self"]
    # As `curl -X POST` sends it, and as a page of another site makes a browser send it.
    assert client.post(f"{plan}:cancel").status_code == 200
    assert _refused(client.post(f"{plan}:cancel", headers={"Origin": origin})) == (403, "foreign_origin")


def test_a_form_without_fields_is_not_taken_either(client: httpx.Client) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert _refused(client.post("/v1/plans/plan-0:cancel", headers=form))[0] == 415
    # Nothing declared and nothing sent: as clients that are no browsers cancel a plan.
    assert client.post("/v1/plans/plan-0:cancel").status_code == 404
