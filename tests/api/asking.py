"""How tests ask a service."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.api.requests import Json, json_text
from tests.waiting import eventually

JSON = {"Content-Type": "application/json"}
# First bytes of every such picture.
PNG = b"\x89PNG\r\n"
_UNFINISHED = ("queued", "building", "solving", "running")


def post(client: httpx.Client, path: str, document: Any, **headers: str) -> httpx.Response:
    """Post a document; header names with underscores for dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(path, content=json_text(document), headers={**JSON, **named})


def waited(client: httpx.Client, answer: httpx.Response) -> httpx.Response:
    """The final answer of what was asked for: some machines take longer than one wait."""
    if answer.status_code == 202:
        path = answer.headers["location"]
        answer = eventually(
            lambda: client.get(path, headers={"Prefer": "wait=50"}),
            lambda seen: seen.json()["status"] not in _UNFINISHED,
            limit_s=240.0,
        )
    assert answer.status_code == 200, answer.text
    return answer


def planned(client: httpx.Client, request: Json) -> Json:
    """The finished plan for a request."""
    plan: Json = waited(client, post(client, "/v1/plans", request, Prefer="wait=50")).json()
    return plan


def refused(client: httpx.Client, request: Json) -> tuple[int, list[tuple[str, str]]]:
    """Status and (code, pointer) of all issues of a request that is refused."""
    answer = post(client, "/v1/plans", request)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"urn:stowplan:error:{problem['code']}"
    return answer.status_code, [(issue["code"], issue["pointer"]) for issue in problem["errors"]]


def until(client: httpx.Client, path: str, holds: Callable[[Json], bool]) -> Json:
    """The document at a path, once it is as wanted."""

    def look() -> Json:
        document: Json = client.get(path).json()
        return document

    return eventually(look, holds)


def events_of(client: httpx.Client, document: Json, **headers: str) -> list[tuple[int, str, Json]]:
    """Id, name and data of all events until the stream ends."""
    found: list[tuple[int, str, Json]] = []
    with client.stream("GET", document["links"]["events"], headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
                fields = {}
    return found
