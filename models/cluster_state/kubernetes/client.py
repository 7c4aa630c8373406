"""Requests to the API of a Kubernetes cluster, made with the official client (extra `kubernetes`), and what their
failures mean.

Lists come page by page, and objects stay JSON: the reader of cluster states reads it, and the models of the client
would cost more than all the rest for a cluster of 10,000 nodes.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import kubernetes
import urllib3
import yaml

from models.cluster_state.base import ParsedDocument
from models.cluster_state.kubernetes.objects import MAX_OBJECTS
from stowplan.errors import InputError, StowplanError

Json = dict[str, Any]
PAGE = 500
TIMEOUT_S = 30.0
_MAX_PAGES = MAX_OBJECTS // PAGE
# How often a list is begun anew that took longer than the server remembers.
_MAX_LISTS = 3
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _GONE, _INVALID = 401, 403, 404, 409, 410, 422
_SAID_CHARS = 400


class ApiError(StowplanError):
    """The API refused a request, or did not answer. `status` of HTTP; None: no answer came."""

    code: ClassVar[str] = "kubernetes_api"

    def __init__(self, detail: str, status: int | None = None) -> None:
        super().__init__(detail)
        self.status = status

    @property
    def is_gone(self) -> bool:
        """Whether the server has forgotten what was asked for: a version of a list."""
        return self.status == _GONE

    @property
    def is_absent(self) -> bool:
        """Whether there is nothing of that name."""
        return self.status == _NOT_FOUND

    @property
    def is_forbidden(self) -> bool:
        """Whether a right is missing."""
        return self.status == _FORBIDDEN

    @property
    def is_conflict(self) -> bool:
        """Whether somebody else was faster: the object has changed, or is there already."""
        return self.status == _CONFLICT

    @property
    def is_invalid(self) -> bool:
        """Whether what was sent may not be: of a patch, also that one of its tests failed."""
        return self.status == _INVALID


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind of objects, as URLs and rules of RBAC name it."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """As objects say it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, part: str | None = None) -> str:
        """Of the list (of all namespaces where none is given), an object, or a part of it such as its status."""
        parts = ["/apis/" + self.group if self.group else "/api", self.version]
        parts += ["namespaces", namespace] if namespace is not None else []
        return "/".join([*parts, self.plural, *(text for text in (name, part) if text is not None)])


NODES = Resource(plural="nodes", kind="Node")
PODS = Resource(plural="pods", kind="Pod")
# There may be many that are over, which have no GPUs any more: fields by which lists of pods leave them out.
PODS_THAT_COUNT = "status.phase!=Succeeded,status.phase!=Failed"


def configured(
    file: str | None = None, context: str | None = None, *, in_cluster: bool = False
) -> kubernetes.client.Configuration:
    """The way to a cluster: that of a kubeconfig and a context of it; without both what kubectl would take, and inside
    of a pod its account.

    Raises
    ------
    InputError
        When there is none.
    """
    usual = str(kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION)
    # KUBECONFIG may name several files.
    is_there = any(Path(part).expanduser().exists() for part in usual.split(os.pathsep))
    where = "this pod" if in_cluster else file or usual
    try:
        if in_cluster or (file is None and context is None and not is_there):
            configuration = kubernetes.client.Configuration()
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        else:
            client = kubernetes.config.new_client_from_config(config_file=file, context=context)
            configuration = client.configuration
    except (kubernetes.config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
        detail = f"there is no way to a Kubernetes cluster in {where}: {error}"
        raise InputError(f"{detail}; give --kubeconfig or --context") from error
    return configuration


class Api:
    """A cluster's API. `timeout_s`: how long an answer may take to begin, and stand still."""

    def __init__(self, configuration: kubernetes.client.Configuration, timeout_s: float = TIMEOUT_S) -> None:
        # What is tried again is decided where it is known what that means.
        configuration.retries = False
        self._client = kubernetes.client.ApiClient(configuration)
        self.timeout_s = timeout_s

    @property
    def host(self) -> str:
        """Its address."""
        return str(self._client.configuration.host)

    def served(self, group: str, versions: Sequence[str], plural: str, kind: str) -> Resource | None:
        """The resource in the first of these versions that the cluster serves; None where it serves none."""
        for version in versions:
            try:
                found = self.get(f"/apis/{group}/{version}")
            except ApiError as error:
                if error.is_absent:
                    continue
                raise
            resources = found.get("resources")
            if any(isinstance(one, dict) and one.get("name") == plural for one in resources or ()):
                return Resource(plural=plural, kind=kind, group=group, version=version)
        return None

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """What stands at a path."""
        return self.json("GET", path, query or {})

    def pages(self, resource: Resource, namespace: str | None = None, selector: str = "") -> list[ParsedDocument]:
        """All objects, page by page; `selector` of fields. A list that the server forgets while it is read is begun
        anew.

        Raises
        ------
        ApiError
            When the API refuses, or does not answer; names the right that is missing.
        """
        for _ in range(_MAX_LISTS - 1):
            try:
                return list(self._pages(resource, namespace, selector))
            except ApiError as error:
                if not error.is_gone:
                    raise
        try:
            return list(self._pages(resource, namespace, selector))
        except ApiError as error:
            if not error.is_gone:
                raise
            detail = f"{error.detail}; the list changed faster than it could be read, {_MAX_LISTS} times: ask again"
            raise ApiError(detail, error.status) from error

    def _pages(self, resource: Resource, namespace: str | None, selector: str) -> Iterator[ParsedDocument]:
        path = resource.path(namespace)
        query = {"limit": str(PAGE), **({"fieldSelector": selector} if selector else {})}
        for number in range(1, _MAX_PAGES + 1):
            with naming_right(resource, "list"):
                page = self.json("GET", path, query, number=number)
            yield ParsedDocument(name=self._name(path, number), value=page)
            token = metadata_of(page).get("continue")
            if not token:
                return
            query["continue"] = str(token)
        raise ApiError(f"{self.host}{path} has more than {_MAX_PAGES * PAGE} objects")

    def json(self, method: str, path: str, query: Mapping[str, str], *, number: int = 1, **more: Any) -> Json:
        """The object that answers a request; `number` of its page. As `send` otherwise."""
        name = self._name(path, number)
        answer = self.send(method, path, query, name=name, **more)
        try:
            found = json.loads(answer.read())
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(f"{name}: breaks off its answer: {error}") from error
        except ValueError as error:
            raise ApiError(f"{name}: answers what is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise ApiError(f"{name}: answers what is no JSON object")
        return found

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        name: str = "",
        body: object = None,
        content_type: str = "application/json",
        read_s: float | None = None,
    ) -> Any:
        """The answer, which has not been read.

        Raises
        ------
        ApiError
            When the API refuses, or does not answer.
        """
        name = name or self._name(path)
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": content_type})
        try:
            request = self._client.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = self._client.call_api(*request, _request_timeout=(self.timeout_s, read_s or self.timeout_s))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(f"{name}: {self._why(error)}") from error
        except kubernetes.client.ApiException as error:
            raise ApiError(f"{name}: {error.reason}", error.status or None) from error
        if not 200 <= answer.status < 300:
            raise ApiError(f"{name}: {answer.status} {_said(answer)[:_SAID_CHARS]}", answer.status)
        return answer

    def _name(self, path: str, number: int = 1) -> str:
        return f"{self.host}{path}" + (f" (page {number})" if number > 1 else "")

    def _why(self, error: Exception) -> str:
        # A connection that is refused counts among those that took too long.
        refused = isinstance(error, urllib3.exceptions.NewConnectionError)
        if isinstance(error, urllib3.exceptions.TimeoutError) and not refused:
            return f"does not answer within {self.timeout_s:g} s"
        return f"cannot be reached: {getattr(error, 'reason', None) or error}"


def metadata_of(page: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a list says of itself."""
    metadata = page.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def items_of(page: Mapping[str, Any]) -> list[Any]:
    """The objects of a list."""
    items = page.get("items")
    return items if isinstance(items, list) else []


@contextmanager
def naming_right(resource: Resource, verb: str, part: str | None = None) -> Iterator[None]:
    """Say of what is refused which right is missing."""
    try:
        yield
    except ApiError as error:
        if error.status == _UNAUTHORIZED:
            detail = f"{error.detail}; the credentials are not accepted: renew them, or choose others (--context)"
        elif error.is_forbidden:
            name = resource.plural if part is None else f"{resource.plural}/{part}"
            detail = (
                f"{error.detail}; its role lacks the rule "
                f'apiGroups: ["{resource.group}"], resources: ["{name}"], verbs: ["{verb}"]'
            )
        else:
            raise
        raise ApiError(detail, error.status) from error


def _said(answer: Any) -> str:
    """What the API says of a failure: the message of its `Status`, as far as it gives one."""
    try:
        message = json.loads(answer.read().decode(errors="replace")).get("message")
    except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError):
        message = None
    return str(message or answer.reason)
