"""The Helm chart: what it renders is what Kubernetes has published, without rights, with settings that there are."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from kubernetes import client

from api.common.settings import Settings
from tests.deploy.chart import CASES, CHART, RENDERED, chart_hash, rendered
from tests.paths import ROOT

every_case = pytest.mark.parametrize("case", CASES)


def text_of(case: str) -> str:
    return (RENDERED / f"{case}.yaml").read_text()


def objects(case: str) -> Mapping[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(text_of(case))}


def is_published(kind: str, document: Mapping[str, Any]) -> bool:
    """Types are checked on the way in, and what the model does not know is lost on the way out."""
    read = getattr(client, f"V1{kind}").from_dict(document)
    return bool(given_only(read.to_dict(serialize=True)) == document)


def given_only(value: Any) -> Any:
    """The same without fields that nobody has given."""
    if isinstance(value, dict):
        return {name: given_only(one) for name, one in value.items() if one is not None}
    return [given_only(one) for one in value] if isinstance(value, list) else value


def container_of(case: str) -> dict[str, Any]:
    (container,) = objects(case)["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return dict(container)


def variables(case: str) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container_of(case)["env"]}


@every_case
def test_what_was_rendered_is_of_this_chart(case: str) -> None:
    assert text_of(case).startswith(f"# chart {chart_hash()}\n"), "run python -m tests.deploy.chart"


@every_case
def test_every_field_is_published(case: str) -> None:
    """By the models of the official client; of the operator of Prometheus there is none here."""
    found = dict(objects(case))
    assert ("ServiceMonitor" in found) == (case == "everything")
    found.pop("ServiceMonitor", None)
    assert {"StatefulSet", "Service", "ServiceAccount"} <= set(found)
    for kind, document in found.items():
        assert is_published(kind, document)
        # What is not published is seen.
        assert not is_published(kind, {**document, "sepc": {}})
        assert not is_published(kind, {**document, "metadata": {**document["metadata"], "nmae": "x"}})


@every_case
def test_parts_belong_together(case: str) -> None:
    found = objects(case)
    spec, service = found["StatefulSet"]["spec"], found["Service"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    for selector in (spec["selector"]["matchLabels"], service["selector"]):
        assert selector.items() <= labels.items()
    assert spec["serviceName"] == found["Service"]["metadata"]["name"]
    assert spec["template"]["spec"]["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    ports = {port["name"] for port in container_of(case)["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= ports
    if case == "everything":
        endpoints = found["ServiceMonitor"]["spec"]["endpoints"]
        assert {endpoint["port"] for endpoint in endpoints} <= {port["name"] for port in service["ports"]}
        assert variables(case)["STOWPLAN_TOKEN"]["secretKeyRef"]["name"] == found["Secret"]["metadata"]["name"]


@every_case
def test_the_pod_has_no_rights_and_writes_where_it_may(case: str) -> None:
    pod, container = objects(case)["StatefulSet"]["spec"]["template"]["spec"], container_of(case)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"]["drop"] == ["ALL"]
    claims = [
        claim["metadata"]["name"] for claim in objects(case)["StatefulSet"]["spec"].get("volumeClaimTemplates", ())
    ]
    volumes = {*claims, *(volume["name"] for volume in pod["volumes"])}
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounted) == {"/tmp", "/var/lib/stowplan"}  # noqa: S108 - in the container
    assert set(mounted.values()) == volumes
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert [int(number) for number in user.groups()] == [
        pod["securityContext"][name] for name in ("runAsUser", "runAsGroup")
    ]


@every_case
def test_the_service_takes_these_settings(case: str) -> None:
    given = variables(case)
    plain = {name.removeprefix("STOWPLAN_").lower(): value for name, value in given.items() if isinstance(value, str)}
    settings = Settings.model_validate({**plain, "token": "secret"})
    assert {"stowplan", "stowplan.planning", "stowplan.planning.svc"} <= settings.host_names
    assert container_of(case)["ports"][0]["containerPort"] == settings.port
    if case == "everything":
        assert settings.workers == 4
        assert "planner.example.org" in settings.host_names
        assert given["STOWPLAN_DATABASE"]["secretKeyRef"] == {"name": "stowplan-database", "key": "url"}
    else:
        assert str(settings.database_location) == "/var/lib/stowplan/stowplan.sqlite"
    paths = json.loads((ROOT / "api" / "openapi.json").read_text())["paths"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container_of(case)[probe]["httpGet"]["path"] in paths


def test_values_are_described() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}


@every_case
def test_helm_renders_this(case: str) -> None:
    pytest.importorskip("helm_python", reason="no library of Helm here (pip install helm-python-sdk)")
    assert text_of(case).partition("\n")[2] == rendered(CASES[case])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "set existingSecret to a secret whose key"),
        ({"token": "a", "existingSecret": "b"}, "not both"),
        ({"token": "a b"}, "does not match pattern"),
        ({"token": "a", "replicas": 2}, "a file of SQLite has one service"),
        ({"token": "a", "replicas": 0}, "replicas"),
        ({"tokn": "a"}, "tokn"),
        ({"token": "a", "settings": {"STOWPLAN_HOST": "127.0.0.1"}}, "STOWPLAN_HOST"),
    ],
)
def test_helm_refuses_values(values: dict[str, Any], words: str) -> None:
    helm = pytest.importorskip("helm_python", reason="no library of Helm here (pip install helm-python-sdk)")
    assert not helm.lint(str(CHART))["errors"]
    with pytest.raises(helm.HelmError, match=re.escape(words)):
        rendered(values)
