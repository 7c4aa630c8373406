"""The files of the page and of the documentation, as they are served."""

from unittest.mock import Mock

import httpx
import pytest

from api.openapi import PATH


@pytest.mark.parametrize("path", ["/ui", "/docs"])
def test_a_page_is_below_its_path_and_allows_itself_alone(client: httpx.Client, path: str) -> None:
    moved = client.get(path)
    # Relative: a proxy may have put the service elsewhere.
    assert (moved.status_code, moved.headers["location"]) == (308, f"{path[1:]}/")
    page = client.get(f"{path}/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-cache"


def test_files_whose_names_tell_what_is_in_them_are_kept(client: httpx.Client) -> None:
    script = client.get("/ui/").text.partition('src="./assets/')[2].partition('"')[0]
    answer = client.get(f"/ui/assets/{script}")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert client.get("/docs/swagger-ui.css").headers["content-type"].startswith("text/css")


@pytest.mark.parametrize(
    "path", ["/ui/none", "/docs/none", "/ui/assets/none", "/ui/%2e%2e/app.py", "/docs/__init__.pyc"]
)
def test_there_is_nothing_else(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


def test_pages_are_read_only(client: httpx.Client) -> None:
    answer = client.post("/ui/", content=b"{}", headers={"Content-Type": "application/json"})
    assert answer.status_code == 405
    assert answer.json()["code"] == "method_not_allowed"


def test_the_index_names_them(client: httpx.Client) -> None:
    links = client.get("/").json()["links"]
    assert (links["page"], links["docs"]) == ("/ui", "/docs")


def test_the_document_of_the_interface_is_the_one_that_is_checked_in(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To make it would hold up everybody.
    monkeypatch.setattr("api.app.openapi_document", Mock(side_effect=AssertionError))
    answer = client.get("/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.content == PATH.read_bytes()
