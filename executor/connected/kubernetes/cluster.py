"""Copies of all that is looked at of a cluster, each kept by a watch of its own."""

import threading
import time
from collections.abc import Iterator

from executor.connected.kubernetes.api import NODES, PODS, Api, Resource
from executor.connected.kubernetes.kueue import GROUP, VERSIONS, our_checks
from executor.connected.kubernetes.mirror import Mirror
from executor.connected.kubernetes.observing import Objects

# Pods that are over have no GPUs any more.
_PODS_THAT_COUNT = "status.phase!=Succeeded,status.phase!=Failed"
_TOPOLOGY_VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")


class ClusterCopy:
    """Nodes and pods of a cluster, and what Kueue has, where it is there.

    `changed` is notified when something changes, and guards the copies. All pods are looked at, whoever is governed:
    others have GPUs, too.
    """

    def __init__(self, api: Api, *, first_pause_s: float = 0.25) -> None:
        self.api = api
        self.changed = threading.Condition()
        self._first_pause_s = first_pause_s
        self.workload_resource = api.served(GROUP, VERSIONS, "workloads", "Workload")
        self.check_resource = api.served(GROUP, VERSIONS, "admissionchecks", "AdmissionCheck")
        self._topology_resource = api.served(GROUP, _TOPOLOGY_VERSIONS, "topologies", "Topology")
        self.nodes = self._mirror(NODES)
        self.pods = self._mirror(PODS, _PODS_THAT_COUNT)
        self.workloads = None if self.workload_resource is None else self._mirror(self.workload_resource)
        self.checks = None if self.check_resource is None else self._mirror(self.check_resource)
        self._topologies = None if self._topology_resource is None else self._mirror(self._topology_resource)

    @property
    def mirrors(self) -> Iterator[Mirror]:
        """All copies."""
        every = (self.nodes, self.pods, self.workloads, self.checks, self._topologies)
        return (mirror for mirror in every if mirror is not None)

    def begin(self) -> None:
        """List everything, and watch from then on; ApiError says what is refused."""
        for mirror in self.mirrors:
            mirror.begin()

    def close(self) -> None:
        """Watch no longer."""
        for mirror in self.mirrors:
            mirror.close()

    def objects(self) -> Objects:
        """What there is."""
        with self.changed:
            return Objects(
                nodes=self.nodes.objects(),
                pods=self.pods.objects(),
                workloads=None if self.workloads is None else self.workloads.objects(),
                topologies=None if self._topologies is None else self._topologies.objects(),
                workload_resource=self.workload_resource,
                topology_resource=self._topology_resource,
                check_names=self.check_names(),
            )

    def check_names(self) -> frozenset[str]:
        """Names of the admission checks whose controller we are."""
        with self.changed:
            checks = () if self.checks is None else our_checks(self.checks.objects())
            return frozenset(check["metadata"]["name"] for check in checks)

    def has_news(self) -> bool:
        """Whether something has changed since the news were taken."""
        with self.changed:
            return any(mirror.has_news for mirror in self.mirrors)

    def take_news(self) -> None:
        """What has changed until now is no news any more."""
        with self.changed:
            for mirror in self.mirrors:
                mirror.has_news = False

    def check(self, limit_s: float) -> None:
        """Raise the ApiError of a watch that has been broken for longer than so many seconds."""
        with self.changed:
            for mirror in self.mirrors:
                if mirror.fault is not None and time.monotonic() - mirror.fault_since_s > limit_s:
                    raise mirror.fault

    def faults(self) -> list[str]:
        """What keeps the copies from being kept."""
        with self.changed:
            return [mirror.fault.detail for mirror in self.mirrors if mirror.fault is not None]

    def mirror_of(self, resource: Resource) -> Mirror:
        """The copy of a resource."""
        return next(mirror for mirror in self.mirrors if mirror.resource == resource)

    def _mirror(self, resource: Resource, selector: str = "") -> Mirror:
        return Mirror(self.api, resource, self.changed, selector=selector, first_pause_s=self._first_pause_s)
