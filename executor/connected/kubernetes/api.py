"""What a connection asks of a cluster's API beyond reading it: watches, patches and deletions."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import urllib3

from models.cluster_state.kubernetes.client import Api, ApiError, Json, Resource, items_of, metadata_of, naming_right

MANAGER = "stowplan"


class ConnectedApi(Api):
    """An API that is watched, and told."""

    def list_all(self, resource: Resource, namespace: str | None, selector: str) -> tuple[list[Json], str]:
        """All objects and the version of the list; as `pages` otherwise."""
        pages = [page.value for page in self.pages(resource, namespace, selector) if isinstance(page.value, dict)]
        items = [item for page in pages for item in items_of(page)]
        return items, str(metadata_of(pages[-1]).get("resourceVersion", ""))

    def read(self, resource: Resource, namespace: str, name: str) -> Json:
        """One object.

        Raises
        ------
        ApiError
            When there is none, the API refuses, or does not answer.
        """
        with naming_right(resource, "get"):
            return self.get(resource.path(namespace, name))

    def create(self, resource: Resource, namespace: str, body: Json) -> Json:
        """Make an object.

        Raises
        ------
        ApiError
            When there is one of its name, the API refuses, or does not answer.
        """
        with naming_right(resource, "create"):
            return self.json("POST", resource.path(namespace), {"fieldManager": MANAGER}, body=body)

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
        with naming_right(resource, "watch"):
            answer = self.send("GET", resource.path(namespace), query, read_s=limit_s + self.timeout_s)
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
        query = {"fieldManager": MANAGER} | ({"dryRun": "All"} if is_trial else {})
        with naming_right(resource, "patch", part):
            return self.json("PATCH", resource.path(namespace, name, part), query, body=body, content_type=kind)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> Json:
        """Delete an object, if it is the one that was seen; the answer is the object where it ends in its own time.

        Raises
        ------
        ApiError
            When the API refuses, or does not answer.
        """
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        with naming_right(resource, "delete"):
            return self.json("DELETE", resource.path(namespace, name), {}, body=body)


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
    except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
        raise ApiError(f"the watch of {plural} broke off: {error}") from error
