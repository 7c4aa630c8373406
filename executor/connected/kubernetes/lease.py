"""One connection at a time: whoever sends holds a Lease of `coordination.k8s.io/v1`, and renews it.

As leader election of Kubernetes does it, clocks of others are not trusted: a lease is free when nobody has changed it
for as long as it lasts, by the clock of whoever waits. The election of the official client does not do: it waits
without an end, gives nothing back, and ends at a connection that is refused.
"""

import math
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from executor.connected.clock import Clock
from executor.connected.kubernetes.api import ConnectedApi
from executor.kubernetes.patches import adding, testing
from models.cluster_state.kubernetes.client import ApiError, Json, Resource, metadata_of
from stowplan.errors import InputError

LEASES = Resource(plural="leases", kind="Lease", group="coordination.k8s.io")
# An answer that takes longer is asked for again, while there is time.
ANSWER_S = 4.0
_JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """`lasts_s`: for how long others leave a lease alone that nobody renews. `deadline_s`: after how long without a
    renewal its holder sends nothing more, which must be before. `renew_s`: how often it renews, or looks."""

    lasts_s: float = 15.0
    deadline_s: float = 10.0
    renew_s: float = 2.0


class Lease:
    """The lease of a connection, `NAMESPACE/NAME`. `lost` is called, in a thread of its own, when it is held no
    longer."""

    def __init__(
        self,
        api: ConnectedApi,
        place: str,
        *,
        times: LeaseTimes | None = None,
        clock: Clock | None = None,
        say: Callable[[str], None] = lambda _line: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._namespace, slash, self._name = place.partition("/")
        if not (slash and self._namespace and self._name) or "/" in self._name:
            raise InputError(f"--lease is {place!r}; must be NAMESPACE/NAME, such as default/stowplan-connect")
        self._api, self._times, self._clock = api, times or LeaseTimes(), clock or Clock()
        self._say, self._lost = say, lost
        self.identity = f"{socket.gethostname()}_{os.getpid()}_{uuid4().hex[:8]}"
        self._renewed_s = -math.inf
        self._taken_by = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def acquire(self) -> None:
        """Take the lease, at the latest when it has not been renewed for as long as it lasts.

        Raises
        ------
        InputError
            When somebody else has it, and renews it.
        ApiError
            When the API refuses, or does not answer.
        """
        first = seen = self._read()
        begun_s = now_s = self._clock.now_s()
        while now_s - begun_s < 2 * self._times.lasts_s:
            holder = _holder(seen)
            if holder and _version(seen) != _version(first):
                raise InputError(
                    f"another connection, {holder}, holds the lease {self._place} and renews it; two would hand out "
                    "the same nodes: end that one, or, if it governs others, give this one a --lease of its own"
                )
            if self._take(seen, is_over=now_s - begun_s >= self._times.lasts_s):
                self._thread.start()
                return
            if holder and seen is first:
                self._say(f"{holder} holds the lease {self._place}, which is taken over if nobody renews it")
            self._ended.wait(self._times.renew_s)
            seen, now_s = self._read(), self._clock.now_s()
        raise ApiError(f"lease {self._place} could not be taken: it comes and goes")

    def check(self) -> None:
        """Raise ApiError when the lease is not held for sure, after which nothing may be sent."""
        if self._taken_by:
            raise ApiError(f"lease {self._place} was taken over by {self._taken_by}; nothing more is sent")
        unrenewed_s = self._clock.now_s() - self._renewed_s
        if unrenewed_s > self._times.deadline_s:
            raise ApiError(
                f"lease {self._place} could not be renewed for {unrenewed_s:.0f} s, and may be somebody else's by "
                "now; nothing more is sent"
            )

    def release(self) -> None:
        """Give the lease back, so that the next one need not wait; who cannot be told finds it unrenewed."""
        self._ended.set()
        if not self._thread.is_alive():
            return
        self._thread.join(self._api.timeout_s)
        try:
            self.check()
            seen = self._read()
            if _holder(seen) == self.identity:
                self._write(seen, {**seen["spec"], "holderIdentity": ""})
        except ApiError as error:
            self._say(f"lease {self._place} could not be given back: {error.detail}")

    @property
    def _place(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _read(self) -> Json:
        """The lease, or {} where there is none."""
        try:
            return self._api.read(LEASES, self._namespace, self._name)
        except ApiError as error:
            if error.is_absent:
                return {}
            raise

    def _take(self, seen: Json, *, is_over: bool = False) -> bool:
        """Take or renew it as it was seen, unless it is somebody else's; whether it is ours then."""
        holder = _holder(seen)
        if holder not in ("", self.identity) and not is_over:
            return False
        # Before it is asked: an answer that is late makes a lease shorter, and not longer.
        asked_s, spec = self._clock.now_s(), seen.get("spec") or {}
        now = self._clock.moment().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        wanted = {**spec, "holderIdentity": self.identity, "renewTime": now}
        wanted["leaseDurationSeconds"] = math.ceil(self._times.lasts_s)
        if holder != self.identity:
            wanted |= {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", 0) + bool(seen)}
        try:
            self._write(seen, wanted)
        except ApiError as error:
            # Somebody was faster.
            if error.is_conflict or error.is_invalid or error.is_absent:
                return False
            raise
        self._renewed_s = asked_s
        return True

    def _write(self, seen: Json, spec: Json) -> None:
        if not seen:
            metadata = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
            self._api.create(LEASES, self._namespace, body)
            return
        operations = [testing(_version(seen), "metadata", "resourceVersion"), adding(spec, "spec")]
        self._api.patch(LEASES, self._namespace, self._name, operations, _JSON_PATCH)

    def _renew(self) -> None:
        while not self._ended.wait(self._times.renew_s):
            try:
                seen = self._read()
                if not self._take(seen) and (holder := _holder(self._read())) != self.identity:
                    self._taken_by = holder or "somebody who deleted it"
                self.check()
            except ApiError:
                if self._taken_by or self._clock.now_s() - self._renewed_s > self._times.deadline_s:
                    self._lost()
                    return


def _holder(lease: Json) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _version(lease: Json) -> str:
    return str(metadata_of(lease).get("resourceVersion", ""))
