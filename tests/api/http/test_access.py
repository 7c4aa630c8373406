"""Every route has a least role, and every role is held to it: all routes by all roles."""

from collections.abc import Iterator, Mapping
from inspect import iscoroutinefunction

import httpx
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.app import _ROUTERS, create_app
from api.common.asking import Role
from api.http.access import ACCESS
from solver.pool import WorkerPool
from tests.api.asking import JSON, post
from tests.api.conftest import SETTINGS
from tests.api.serving import serving

OPERATOR = {"Authorization": "Bearer operators-own"}


def method_of(route: APIRoute) -> str:
    [method] = sorted(route.methods or set())
    return method


ROUTES = [route for router in _ROUTERS for route in router.routes if isinstance(route, APIRoute)]
# What a role may that those before it may not, in words of paths; a change of the table that breaks it is no accident.
CHANGES = {
    route.name: route.path_format for route in ROUTES if method_of(route) != "GET" and route.name != "post_metrics"
}


@pytest.fixture(scope="module")
def guarded(pool: WorkerPool) -> Iterator[httpx.Client]:
    with serving(create_app(SETTINGS.model_copy(update={"token": "operators-own"}), pool=pool)) as client:
        yield client


@pytest.fixture(scope="module")
def tokens(guarded: httpx.Client) -> Mapping[Role, dict[str, str]]:
    """A header for each role."""
    made = {}
    for role in Role:
        answer = post(guarded, "/v1/tokens", {"client": f"a-{role}", "role": role}, **OPERATOR)
        assert answer.status_code == 201, answer.text
        made[role] = {"Authorization": f"Bearer {answer.json()['token']}"}
    return made


def asked(client: httpx.Client, route: APIRoute, headers: Mapping[str, str]) -> httpx.Response:
    """Ask for a route with an empty document, about things that there are not."""
    path = route.path_format
    for parameter in route.param_convertors:
        path = path.replace(f"{{{parameter}}}", "nothing")
    method = method_of(route)
    has_body = method in {"POST", "PUT"}
    content, more = (b"{}", JSON) if has_body else (None, {})
    return client.request(method, path, content=content, headers={**headers, **more})


def test_no_dependency_of_a_route_takes_a_thread() -> None:
    """FastAPI runs those that are no coroutines in threads, which takes longer than what they do."""

    def all_of(dependant: Dependant) -> Iterator[Dependant]:
        for each in dependant.dependencies:
            yield each
            yield from all_of(each)

    taking = {each.call for route in ROUTES for each in all_of(route.dependant) if not iscoroutinefunction(each.call)}
    assert taking == set()


def test_every_route_says_who_may_ask_and_no_other_does() -> None:
    assert sorted(ACCESS) == sorted(route.name for route in ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_roles_are_held_to_every_route(
    guarded: httpx.Client, tokens: Mapping[Role, dict[str, str]], route: APIRoute
) -> None:
    needed = ACCESS[route.name].role
    assert (needed is None) == (not route.path_format.startswith("/v1"))
    assert (asked(guarded, route, {}).status_code == 401) == (needed is not None)
    ranks = list(Role)
    for role, header in tokens.items():
        answer = asked(guarded, route, header)
        refused = needed is not None and ranks.index(role) < ranks.index(needed)
        assert (answer.status_code == 403) == refused, (role, answer.text)
        assert answer.status_code != 401
        if refused:
            problem = answer.json()
            assert problem["code"] == "forbidden"
            assert f"has the role {role}, and this needs {needed} or more" in problem["detail"]
        elif route.name not in ("healthz", "readyz"):
            assert answer.status_code < 500, answer.text


def test_what_changes_something_is_told_and_no_viewer_may() -> None:
    computed = {"export_plan_beside", "create_parallel_plans", "export_parallel", "draw_parallel_plans", "predict"}
    computed |= {"check_plan_request", "check_placement"}
    assert {name for name, access in ACCESS.items() if access.is_told} == set(CHANGES) - computed
    assert all(ACCESS[name].role not in (None, Role.VIEWER) for name in [*CHANGES, "post_metrics"])
    deploys = {name for name, path in CHANGES.items() if path.startswith(("/v1/deploy", "/v1/clust", "/v1/reserv"))}
    assert {name for name in CHANGES if ACCESS[name].role is Role.DEPLOYER} == deploys
    administers = {route.name for route in ROUTES if route.path_format.startswith(("/v1/tokens", "/v1/audit"))}
    assert {name for name, access in ACCESS.items() if access.role is Role.ADMIN} == administers
