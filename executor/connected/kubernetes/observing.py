"""What the copies of a cluster's objects say: nodes, jobs that are governed, and what others run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from executor.connected.kubernetes.api import Json, Resource
from executor.connected.kubernetes.gangs import Gang, read_gangs, shown_to_reader
from executor.connected.kubernetes.kueue import add_workloads
from executor.connected.kubernetes.terms import Terms
from executor.kubernetes.names import HOSTNAME
from models.cluster_state import ClusterState, StateOptions, read_state
from models.cluster_state.base import ParsedDocument, SourceDocument
from models.cluster_state.kubernetes.nodes import GPU_RESOURCES
from models.cluster_state.kubernetes.objects import Object
from models.workload import Job
from stowplan.collection import without_collection
from topology.cluster import Cluster, NodeState

_NODES = SourceDocument(name="nodes", text="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """Objects of each kind, where the cluster has the kind; `check_names`: admission checks that are ours."""

    nodes: Sequence[Json]
    pods: Sequence[Json]
    workloads: Sequence[Json] | None = None
    topologies: Sequence[Json] | None = None
    workload_resource: Resource | None = None
    topology_resource: Resource | None = None
    check_names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A job that somebody else runs: GPUs by node."""

    job: Job
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A cluster at one moment.

    `state`: as the reader has it. `cluster`: its nodes with the states that are told: a node that is lost takes no new
    work, and what runs there is over when Kubernetes says so. `gangs`: the governed jobs; `jobs`: what the reader makes
    of them. `foreign`: what others run. `hostnames`: the label by which pods ask for a node.
    """

    state: ClusterState
    cluster: Cluster
    gangs: Mapping[str, Gang]
    jobs: Mapping[str, Job]
    foreign: Mapping[str, Foreign]
    hostnames: Mapping[str, str]


def observe(objects: Objects, terms: Terms, options: StateOptions) -> Observed:
    """Read what there is.

    Raises
    ------
    InputError
        When it cannot be planned on: names the object and what is wrong.
    """
    with without_collection():
        return _observed(objects, terms, options)


def _observed(objects: Objects, terms: Terms, options: StateOptions) -> Observed:
    hostnames = {item["metadata"]["name"]: _hostname(item) for item in objects.nodes}
    documents = _documents(objects)
    gangs = read_gangs(objects.pods, terms)
    gangs = add_workloads(gangs, documents.get("workloads", ()), sorted(objects.check_names), terms)
    names = {host: name for name, host in hostnames.items()}
    pods = shown_to_reader(
        objects.pods, gangs, names, {item["metadata"]["name"]: _gpus(item) for item in objects.nodes}
    )
    state = read_state("kubernetes", {**documents, "pods": [_document("pods", "PodList", "v1", pods)]}, options)
    jobs = {item.job.id: item.job for item in state.jobs if item.held is None}
    nodes = state.cluster.nodes
    told = (replace(node, state=NodeState.DRAINED) if node.state is NodeState.DOWN else node for node in nodes)
    return Observed(
        state=state,
        cluster=replace(state.cluster, nodes=tuple(told)),
        gangs=gangs,
        jobs={name: _governed(jobs[name], gang, terms) for name, gang in gangs.items() if name in jobs},
        foreign={
            name: Foreign(
                job=replace(job, preemptible=False), counts={part.node: len(part.gpus) for part in job.current}
            )
            for name, job in jobs.items()
            if job.current and (name not in gangs or gangs[name].nodes is None)
        },
        hostnames=hostnames,
    )


def _hostname(node: Json) -> str:
    """What pods ask for a node by."""
    labels = node["metadata"].get("labels") or {}
    return str(labels.get(HOSTNAME, node["metadata"]["name"]))


def _gpus(node: Json) -> int:
    """GPUs that a node has for pods."""
    allocatable = Object(_NODES, "", node).object("status", "allocatable")
    return max(allocatable.count(key) for key in GPU_RESOURCES)


def _governed(job: Job, gang: Gang, terms: Terms) -> Job:
    """A governed job as it is planned, with all of its pods; it keeps its GPUs unless its pods may be deleted, and are
    made anew."""
    return replace(
        job,
        min_gpus=sum(gang.gpus) or job.min_gpus,
        parallelism=gang.parallelism,
        preemptible=terms.may_delete and gang.workload is None and gang.can_be_made_anew,
        current=None,
    )


def _documents(objects: Objects) -> dict[str, list[ParsedDocument]]:
    found = {"nodes": _document("nodes", "NodeList", "v1", objects.nodes)}
    if objects.workload_resource is not None:
        version = objects.workload_resource.api_version
        # `read_answered` asks every one for its version.
        items = [{**item, "apiVersion": version} for item in objects.workloads or ()]
        found["workloads"] = _document("workloads", "WorkloadList", version, items)
    if objects.topology_resource is not None and objects.topologies:
        version = objects.topology_resource.api_version
        found["topology"] = _document("topologies", "TopologyList", version, objects.topologies)
    return {role: [document] for role, document in found.items()}


def _document(name: str, kind: str, version: str, items: Sequence[Json]) -> ParsedDocument:
    return ParsedDocument(name=name, value={"kind": kind, "apiVersion": version, "items": list(items)})
