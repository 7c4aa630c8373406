"""Changes are written down, then sent: all patches of a gang are tried without effect first, so that a gang of which
one is refused does not start by halves."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from executor.connected.clock import Clock
from executor.connected.journal import Journal
from executor.connected.kubernetes.cluster import ClusterCopy
from executor.connected.kubernetes.gangs import Gang, uid_of
from executor.connected.kubernetes.kueue import PENDING, intend_work, noting, our_checks, serving
from executor.connected.kubernetes.terms import NODES
from executor.kubernetes.answers import AnswerOptions, anywhere, ready
from executor.kubernetes.gates import GatedPod, lifted, released
from executor.kubernetes.names import HOSTNAME
from executor.kubernetes.patches import Patch
from models.cluster_state.kubernetes.client import PODS, ApiError, Resource
from models.parallel_plan import Gpu

_JSON_PATCH = "application/json-patch+json"
# The API server takes no more in all annotations of an object (`TotalAnnotationSizeLimitB`); others want some, too.
MAX_NOTE_BYTES = 192 * 1024


class Sender:
    """Sends changes to a cluster, or only writes them down where the journal is dry. `may_send` raises ApiError when
    somebody else sends by now."""

    def __init__(
        self, copy: ClusterCopy, journal: Journal, clock: Clock, may_send: Callable[[], None] = lambda: None
    ) -> None:
        self._copy, self._journal, self._clock = copy, journal, clock
        self.may_send = may_send
        self._written: dict[str, Sequence[str]] = {}

    def place(
        self, gang: Gang, nodes: Sequence[str], due: Sequence[tuple[GatedPod, str]], hostnames: Mapping[str, str]
    ) -> None:
        """Let a gang go to its nodes, as far as it waits still.

        Raises
        ------
        UnsayableError
            When Kubernetes cannot be told of these nodes; nothing was sent.
        ApiError
            When the API refuses, or does not answer; what was sent before has been done.
        """
        if self._journal.is_dry and self._written.get(gang.id) == nodes:
            return
        self._written[gang.id] = nodes
        before, patches = self._patches(gang, nodes, due, hostnames)
        if len(patches) > 1 and not self._journal.is_dry:
            for patch in patches:
                self._request(patch, is_trial=True)
        for patch in (*before, *patches):
            self._send(patch)

    def release(self, gangs: Iterable[Gang], say: Callable[[str], None]) -> int:
        """Let everything go that waits and was not placed, wherever Kubernetes puts it; how many pods and workloads.

        Who cannot be let go is told of, and does not hold up the others.
        """
        patches: list[Patch] = []
        for gang in gangs:
            if gang.nodes is None:
                patches += [released(pod, gang.id) for pod in gang.pods if pod.gate is not None]
                if gang.workload is not None and gang.problem is None:
                    patches.append(anywhere(gang.workload, gang.id, "stowplan: released", self._options(gang)))
        num = 0
        for patch in patches:
            try:
                self._send(patch)
                num += 1
            except ApiError as error:
                say(f"{patch.job_id}: {patch.name} cannot be let go: {error.detail}")
        return num

    def delete(self, pods: Iterable[GatedPod]) -> None:
        """Delete pods, so that their controllers make new ones, which wait.

        Raises
        ------
        ApiError
            When the API refuses, or does not answer.
        """
        for pod in pods:
            namespace, name = pod.object.namespace, pod.object.name
            line = shlex.join(["kubectl", "delete", "pod", name, "--namespace", namespace])
            uid = uid_of(pod.object)
            self._journal.note(line, {"verb": "delete", "path": PODS.path(namespace, name), "uid": uid})
            if self._journal.is_dry:
                continue
            self.may_send()
            try:
                found = self._copy.api.delete(PODS, namespace, name, uid)
            except ApiError as error:
                if not error.is_absent:
                    raise
                continue
            if found.get("kind") == "Pod" and found["metadata"].get("deletionTimestamp"):
                # It ends in its own time, and is none of the gang from now on.
                self._copy.pods.put(found)

    def serve_checks(self) -> None:
        """Tell Kueue that our admission checks are served."""
        resource = self._copy.check_resource
        if self._copy.checks is None or resource is None:
            return
        with self._copy.changed:
            checks = our_checks(self._copy.checks.objects())
        for patch in (serving(check, resource, self._clock.moment()) for check in checks):
            if patch is not None:
                self._send(patch)

    def _patches(
        self, gang: Gang, nodes: Sequence[str], due: Sequence[tuple[GatedPod, str]], hostnames: Mapping[str, str]
    ) -> tuple[list[Patch], list[Patch]]:
        """What is noted before, and what lets pods go."""
        work = gang.workload
        if work is not None and work.check is not None and work.check.state == PENDING:
            gpus = _gpus(zip(gang.gpus, nodes, strict=True), hostnames)
            answer = ready(work, gang.id, gpus, f"stowplan: on {len(set(nodes))} nodes", self._options(gang))
            noted = [] if gang.nodes == tuple(nodes) else [intend_work(work, gang.quota_since, gang.id, nodes)]
            return noted, [] if answer is None else [answer]
        if not due:
            return [], []
        pods = [pod for pod, _ in due]
        patches = lifted(pods, gang.id, _gpus(((pod.num_gpus, node) for pod, node in due), hostnames), HOSTNAME)
        patches += [released(pod, gang.id) for pod in gang.pods if pod.gate is not None and not pod.num_gpus]
        said = {NODES: ",".join(nodes)}
        # A workload has the note itself, and lasts as long as its pods.
        keepers = gang.keepers if work is None or gang.nodes != tuple(nodes) else ()
        noted = [
            noting(pod.object, "pods", gang.id, said, nodes)
            for pod in keepers
            if pod.object.object("metadata").texts("annotations").get(NODES) != said[NODES]
        ]
        return noted, patches

    def _options(self, gang: Gang) -> AnswerOptions:
        names = self._copy.check_names()
        assert gang.workload is not None  # noqa: S101 - it has a check of ours
        own = (check.text("name") for check in gang.workload.object.object("status").objects("admissionChecks"))
        check = next(name for name in own if name in names)
        return AnswerOptions(check=check, node_key=HOSTNAME, at_s=self._clock.moment().timestamp(), retry_s=0)

    def _send(self, patch: Patch) -> None:
        """Write down, send, and take the answer before the watch tells it."""
        resource = self._resource(patch)
        path = resource.path(patch.namespace or None, patch.name, patch.subresource)
        document = {"verb": "patch", "path": path, "contentType": _JSON_PATCH, "body": patch.operations}
        self._journal.note(shlex.join(patch.kubectl()), {**document, "job": patch.job_id, "meaning": patch.meaning})
        if not self._journal.is_dry:
            self._request(patch)

    def _request(self, patch: Patch, *, is_trial: bool = False) -> None:
        resource = self._resource(patch)
        self.may_send()
        try:
            found = self._copy.api.patch(
                resource,
                patch.namespace or None,
                patch.name,
                list(patch.operations),
                _JSON_PATCH,
                patch.subresource,
                is_trial=is_trial,
            )
        except ApiError as error:
            # It was deleted meanwhile, which the watch is about to tell.
            if error.is_absent:
                return
            raise
        if not is_trial:
            self._copy.mirror_of(resource).put(found)

    def _resource(self, patch: Patch) -> Resource:
        plural = patch.resource.partition(".")[0]
        return next(mirror.resource for mirror in self._copy.mirrors if mirror.resource.plural == plural)


def _gpus(places: Iterable[tuple[int, str]], hostnames: Mapping[str, str]) -> list[Gpu]:
    """(host, GPU) of every rank: which GPUs of its host a pod gets, Kubernetes says."""
    return [(hostnames[node], gpu) for num, node in places for gpu in range(num)]
