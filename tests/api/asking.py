"""How tests ask a service."""

from typing import Any

import httpx

from tests.api.requests import Json, json_text

JSON = {"Content-Type": "application/json"}


def post(client: httpx.Client, path: str, document: Any, **headers: str) -> httpx.Response:
    """Post a document; header names with underscores for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(path, content=json_text(document), headers={**JSON, **named})


def planned(client: httpx.Client, request: Json) -> Json:
    """The finished plan for a request."""
    answer = post(client, "/v1/plans", request, Prefer="wait=50")
    assert answer.status_code == 200, answer.text
    plan: Json = answer.json()
    return plan


def refused(client: httpx.Client, request: Json) -> tuple[int, list[tuple[str, str]]]:
    """Status and (code, pointer) of all issues of a request that is refused."""
    answer = post(client, "/v1/plans", request)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"urn:stowplan:error:{problem['code']}"
    return answer.status_code, [(issue["code"], issue["pointer"]) for issue in problem["errors"]]
