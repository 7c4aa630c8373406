"""An API server on loopback that keeps the rules of the real one for list, watch, patch and delete. It is no
Kubernetes: controllers and scheduler are what tests make of `bind` and `put`.

What it keeps to, and where that is written:

- lists in pages, `continue` that expires with 410; watches from a `resourceVersion`, bookmarks, 410 as an ERROR event
  (kubernetes.io, "Kubernetes API Concepts")
- of patches, JSON patch (RFC 6902; a test that fails is a 422) and merge (RFC 7386) for all, strategic merge for
  built-in kinds alone, 415 for custom resources ("Update API Objects in Place Using kubectl patch")
- a patch with another `resourceVersion` is a 409; another `uid` a 422, for it is immutable
- pods: gates may only be deleted; `nodeSelector` may only get additions, and only while there is a gate; other fields
  of the spec do not change ("Pod Scheduling Readiness"; `ValidatePodUpdate` of kubernetes/pkg/apis/core/validation)
- all annotations of an object together have at most 256 KiB (`ValidateAnnotationsSize`)
- `dryRun=All` checks, and changes nothing
"""

import copy
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.executor.kubernetes.patching import OtherValueError, patched

Json = dict[str, Any]
_STRATEGIC, _MERGE, _JSON = (
    f"application/{kind}" for kind in ("strategic-merge-patch+json", "merge-patch+json", "json-patch+json")
)
# Lists that are merged by a key ("patchMergeKey" of the published schemas).
_KEYS = {"schedulingGates": "name", "conditions": "type"}
_CUSTOM = {
    "workloads": ("Workload", True),
    "admissionchecks": ("AdmissionCheck", False),
    "topologies": ("Topology", False),
}
_CORE = {"nodes": ("Node", False), "pods": ("Pod", True)}
_WAIT_S = 5.0


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": reason,
            "message": message,
            "code": status,
        }


@dataclass
class Request:
    """What came."""

    method: str
    path: str
    query: dict[str, str]
    content_type: str
    body: Any


@dataclass
class ApiServer:
    """State of the cluster; `served` names the versions of Kueue's API. `before` may refuse or hold up a request."""

    served: str | None = "v1beta1"
    objects: dict[str, dict[tuple[str, str], Json]] = field(default_factory=dict)
    events: list[tuple[int, str, str, Json]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    version: int = 100
    oldest: int = 0
    before: Callable[[Request], None] = lambda _request: None
    after: Callable[[Request], None] = lambda _request: None
    pages: dict[str, tuple[list[Json], int]] = field(default_factory=dict)
    binds: bool = False
    num_watches: int = 0

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.generation = 0
        self.is_closed = False
        api = self

        class Handler(_Handler):
            server_of = api

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=lambda: self._http.serve_forever(poll_interval=0.02), daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(_WAIT_S)

    def put(self, plural: str, item: Json) -> Json:
        """Create or replace an object, as a controller does."""
        with self.changed:
            metadata = item["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            before = self.objects.setdefault(plural, {}).get(key)
            self.version += 1
            uid = before["metadata"]["uid"] if before else f"uid-{self.version}"
            stored = copy.deepcopy(item)
            stored["metadata"] |= {"uid": metadata.get("uid", uid), "resourceVersion": str(self.version)}
            self.objects[plural][key] = stored
            self._tell("MODIFIED" if before else "ADDED", plural, stored)
            return stored

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        with self.changed:
            gone = self.objects[plural].pop((namespace, name))
            self.version += 1
            gone["metadata"]["resourceVersion"] = str(self.version)
            self._tell("DELETED", plural, gone)

    def get(self, plural: str, name: str, namespace: str = "") -> Json:
        with self.changed:
            return copy.deepcopy(self.objects[plural][(namespace, name)])

    def bookmark(self, plural: str) -> None:
        """Tell watches where they are without an event."""
        with self.changed:
            self.version += 1
            kind, api = self._kind(plural)
            mark = {"kind": kind, "apiVersion": api, "metadata": {"resourceVersion": str(self.version)}}
            self._tell("BOOKMARK", plural, mark)

    def forget(self) -> None:
        """Compact: no older version can be watched from, or read on in pages."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.pages.clear()

    def drop_watches(self) -> None:
        """Cut the connections of all watches."""
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def writes(self) -> list[Request]:
        """What was to change something."""
        return [one for one in self.requests if one.method != "GET" and one.query.get("dryRun") != "All"]

    def bind(self) -> int:
        """What the scheduler does: pods without gates go to nodes that they select and that have room. How many."""
        with self.changed:
            room = {name: _gpus_of_node(node) for (_, name), node in self.objects.get("nodes", {}).items()}
            labels = {name: node["metadata"]["labels"] for (_, name), node in self.objects.get("nodes", {}).items()}
            waiting = []
            for pod in self.objects.get("pods", {}).values():
                if pod["spec"].get("nodeName"):
                    room[pod["spec"]["nodeName"]] -= _gpus_of_pod(pod)
                elif not pod["spec"].get("schedulingGates"):
                    waiting.append(pod)
            bound = 0
            for pod in waiting:
                wanted = (pod["spec"].get("nodeSelector") or {}).items()
                fits = (n for n in room if wanted <= labels[n].items() and room[n] >= _gpus_of_pod(pod))
                node = next(fits, None)
                if node is not None:
                    room[node] -= _gpus_of_pod(pod)
                    running = copy.deepcopy(pod)
                    running["spec"]["nodeName"] = node
                    running["status"] = {"phase": "Running", "startTime": "2026-11-20T12:00:00Z"}
                    self.put("pods", running)
                    bound += 1
            return bound

    def _tell(self, kind: str, plural: str, item: Json) -> None:
        self.events.append((self.version, plural, kind, copy.deepcopy(item)))
        self.changed.notify_all()

    def _kind(self, plural: str) -> tuple[str, str]:
        if plural in _CORE:
            return _CORE[plural][0], "v1"
        return _CUSTOM[plural][0], f"kueue.x-k8s.io/{self.served}"

    # What requests ask for.

    def answer(self, request: Request) -> Json:
        parts = request.path.strip("/").split("/")
        if parts[0] == "apis" and len(parts) == 3:
            return self._discovery(parts[1], parts[2])
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if parts[0] == "apis" and (parts[1] != "kueue.x-k8s.io" or parts[2] != self.served):
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        namespace = None
        if rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        plural, name, part = (*rest, "", "")[:3]
        if request.method == "GET" and not name:
            return self._list(plural, namespace, request.query)
        with self.changed:
            found = self.objects.get(plural, {}).get((namespace or "", name))
            if found is None:
                raise RefusedError(404, "NotFound", f'{plural} "{name}" not found')
            if request.method == "GET":
                return found
            if request.method == "DELETE":
                wanted = ((request.body or {}).get("preconditions") or {}).get("uid")
                if wanted not in (None, found["metadata"]["uid"]):
                    raise RefusedError(409, "Conflict", "the UID in the precondition does not match")
                if request.query.get("dryRun") != "All":
                    self.remove(plural, name, namespace or "")
                return found
            return self._patch(plural, found, request, part)

    def _discovery(self, group: str, version: str) -> Json:
        if group != "kueue.x-k8s.io" or version != self.served:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        resources = [{"name": name, "kind": kind, "namespaced": ns} for name, (kind, ns) in _CUSTOM.items()]
        return {"kind": "APIResourceList", "groupVersion": f"{group}/{version}", "resources": resources}

    def _list(self, plural: str, namespace: str | None, query: dict[str, str]) -> Json:
        with self.changed:
            if "continue" in query:
                if query["continue"] not in self.pages:
                    raise RefusedError(410, "Expired", "The provided continue parameter is too old")
                items, version = self.pages.pop(query["continue"])
            else:
                items = [
                    copy.copy(item)
                    for (where, _), item in sorted(self.objects.get(plural, {}).items())
                    if (namespace is None or where == namespace) and _selected(item, query.get("fieldSelector"))
                ]
                version = self.version
            limit = int(query.get("limit", "0")) or len(items)
            metadata: Json = {"resourceVersion": str(version)}
            if len(items) > limit:
                metadata["continue"] = f"token-{version}-{len(items)}"
                self.pages[metadata["continue"]] = (items[limit:], version)
            kind, api = self._kind(plural)
            # As the real one: items of lists do not say their kind.
            shown = [{key: part for key, part in item.items() if key not in ("kind", "apiVersion")} for item in items]
            return {"kind": f"{kind}List", "apiVersion": api, "metadata": metadata, "items": shown[:limit]}

    def watched(self, plural: str, namespace: str | None, query: dict[str, str]) -> Iterator[Json]:
        """Events of a watch until it is dropped; the first may be that its version is too old."""
        at, selector = int(query["resourceVersion"]), query.get("fieldSelector")
        with self.changed:
            generation, position = self.generation, 0
            self.num_watches += 1
            if at < self.oldest:
                message = f"too old resource version: {at} ({self.oldest})"
                yield {"type": "ERROR", "object": RefusedError(410, "Expired", message).body}
                return
        while True:
            with self.changed:
                fresh = self.events[position:]
                position = len(self.events)
                if not fresh and generation == self.generation and not self.is_closed:
                    self.changed.wait(_WAIT_S)
                if generation != self.generation or self.is_closed:
                    raise ConnectionAbortedError
            for version, what, kind, item in fresh:
                where = item["metadata"].get("namespace", "")
                if version <= at or what != plural or (namespace not in (None, where)):
                    continue
                if kind == "BOOKMARK":
                    yield {"type": kind, "object": item}
                    continue
                # Whoever leaves a selection is deleted for it.
                shown = kind if _selected(item, selector) else "DELETED"
                yield {
                    "type": shown,
                    "object": {"kind": self._kind(plural)[0], "apiVersion": self._kind(plural)[1], **item},
                }

    def _changed(self, plural: str, found: Json, request: Request) -> Json:
        body, kind = request.body, request.content_type
        if plural in _CUSTOM and kind == _STRATEGIC:
            raise RefusedError(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        if kind not in (_STRATEGIC, _MERGE, _JSON):
            raise RefusedError(415, "UnsupportedMediaType", f"no patch: {kind}")
        try:
            merged = patched(found, body) if kind == _JSON else _merged(found, body, by_key=kind == _STRATEGIC)
        except (OtherValueError, LookupError) as error:
            raise RefusedError(
                422, "Invalid", f"the server rejected our request due to an error in it: {error}"
            ) from error
        return merged

    def _patch(self, plural: str, found: Json, request: Request, part: str) -> Json:
        merged = self._changed(plural, found, request)
        metadata = merged["metadata"]
        if metadata["resourceVersion"] != found["metadata"]["resourceVersion"]:
            message = "the object has been modified; please apply your changes to the latest version"
            raise RefusedError(409, "Conflict", message)
        if metadata["uid"] != found["metadata"]["uid"]:
            raise RefusedError(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
        if part == "status":
            merged = {**found, "status": merged.get("status", {})}
        else:
            merged = {**merged, "status": found.get("status", {})} if "status" in found else merged
        if plural == "pods":
            _check_pod(found, merged)
        notes = merged["metadata"].get("annotations") or {}
        if sum(len(key) + len(text) for key, text in notes.items()) > 256 * 1024:
            raise RefusedError(422, "Invalid", "metadata.annotations: Too long: may not be more than 262144 bytes")
        if plural == "workloads" and part == "status":
            _check_workload(merged)
        if request.query.get("dryRun") == "All":
            return merged
        stored = found if merged == found else self.put(plural, merged)
        if self.binds:
            self.bind()
        return stored


class _Handler(BaseHTTPRequestHandler):
    server_of: ApiServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        split = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        request = Request(self.command, split.path, query, self.headers.get("Content-Type", ""), body)
        api = self.server_of
        api.requests.append(request)
        try:
            api.before(request)
            if query.get("watch") == "true":
                self._watch(request)
                return
            self._send(200, api.answer(request))
            api.after(request)
        except RefusedError as refused:
            self._send(refused.status, refused.body)
        except ConnectionError:
            self.close_connection = True
            self.connection.close()

    def _watch(self, request: Request) -> None:
        parts = request.path.strip("/").split("/")
        plural, namespace = parts[-1], parts[-2] if "namespaces" in parts else None
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self.server_of.watched(plural, namespace, request.query):
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, body: Json) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _selected(item: Json, selector: str | None) -> bool:
    phase = (item.get("status") or {}).get("phase", "")
    terms = (term.partition("!=") for term in selector.split(",")) if selector else ()
    for name, _, value in terms:
        assert name == "status.phase"
        if phase == value:
            return False
    return True


def _merged(target: Any, patch: Any, *, by_key: bool) -> Any:
    """RFC 7386, and with `by_key` lists of objects by their key with `$patch: delete`."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif by_key and key in _KEYS and isinstance(value, list):
            result[key] = _merged_list(result.get(key) or [], value, _KEYS[key])
        else:
            result[key] = _merged(result.get(key), value, by_key=by_key)
    return result


def _merged_list(target: list[Json], patch: list[Json], key: str) -> list[Json]:
    found = {item[key]: item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            found.pop(item[key], None)
        else:
            found[item[key]] = {**found.get(item[key], {}), **item}
    return list(found.values())


def _check_pod(before: Json, after: Json) -> None:
    old, new = before["spec"], after["spec"]
    old_gates, new_gates = ([gate["name"] for gate in spec.get("schedulingGates") or ()] for spec in (old, new))
    added = [gate for gate in new_gates if gate not in old_gates]
    if added:
        message = f"only deletion is allowed, but found new scheduling gate '{added[0]}'"
        raise RefusedError(422, "Invalid", f"spec.schedulingGates[0].name: Forbidden: {message}")
    was, now = old.get("nodeSelector") or {}, new.get("nodeSelector") or {}
    if was != now and not (old_gates and was.items() <= now.items()):
        message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        if not old_gates:
            message = "pod updates may not change fields other than `spec.containers[*].image`, ..."
        raise RefusedError(422, "Invalid", f"spec.nodeSelector: Forbidden: {message}")
    free = ("schedulingGates", "nodeSelector", "tolerations")
    if {key: part for key, part in old.items() if key not in free} != {
        key: part for key, part in new.items() if key not in free
    }:
        raise RefusedError(422, "Invalid", "spec: Forbidden: pod updates may not change fields other than ...")


def _check_workload(after: Json) -> None:
    """What the published schema of Workload wants of its checks, and the webhook of Kueue."""
    sets = {one["name"] for one in after["spec"]["podSets"]}
    for check in after["status"].get("admissionChecks") or ():
        lacking = {"name", "state", "lastTransitionTime", "message"} - check.keys()
        if lacking:
            raise RefusedError(422, "Invalid", f"status.admissionChecks: Required value: {sorted(lacking)}")
        if check["state"] not in ("Pending", "Ready", "Retry", "Rejected"):
            raise RefusedError(422, "Invalid", "status.admissionChecks.state: Unsupported value")
        unknown = {one["name"] for one in check.get("podSetUpdates") or ()} - sets
        if unknown:
            raise RefusedError(422, "Invalid", f"podSetUpdates name sets that there are not: {sorted(unknown)}")


def _gpus_of_node(node: Json) -> int:
    return int(node["status"]["allocatable"].get("nvidia.com/gpu", 0))


def _gpus_of_pod(pod: Json) -> int:
    limits = (one.get("resources", {}).get("limits") or {} for one in pod["spec"]["containers"])
    return sum(int(limit.get("nvidia.com/gpu", 0)) for limit in limits)
