"""What the API of a Kubernetes cluster says now.

Workloads of Kueue, JobSets and topologies are asked for where the cluster serves them.
"""

from collections.abc import Collection, Mapping, Sequence

from models.cluster_state.base import LiveSource, ParsedDocument, SourceDocument
from models.cluster_state.kubernetes.client import (
    NODES,
    PODS,
    PODS_THAT_COUNT,
    TIMEOUT_S,
    Api,
    ApiError,
    Resource,
    configured,
    items_of,
    metadata_of,
)
from stowplan.errors import InputError

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
    cluster = _Cluster(Api(configured(source.configuration, source.context), TIMEOUT_S))
    documents: dict[str, Sequence[SourceDocument]] = {}
    if "nodes" not in given:
        documents["nodes"] = cluster.listed("nodes", NODES)
    if "pods" not in given:
        documents["pods"] = cluster.listed("pods", PODS, PODS_THAT_COUNT)
    if "workloads" not in given:
        found = [cluster.served("workloads", _KUEUE, "workloads"), cluster.served("workloads", _JOBSET, "jobsets")]
        documents["workloads"] = [page for pages in found for page in pages]
    if "topology" not in given:
        documents["topology"] = _topologies(cluster, settings.get("topology-labels"))
    return documents


def _topologies(cluster: "_Cluster", setting: str | None) -> Sequence[SourceDocument]:
    """HyperNodes, or else topologies by label with the flavors that name them; none where labels are named."""
    hypernodes = cluster.served("topology", _VOLCANO, "hypernodes") if setting is None else []
    if _names(hypernodes):
        return hypernodes
    for group, others in ((_KUEUE, ("resourceflavors",)), (_KAI, ())):
        found = cluster.served("topology", group, "topologies")
        names = _names(found)
        if setting in names or (setting is None and names):
            return [*found, *(page for other in others for page in cluster.served("topology", group, other))]
    return []


def _names(pages: Collection[ParsedDocument]) -> set[str]:
    items = (one for page in pages if isinstance(page.value, dict) for one in items_of(page.value))
    return {metadata_of(one).get("name", "") for one in items}


class _Cluster:
    """A cluster that is asked for documents; what it refuses may be given as a file."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(self, role: str, resource: Resource, selector: str = "") -> list[ParsedDocument]:
        """All objects of a kind, for a role."""
        try:
            return self._api.pages(resource, selector=selector)
        except ApiError as error:
            raise _told(error, role) from error

    def served(self, role: str, group: str, plural: str) -> list[ParsedDocument]:
        """All objects of a kind that a cluster need not have; none where it does not."""
        try:
            resource = self._api.served(group, _VERSIONS[group], plural, "")
        except ApiError as error:
            raise _told(error, role) from error
        return [] if resource is None else self.listed(role, resource)


def _told(error: ApiError, role: str) -> InputError:
    return InputError(f"{error.detail}, or give --{role} FILE" if error.is_forbidden else error.detail)
