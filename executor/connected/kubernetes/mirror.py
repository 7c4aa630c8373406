"""A copy of the objects of one resource, kept as its watch tells: list, watch from there, and list again when the
server has forgotten where that was."""

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from executor.connected.kubernetes.api import Api, ApiError, Json, Resource
from stowplan.collection import without_collection

# The server ends a watch after so long: then it is asked for anew, from where it was.
_WATCH_S = 240.0
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 30.0
Key = tuple[str, str]


class Mirror:
    """Objects by namespace and name. `changed` is notified, and guards them.

    `selector` of fields. num_lists: how often all objects were listed. has_news: something has changed since somebody
    said that nothing has. `fault`: why the copy may be old, since
    `fault_since_s` on the clock of `time.monotonic`; None while the watch stands.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        changed: threading.Condition,
        *,
        namespace: str | None = None,
        selector: str = "",
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self.resource = resource
        self.fault: ApiError | None = None
        self.fault_since_s = 0.0
        self.num_lists = 0
        self.has_news = False
        self._api, self._namespace, self._selector = api, namespace, selector
        self._changed = changed
        self._objects: dict[Key, Json] = {}
        self._version = ""
        self._first_pause_s = first_pause_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"watch of {resource.plural}", daemon=True)

    def begin(self) -> None:
        """List what there is, and watch from then on.

        Raises
        ------
        ApiError
            When the list is refused, or does not come.
        """
        self._list()
        self._thread.start()

    def close(self) -> None:
        """Take no more notice of what happens; a watch that waits ends by itself."""
        self._closed.set()

    def objects(self) -> list[Json]:
        """What there is, by namespace and name; `changed` must be held."""
        return [self._objects[key] for key in sorted(self._objects)]

    def put(self, found: Json) -> None:
        """Take what the server answered to a change of an object, before the watch tells it."""
        with self._changed:
            self._keep(found)

    def _list(self) -> None:
        with without_collection():
            items, version = self._api.list_all(self.resource, self._namespace, self._selector)
            found = {_key(item): _slim(item) for item in items}
        with self._changed:
            self.num_lists += 1
            self._version = version
            if self.num_lists == 1 or found != self._objects:
                self._objects, self.has_news = found, True
                self._changed.notify_all()

    def _follow(self) -> None:
        must_list, num_failures = False, 0
        while not self._closed.is_set():
            begun_s, num_events = time.monotonic(), 0
            try:
                if must_list:
                    self._list()
                    must_list = False
                events = self._api.watch(self.resource, self._namespace, self._version, self._selector, _WATCH_S)
                self._note(None)
                for event in events:
                    num_events += 1
                    self._take(event)
                    if self._closed.is_set():
                        return
            except ApiError as error:
                must_list = must_list or error.is_gone
                if not error.is_gone:
                    self._note(error)
            # A server that ends watches at once is not asked again at once.
            stood = num_events > 0 or time.monotonic() - begun_s > self._first_pause_s
            num_failures = 0 if stood and self.fault is None else num_failures + 1
            if num_failures > 0:
                self._closed.wait(min(_LONGEST_PAUSE_S, self._first_pause_s * 2.0 ** (num_failures - 1)))

    def _take(self, event: Mapping[str, Any]) -> None:
        found = event["object"]
        with self._changed:
            self._version = str(found["metadata"]["resourceVersion"])
            if event["type"] == "DELETED":
                if self._objects.pop(_key(found), None) is not None:
                    self.has_news = True
                    self._changed.notify_all()
            elif event["type"] in ("ADDED", "MODIFIED"):
                self._keep(found)

    def _keep(self, found: Json) -> None:
        slim = _slim(found)
        if self._objects.get(_key(found)) != slim:
            self._objects[_key(found)] = slim
            self.has_news = True
            self._changed.notify_all()

    def _note(self, fault: ApiError | None) -> None:
        with self._changed:
            if fault is not None and self.fault is None:
                self.fault_since_s = time.monotonic()
            self.fault = fault
            if fault is not None:
                self._changed.notify_all()


def _key(item: Json) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _slim(item: Json) -> Json:
    """An object without what changes all the time and says nothing of where work is: nodes beat every few seconds."""
    metadata = _without(item["metadata"], ("resourceVersion", "managedFields", "generation"))
    slim = {**item, "metadata": metadata}
    if isinstance(item.get("status"), dict):
        status = _without(item["status"], ("images", "volumesInUse", "volumesAttached", "containerStatuses"))
        if isinstance(status.get("conditions"), list):
            status["conditions"] = [
                _without(one, ("lastHeartbeatTime", "lastProbeTime")) for one in status["conditions"]
            ]
        slim["status"] = status
    return slim


def _without(value: Mapping[str, Any], keys: Iterable[str]) -> Json:
    return {key: part for key, part in value.items() if key not in keys}
