"""Requests to the API of a Kubernetes cluster, made with the official client, and what their failures mean.

Objects stay JSON: the reader of cluster states reads it, and the models of the client would cost more than all the
rest for a cluster of 10,000 nodes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import kubernetes.client
import kubernetes.config
import urllib3

from stowplan.errors import InputError, StowplanError

Json = dict[str, Any]
MANAGER = "stowplan"
_PAGE = 500
_MAX_PAGES = 10_000
# How often a list is begun anew because it took longer than the server remembers.
_MAX_LISTS = 3
_GONE = 410
_NOT_FOUND = 404
_UNAUTHORIZED = 401
_FORBIDDEN = 403
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


def connect(kubeconfig: Path | None = None, context: str | None = None, *, in_cluster: bool = False) -> "Api":
    """The API that a kubeconfig names, or that a pod is given.

    Raises
    ------
    InputError
        When there is no such configuration.
    """
    try:
        if in_cluster:
            configuration = kubernetes.client.Configuration()
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        else:
            file = None if kubeconfig is None else str(kubeconfig)
            client = kubernetes.config.new_client_from_config(config_file=file, context=context)
            configuration = client.configuration
    except (kubernetes.config.ConfigException, OSError) as error:
        where = (
            "this is no pod with a service account" if in_cluster else "give --kubeconfig, --context or --in-cluster"
        )
        raise InputError(f"there is no configuration of a Kubernetes cluster: {error}; {where}") from error
    return Api(configuration)


class Api:
    """A cluster's API. `timeout_s`: how long an answer may take to begin, and stand still."""

    def __init__(self, configuration: kubernetes.client.Configuration, timeout_s: float = 30.0) -> None:
        # What is tried again is decided where it is known what that means.
        configuration.retries = False
        self._client = kubernetes.client.ApiClient(configuration)
        self._timeout_s = timeout_s

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
            if any(known["name"] == plural for known in found.get("resources", ())):
                return Resource(plural=plural, kind=kind, group=group, version=version)
        return None

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """What stands at a path."""
        return self._json(self._send("GET", path, query or {}))

    def list_all(self, resource: Resource, namespace: str | None, selector: str) -> tuple[list[Json], str]:
        """All objects, page by page, and the version of the list; `selector` of fields.

        Raises
        ------
        ApiError
            When the API refuses, or does not answer.
        """
        for _ in range(_MAX_LISTS - 1):
            try:
                return self._pages(resource, namespace, selector)
            except ApiError as error:
                # A page came so late that the server has forgotten the list.
                if not error.is_gone:
                    raise
        return self._pages(resource, namespace, selector)

    def _pages(self, resource: Resource, namespace: str | None, selector: str) -> tuple[list[Json], str]:
        items: list[Json] = []
        query = {"limit": str(_PAGE), **({"fieldSelector": selector} if selector else {})}
        for _ in range(_MAX_PAGES):
            with _naming_right(resource, "list"):
                page = self.get(resource.path(namespace), query)
            items += page.get("items") or ()
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]
        raise ApiError(f"the list of {resource.plural} has more than {_MAX_PAGES} pages")

    def watch(
        self, resource: Resource, namespace: str | None, version: str, selector: str, limit_s: float
    ) -> Iterator[Json]:
        """Events behind a version of a list, until the server ends it, at most `limit_s`; the watch stands on return.

        Raises
        ------
        ApiError
            When the API refuses, breaks off, or stands still for longer than `limit_s` and its timeout.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(limit_s))),
            **({"fieldSelector": selector} if selector else {}),
        }
        with _naming_right(resource, "watch"):
            answer = self._send("GET", resource.path(namespace), query, read_s=limit_s + self._timeout_s)
        return _events(answer, resource.plural)

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: object,
        kind: str,
        part: str | None = None,
        *,
        is_trial: bool = False,
    ) -> Json:
        """Change an object, or a part of it such as its status, by a patch of a content type. A trial changes nothing:
        it says what the API thinks of the patch.

        Raises
        ------
        ApiError
            When the API refuses, or does not answer.
        """
        query = {"fieldManager": MANAGER}
        query |= {"force": "true"} if "apply-patch" in kind else {}
        query |= {"dryRun": "All"} if is_trial else {}
        with _naming_right(resource, "patch", part):
            return self._json(
                self._send("PATCH", resource.path(namespace, name, part), query, body=body, content_type=kind)
            )

    def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> Json:
        """Delete an object, if it is the one that was seen; the answer is the object where it ends in its own time.

        Raises
        ------
        ApiError
            When the API refuses, or does not answer.
        """
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        with _naming_right(resource, "delete"):
            return self._json(self._send("DELETE", resource.path(namespace, name), {}, body=body))

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: object = None,
        content_type: str = "application/json",
        read_s: float | None = None,
    ) -> Any:
        """The answer, which has not been read."""
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
            answer = self._client.call_api(*request, _request_timeout=(self._timeout_s, read_s or self._timeout_s))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(f"{self.host} does not answer: {error}") from error
        except kubernetes.client.ApiException as error:
            raise ApiError(f"{self.host}: {error.reason}", error.status or None) from error
        if not 200 <= answer.status < 300:
            raise ApiError(self._said(answer), answer.status)
        return answer

    def _json(self, answer: Any) -> Json:
        try:
            found: Json = json.loads(answer.read())
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(f"{self.host} broke off its answer: {error}") from error
        except ValueError as error:
            raise ApiError(f"{self.host} answers with what is no JSON: {error}") from error
        return found

    def _said(self, answer: Any) -> str:
        """What the API says of a failure: the message of its `Status`, as far as it gives one."""
        try:
            text = answer.read().decode(errors="replace")
            message = json.loads(text).get("message", text)
        except (urllib3.exceptions.HTTPError, OSError):
            message = ""
        except (ValueError, AttributeError):
            message = text
        return f"{self.host} answers {answer.status} {answer.reason}: {str(message)[:_SAID_CHARS]}"


def _events(answer: Any, plural: str) -> Iterator[Json]:
    try:
        with closing(answer.response):
            for line in answer.response:
                event = json.loads(line) if line.strip() else None
                if event is None:
                    continue
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(f"the watch of {plural} ended: {status.get('message')}", status["code"])
                yield event
    except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError) as error:
        raise ApiError(f"the watch of {plural} broke off: {error}") from error


@contextmanager
def _naming_right(resource: Resource, verb: str, part: str | None = None) -> Iterator[None]:
    """Say of what is refused which right is missing."""
    try:
        yield
    except ApiError as error:
        if error.status == _UNAUTHORIZED:
            detail = f"{error.detail}; the credentials are not accepted: renew them, or choose others (--context)"
        elif error.status == _FORBIDDEN:
            name = resource.plural if part is None else f"{resource.plural}/{part}"
            detail = (
                f"{error.detail}; its role lacks the rule "
                f'apiGroups: ["{resource.group}"], resources: ["{name}"], verbs: ["{verb}"]'
            )
        else:
            raise
        raise ApiError(detail, error.status) from error
