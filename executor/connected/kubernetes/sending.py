"""Changes are written down, then sent: all patches of a gang are tried without effect first, so that a gang of which
one is refused does not start by halves."""

from collections.abc import Iterable, Mapping, Sequence

from executor.connected.journal import Journal
from executor.connected.kubernetes.api import PODS, ApiError
from executor.connected.kubernetes.changes import Delete, Patch, intend, lift
from executor.connected.kubernetes.clock import Clock
from executor.connected.kubernetes.cluster import ClusterCopy
from executor.connected.kubernetes.gangs import Gang, GangPod
from executor.connected.kubernetes.kueue import PENDING, intend_work, is_active, ready, serve


class Sender:
    """Sends changes to a cluster, or only writes them down where the journal is dry."""

    def __init__(self, copy: ClusterCopy, gate: str, journal: Journal, clock: Clock) -> None:
        self._copy, self._gate, self._journal, self._clock = copy, gate, journal, clock
        self._written: dict[str, Sequence[str]] = {}

    def place(
        self, gang: Gang, nodes: Sequence[str], due: Sequence[tuple[GangPod, str | None]], hostnames: Mapping[str, str]
    ) -> None:
        """Let a gang go to its nodes, as far as it waits still.

        Raises
        ------
        ApiError
            When the API refuses, or does not answer; what was sent before has been done.
        """
        if self._journal.is_dry and self._written.get(gang.id) == nodes:
            return
        self._written[gang.id] = nodes
        work, resource = gang.workload, self._copy.workload_resource
        if work is not None and resource is not None:
            if work.nodes != nodes and not due:
                self._send(intend_work(resource, work, nodes))
            if work.state == PENDING:
                self._send(ready(resource, work, nodes, hostnames, self._clock.moment()))
        patches = [lift(pod, self._gate, node, None if node is None else hostnames[node]) for pod, node in due]
        if len(patches) > 1 and not self._journal.is_dry:
            for patch in patches:
                self._try(patch)
        if patches and gang.nodes != nodes:
            self._send(intend(gang.pods[0], nodes))
        for patch in patches:
            self._send(patch)

    def release(self, gangs: Iterable[Gang]) -> int:
        """Let everything go that waits and was not placed, wherever Kubernetes puts it; how many pods and workloads."""
        num = 0
        for gang in gangs:
            for pod in gang.gated if gang.nodes is None else ():
                self._send(lift(pod, self._gate, None, None))
                num += 1
            work, resource = gang.workload, self._copy.workload_resource
            if work is not None and resource is not None and work.state == PENDING and work.nodes is None:
                self._send(ready(resource, work, None, {}, self._clock.moment()))
                num += 1
        return num

    def delete(self, pods: Iterable[GangPod]) -> None:
        """Delete pods, so that their controllers make new ones, which wait.

        Raises
        ------
        ApiError
            When the API refuses, or does not answer.
        """
        for pod in pods:
            change = Delete(pod=pod)
            self._journal.note(change.line, change.document)
            if self._journal.is_dry:
                continue
            try:
                self._copy.api.delete(PODS, pod.namespace, pod.name, pod.uid)
            except ApiError as error:
                if not error.is_absent:
                    raise

    def serve_checks(self) -> None:
        """Tell Kueue that our admission checks are served; until then their queues take nothing."""
        resource = self._copy.check_resource
        for check in self._copy.our_check_objects():
            if resource is not None and not is_active(check):
                self._send(serve(resource, check, self._clock.moment()))

    def _send(self, patch: Patch) -> None:
        self._journal.note(patch.line, patch.document)
        if self._journal.is_dry:
            return
        try:
            found = self._copy.api.patch(
                patch.resource, patch.namespace, patch.name, patch.body, patch.content_type, patch.part
            )
        except ApiError as error:
            # It was deleted meanwhile, which the watch is about to tell.
            if error.is_absent:
                return
            raise
        mirror = self._copy.mirror_of(patch.resource)
        if mirror is not None:
            mirror.put(found)

    def _try(self, patch: Patch) -> None:
        """Have the API look at a patch, and do nothing about it."""
        try:
            self._copy.api.patch(
                patch.resource, patch.namespace, patch.name, patch.body, patch.content_type, patch.part, is_trial=True
            )
        except ApiError as error:
            if not error.is_absent:
                raise
