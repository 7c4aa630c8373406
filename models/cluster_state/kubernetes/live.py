"""What the API of a Kubernetes cluster says now, asked with the official client (extra `kubernetes`).

Lists come page by page, as JSON and not as the client's models, which would cost more than all the rest. Workloads of
Kueue, JobSets and topologies are asked for where the cluster serves them.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kubernetes
import urllib3
import yaml

from models.cluster_state.base import LiveSource, ParsedDocument, SourceDocument
from models.cluster_state.kubernetes.objects import MAX_OBJECTS
from stowplan.errors import InputError

PAGE = 500
TIMEOUT_S = 30.0
_MAX_PAGES = MAX_OBJECTS // PAGE
# How often a list is begun anew that took longer than the server remembers.
_MAX_LISTS = 3
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _GONE = 401, 403, 404, 410
_SAID_CHARS = 400
# There may be many pods that are over, and they are not read.
_PODS = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_KUEUE, _JOBSET, _KAI, _VOLCANO = "kueue.x-k8s.io", "jobset.x-k8s.io", "kai.scheduler", "topology.volcano.sh"
_VERSIONS = {
    _KUEUE: ("v1beta2", "v1beta1", "v1alpha1"),
    _JOBSET: ("v1alpha2",),
    _KAI: ("v1alpha1",),
    _VOLCANO: ("v1alpha1",),
}


def live_documents(
    source: LiveSource, given: Collection[str], settings: Mapping[str, str]
) -> dict[str, Sequence[SourceDocument]]:
    """Ask a cluster.

    Parameters
    ----------
    source
        A kubeconfig and a context of it; without both what kubectl would take, and inside of a pod its account.
    given
        Roles that are not asked for.
    settings
        Of the reader: labels that are named are taken rather than topologies.

    Raises
    ------
    InputError
        When there is no such cluster, it refuses, or it does not answer; says what would help.
    """
    cluster = _Cluster(source)
    documents: dict[str, Sequence[SourceDocument]] = {}
    if "nodes" not in given:
        documents["nodes"] = cluster.pages("/api/v1", "nodes")
    if "pods" not in given:
        documents["pods"] = cluster.pages("/api/v1", "pods", _PODS)
    if "workloads" not in given:
        documents["workloads"] = [*cluster.served(_KUEUE, "workloads"), *cluster.served(_JOBSET, "jobsets")]
    if "topology" not in given:
        documents["topology"] = _topologies(cluster, settings.get("topology-labels"))
    return documents


def _topologies(cluster: "_Cluster", setting: str | None) -> Sequence[SourceDocument]:
    """HyperNodes, or else topologies by label with the flavors that name them; none where labels are named."""
    hypernodes = cluster.served(_VOLCANO, "hypernodes") if setting is None else []
    if _names(hypernodes):
        return hypernodes
    for group, others in ((_KUEUE, ("resourceflavors",)), (_KAI, ())):
        found = cluster.served(group, "topologies")
        names = _names(found)
        if setting in names or (setting is None and names):
            return [*found, *(page for other in others for page in cluster.served(group, other))]
    return []


def _names(pages: Collection[ParsedDocument]) -> set[str]:
    return {one.get("metadata", {}).get("name", "") for page in pages for one in _items(page)}


def _items(page: ParsedDocument) -> list[Any]:
    found = page.value.get("items") if isinstance(page.value, dict) else None
    return found if isinstance(found, list) else []


class _Refused(Exception):  # noqa: N818 - an answer, told as an InputError
    """The API refused a request."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Cluster:
    """The API of a cluster."""

    def __init__(self, source: LiveSource) -> None:
        self._client = kubernetes.client.ApiClient(_configuration(source))
        self._host = str(self._client.configuration.host)

    def served(self, group: str, plural: str) -> list[ParsedDocument]:
        """Lists of a kind that a cluster need not have; none where it does not."""
        for version in _VERSIONS[group]:
            try:
                kinds = self._get(f"/apis/{group}/{version}", {}).value
            except _Refused as error:
                if error.status == _NOT_FOUND:
                    continue
                raise InputError(self._told(error, group, plural)) from error
            resources = kinds.get("resources") if isinstance(kinds, dict) else None
            if any(isinstance(one, dict) and one.get("name") == plural for one in resources or ()):
                return self.pages(f"/apis/{group}/{version}", plural)
        return []

    def pages(
        self, api: str, plural: str, query: Mapping[str, str] | None = None, *, attempts: int = _MAX_LISTS
    ) -> list[ParsedDocument]:
        """All objects of a kind; a list that the server forgets while it is read is begun anew.

        Raises
        ------
        InputError
            When the API refuses, or does not answer; names the right that is missing.
        """
        try:
            return list(self._pages(f"{api}/{plural}", query or {}))
        except _Refused as error:
            if error.status == _GONE and attempts > 1:
                return self.pages(api, plural, query, attempts=attempts - 1)
            group = api.split("/")[2] if api.startswith("/apis/") else ""
            raise InputError(self._told(error, group, plural)) from error

    def _pages(self, path: str, query: Mapping[str, str]) -> Iterator[ParsedDocument]:
        token = ""
        for number in range(1, _MAX_PAGES + 1):
            page = self._get(path, {**query, "limit": str(PAGE), **({"continue": token} if token else {})}, number)
            yield page
            metadata = page.value.get("metadata") if isinstance(page.value, dict) else None
            token = str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""
            if not token:
                return
        raise InputError(f"{self._host}{path} has more than {_MAX_PAGES * PAGE} objects")

    def _get(self, path: str, query: Mapping[str, str], number: int = 1) -> ParsedDocument:
        name = f"{self._host}{path}" + (f" (page {number})" if number > 1 else "")
        request = self._client.param_serialize(
            "GET",
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=(TIMEOUT_S, TIMEOUT_S))
            text = answer.read()
        except (urllib3.exceptions.HTTPError, OSError, kubernetes.client.ApiException) as error:
            raise InputError(f"{name}: {_why(error)}") from error
        try:
            value = json.loads(text)
        except ValueError as error:
            value = None
            if answer.status < 300:
                raise InputError(f"{name}: answers what is no JSON: {error}") from error
        if answer.status >= 300:
            message = value.get("message") if isinstance(value, dict) else None
            raise _Refused(answer.status, f"{name}: {answer.status} {str(message or answer.reason)[:_SAID_CHARS]}")
        return ParsedDocument(name=name, value=value)

    def _told(self, error: _Refused, group: str, plural: str) -> str:
        """What a refusal means, and what would help."""
        if error.status == _UNAUTHORIZED:
            return f"{error}; the credentials are not accepted: renew them, or choose others (--context)"
        if error.status == _FORBIDDEN:
            rule = f'apiGroups: ["{group}"], resources: ["{plural}"], verbs: ["list"]'
            return f"{error}; a ClusterRole of the account needs the rule {rule}, or give --{_ROLES[plural]} FILE"
        if error.status == _GONE:
            return f"{error}; the list changed faster than it could be read, {_MAX_LISTS} times: ask again"
        return str(error)


_ROLES = {
    "nodes": "nodes",
    "pods": "pods",
    "workloads": "workloads",
    "jobsets": "workloads",
    "topologies": "topology",
    "resourceflavors": "topology",
    "hypernodes": "topology",
}


def _configuration(source: LiveSource) -> Any:
    usual = str(kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION)
    # KUBECONFIG may name several files.
    is_there = any(Path(part).expanduser().exists() for part in usual.split(os.pathsep))
    try:
        if source.configuration is None and source.context is None and not is_there:
            configuration = kubernetes.client.Configuration()
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        else:
            configuration = kubernetes.config.new_client_from_config(
                config_file=source.configuration, context=source.context
            ).configuration
    except (kubernetes.config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
        detail = f"there is no way to a Kubernetes cluster in {source.configuration or usual}: {error}"
        raise InputError(f"{detail}; give --kubeconfig or --context") from error
    # What took too long once would only take longer.
    configuration.retries = False
    return configuration


def _why(error: Exception) -> str:
    # A connection that is refused counts among those that took too long.
    refused = isinstance(error, urllib3.exceptions.NewConnectionError)
    if isinstance(error, urllib3.exceptions.TimeoutError) and not refused:
        return f"does not answer within {TIMEOUT_S:g} s"
    return f"cannot be reached: {getattr(error, 'reason', None) or error}"
