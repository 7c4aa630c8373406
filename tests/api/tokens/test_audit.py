"""The audit log tells who changed what, together with the change, and who was refused."""

from collections.abc import Iterator

import httpx
import pytest

from api.app import create_app
from api.common.asking import ASKING, OPERATOR, Asking
from api.http import authentication
from api.store.audit import AuditLog, note_change
from api.store.clusters import ClusterStore
from api.store.database import Store
from api.store.texts import Body
from solver.pool import WorkerPool
from tests.api.asking import JSON, post
from tests.api.conftest import SETTINGS
from tests.api.requests import Json, sia_request
from tests.api.serving import serving

OPERATORS = "operators-own"
GIVEN = {"Authorization": f"Bearer {OPERATORS}"}


@pytest.fixture
def guarded(pool: WorkerPool) -> Iterator[httpx.Client]:
    with serving(create_app(SETTINGS.model_copy(update={"token": OPERATORS}), pool=pool)) as client:
        yield client


def entries(client: httpx.Client, query: str = "") -> list[Json]:
    """The log, oldest first."""
    answer = client.get(f"/v1/audit{query}", headers=GIVEN)
    assert answer.status_code == 200, answer.text
    return list(reversed(answer.json()["entries"]))


def told(client: httpx.Client) -> list[tuple[object, ...]]:
    shown = ("client", "role", "action", "resource", "created", "request_id", "status")
    return [tuple(entry[name] for name in shown) for entry in entries(client)]


def test_who_posted_and_cancelled_is_told(guarded: httpx.Client) -> None:
    made = post(guarded, "/v1/tokens", {"client": "nightly", "role": "planner"}, X_Request_Id="r-1", **GIVEN).json()
    nightly = {"Authorization": f"Bearer {made['token']}"}
    plan_id = post(guarded, "/v1/plans", sia_request(), X_Request_Id="r-2", **nightly).json()["id"]
    guarded.post(f"/v1/plans/{plan_id}:cancel", headers={**nightly, "X-Request-Id": "r-3"})
    # Nothing that changes: not told.
    guarded.get(f"/v1/plans/{plan_id}", headers=nightly)
    post(guarded, "/v1/plans:validate", sia_request(), **nightly)
    post(guarded, "/v1/plans", {}, **nightly)
    *before, canceled = told(guarded)
    assert before == [
        ("operator", "admin", "create_token", "/v1/tokens", made["id"], "r-1", None),
        ("nightly", "planner", "create_plan", "/v1/plans", plan_id, "r-2", None),
    ]
    assert canceled[:-1] == ("nightly", "planner", "cancel_plan", f"/v1/plans/{plan_id}:cancel", None, "r-3")
    assert canceled[-1] in (200, 202)
    assert [entry["client"] for entry in entries(guarded, "?client=nightly")] == ["nightly", "nightly"]
    # The first event of the plan has the request, too.
    with guarded.stream("GET", f"/v1/plans/{plan_id}/events", headers=nightly) as stream:
        first = next(line for line in stream.iter_lines() if line.startswith("data: "))
    assert '"request_id": "r-2"' in first


def test_who_was_refused_is_told(guarded: httpx.Client) -> None:
    made = post(guarded, "/v1/tokens", {"client": "guest", "role": "viewer"}, **GIVEN).json()
    guest = {"Authorization": f"Bearer {made['token']}", "X-Request-Id": "r-4"}
    assert post(guarded, "/v1/plans", sia_request(), **guest).status_code == 403
    assert guarded.get("/v1/audit", headers=guest).status_code == 403
    assert post(guarded, "/v1/deployments", {}, X_Request_Id="r-5").status_code == 401
    assert guarded.get("/v1/plans").status_code == 401
    assert told(guarded)[1:] == [
        ("guest", "viewer", "create_plan", "/v1/plans", None, "r-4", 403),
        ("guest", "viewer", "list_audit", "/v1/audit", None, "r-4", 403),
        (None, None, "POST", "/v1/deployments", None, "r-5", 401),
    ]


def test_strangers_cannot_fill_it(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_STRANGERS_PER_S", 1e-9)
    monkeypatch.setattr(authentication, "_STRANGERS_AT_ONCE", 3)
    with serving(create_app(SETTINGS.model_copy(update={"token": OPERATORS}), pool=pool)) as client:
        for _ in range(5):
            assert post(client, "/v1/plans", {}).status_code == 401
        assert len(entries(client)) == 3


def test_what_is_not_changed_is_not_told(guarded: httpx.Client) -> None:
    for path in ("/v1/plans/none", "/v1/clusters/none", "/v1/replays/none", "/v1/solver-comparisons/none"):
        assert guarded.delete(path, headers=GIVEN).status_code == 404
    assert guarded.put("/v1/clusters/main", content=b"{}", headers={**GIVEN, **JSON}).status_code == 422
    assert entries(guarded) == []


def test_pages_and_wrong_queries(guarded: httpx.Client) -> None:
    for k in range(5):
        post(guarded, "/v1/tokens", {"client": f"c{k}", "role": "viewer"}, **GIVEN)
    first = guarded.get("/v1/audit?limit=3&client=operator", headers=GIVEN).json()
    assert first["next"] == "/v1/audit?limit=3&before=3&client=operator"
    rest = guarded.get(first["next"], headers=GIVEN).json()
    assert (len(first["entries"]), len(rest["entries"]), rest["next"]) == (3, 2, None)
    assert guarded.get("/v1/audit?limit=0", headers=GIVEN).status_code == 422
    assert guarded.get("/v1/audit?who=me", headers=GIVEN).status_code == 422


def test_an_entry_is_written_with_its_change_or_not_at_all() -> None:
    store = Store(None)
    clusters = ClusterStore(store)
    ASKING.set(Asking(id="r", path="/v1/clusters/main", caller=OPERATOR, action="put_cluster"))
    try:
        with pytest.raises(RuntimeError, match="behind the entry"):
            _break_behind_the_entry(store)
        clusters.put("main", Body.of("{}"), 0.0, None)
        # Another version is asked for: nothing is changed, nothing is told.
        assert clusters.put("main", Body.of("{}"), 0.0, 7) is None
        assert clusters.delete("main")
        assert not clusters.delete("main")
        assert [entry.action for entry in AuditLog(store).page(9, None, None)] == ["put_cluster"] * 2
    finally:
        ASKING.set(None)
        store.close()


def _break_behind_the_entry(store: Store) -> None:
    with store.writing() as connection:
        note_change(connection)
        raise RuntimeError("behind the entry")
