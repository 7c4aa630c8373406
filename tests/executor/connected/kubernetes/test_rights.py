"""The role of the documentation: what the published models know, and all that is asked for, and no more."""

import re
from collections.abc import Iterable
from typing import Any

import kubernetes.client
import yaml

from executor.connected.kubernetes.terms import CONTROLLER, Terms
from tests.executor.connected.kubernetes.api_server import ApiServer, Request
from tests.executor.connected.kubernetes.scenes import connected, gang, nodes, served
from tests.executor.connected.kubernetes.test_kueue import CHECK, waiting
from tests.paths import ROOT

ROLE = next(
    block
    for block in re.findall(
        r"^```yaml\n(.*?)^```", (ROOT / "docs" / "kubernetes.md").read_text(), re.DOTALL | re.MULTILINE
    )
    if "ClusterRole" in block
)
_VERBS = {"PATCH": "patch", "DELETE": "delete"}


def asked(requests: Iterable[Request]) -> set[tuple[str, str, str]]:
    """Group, resource and verb of requests, but for discovery, which everybody may."""
    found = set()
    for request in requests:
        parts = request.path.strip("/").split("/")
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        if not rest:
            continue
        rest = rest[2:] if rest[0] == "namespaces" else rest
        resource = rest[0] if len(rest) < 3 else f"{rest[0]}/{rest[2]}"
        verb = _VERBS.get(request.method) or ("watch" if "watch" in request.query else "list")
        found.add((group, resource, verb))
    return found


def everything(server: ApiServer, *, may_delete: bool) -> None:
    with connected(server, terms=Terms(may_delete=may_delete)) as connection:
        connection.backend.serve_checks()
        connection.step()


def test_the_role_allows_what_is_asked_and_no_more() -> None:
    rules: list[dict[str, Any]] = yaml.safe_load(ROLE)["rules"]
    allowed = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    check = {**CHECK, "spec": {"controllerName": CONTROLLER}}
    objects = (("nodes", nodes()), ("pods", gang("train", 2)), ("workloads", [waiting("queued", 1)]))
    with served(*objects, ("admissionchecks", [check]), kueue="v1beta1") as server:
        everything(server, may_delete=False)
        watched = {resource for _, resource, verb in allowed if verb == "watch"}
        # Watches begin in threads of their own.
        assert {name for _, name, verb in asked(server.requests) if verb == "list"} == watched
        used = asked(server.requests) | {
            ("" if name in ("nodes", "pods") else "kueue.x-k8s.io", name, "watch") for name in watched
        }
    assert used == allowed


def test_the_role_is_one_of_the_published_models() -> None:
    manifest = yaml.safe_load(ROLE)
    role = kubernetes.client.V1ClusterRole.from_dict(manifest)
    assert role is not None
    assert kubernetes.client.ApiClient().sanitize_for_serialization(role) == manifest
