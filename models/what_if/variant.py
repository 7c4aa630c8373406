"""Variants of a planning task: what is changed, and the task that comes of it.

Light: imports no solver and no modelling layer. Changes do not depend on an order: each field of a variant is of
another part of the request, and what removes and adds says so of different things.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from models.plan import PlanRequest
from models.policy import Parameters
from models.workload import Job, NodeGpus, Snapshot
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors
from topology.calendar import CalendarEntry
from topology.cluster import Cluster, Node, NodeState

_ID = "added-{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedNodes:
    """Nodes that the cluster gets, all alike; `path` names the unit of each tier, coarsest first."""

    num_nodes: int
    gpu_type: str
    num_gpus: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPlace:
    """Where or when a job is asked for: exactly on `gpus` (for a pre-training job: on nodes among theirs), or at
    `start_s` from now, for a job that is planned ahead. One of them at least."""

    job: str
    gpus: tuple[NodeGpus, ...] | None = None
    start_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is other than in a request.

    drain, down, up: ids of nodes, or units of the fabric by path joined with "/", which stand for all their nodes.
    add_nodes: they are called added-1, added-2 and so on. jobs: job id -> fields of the job with their new values.
    parameters: those that are planned with (None: those of the request); they choose the policy. place: a job is asked
    for at a place or time, which `models.what_if.placing` sees to.
    """

    name: str
    drain: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    up: tuple[str, ...] = ()
    add_nodes: tuple[AddedNodes, ...] = ()
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    add_jobs: tuple[Job, ...] = ()
    remove_jobs: tuple[str, ...] = ()
    parameters: Parameters | None = None
    add_entries: tuple[CalendarEntry, ...] = ()
    remove_entries: tuple[str, ...] = ()
    place: WantedPlace | None = None


def applied(variant: Variant, request: PlanRequest) -> PlanRequest:
    """Give the request with the changes, but for `place`. Without any it is equal to `request`.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the variant (`/jobs/llm/min_gpus`).
    """
    raise_for_errors([*_name_faults(variant, request.snapshot)], "variant")
    old = request.snapshot
    cluster = _changed_cluster(variant, old.cluster)
    removed = set(variant.remove_jobs)
    kept = [
        replace(job, **variant.jobs[job.id]) if job.id in variant.jobs else job
        for job in old.jobs
        if job.id not in removed
    ]
    entries = tuple(entry for entry in old.calendar if entry.name not in set(variant.remove_entries))
    try:
        snapshot = Snapshot(cluster=cluster, jobs=(*kept, *variant.add_jobs), calendar=(*entries, *variant.add_entries))
    except InputError as error:
        where = {
            **{f"/jobs/{k}": pointer_of("jobs", job.id) for k, job in enumerate(kept)},
            **{f"/jobs/{len(kept) + k}": f"/add_jobs/{k}" for k in range(len(variant.add_jobs))},
            **{f"/calendar/{len(entries) + k}": f"/add_entries/{k}" for k in range(len(variant.add_entries))},
        }
        raise InputError(f"variant {variant.name!r}: {error.detail}", _moved(error.issues, where)) from error
    return replace(
        request,
        snapshot=snapshot,
        parameters=request.parameters if variant.parameters is None else variant.parameters,
    )


def _name_faults(variant: Variant, snapshot: Snapshot) -> Iterator[Issue]:
    """Names of jobs and entries that there are not, and jobs that are both changed and removed."""
    jobs, entries = {job.id for job in snapshot.jobs}, {entry.name for entry in snapshot.calendar}
    named = [(pointer_of("jobs", name), name) for name in variant.jobs]
    named += [(f"/remove_jobs/{k}", name) for k, name in enumerate(variant.remove_jobs)]
    if variant.place is not None:
        jobs_then = (jobs - set(variant.remove_jobs)) | {job.id for job in variant.add_jobs}
        if variant.place.job not in jobs_then:
            yield _unknown("job", "/place/job", variant.place.job)
    for pointer, name in named:
        if name not in jobs:
            yield _unknown("job", pointer, name)
    for name in sorted(variant.jobs.keys() & set(variant.remove_jobs)):
        detail = f"job {name!r} is removed as well; leave out one of the two"
        yield Issue(code="changed_and_removed", pointer=pointer_of("jobs", name), detail=detail)
    for k, name in enumerate(variant.remove_entries):
        if name not in entries:
            yield _unknown("calendar_entry", f"/remove_entries/{k}", name)


def _unknown(what: str, pointer: str, name: str) -> Issue:
    noun = what.replace("_", " ")
    return Issue(code=f"unknown_{what}", pointer=pointer, detail=f"the snapshot has no {noun} {name!r}")


def _changed_cluster(variant: Variant, cluster: Cluster) -> Cluster:
    """The cluster with other states of its nodes, and with more of them."""
    states = _states(variant, cluster)
    nodes = [
        replace(node, state=states[n]) if states.get(n, node.state) is not node.state else node
        for n, node in enumerate(cluster.nodes)
    ]
    known = {node.id for node in nodes}
    where: dict[str, str] = {}
    number = 0
    for k, added in enumerate(variant.add_nodes):
        for _ in range(added.num_nodes):
            number += 1
            while (id_ := _ID.format(number)) in known:
                number += 1
            where[f"/nodes/{len(nodes)}"] = f"/add_nodes/{k}"
            nodes.append(Node(id=id_, gpu_type=added.gpu_type, num_gpus=added.num_gpus, path=added.path))
    if not states and not where:
        return cluster
    try:
        return replace(cluster, nodes=tuple(nodes))
    except InputError as error:
        # Nodes that are added together are wrong together.
        issues = list({(issue.code, issue.pointer): issue for issue in _moved(error.issues, where)}.values())
        raise InputError(f"variant {variant.name!r}: {error.detail}", issues) from error


def _states(variant: Variant, cluster: Cluster) -> dict[int, NodeState]:
    """Position of a node -> its new state."""
    asked = ((NodeState.DRAINED, "drain"), (NodeState.DOWN, "down"), (NodeState.UP, "up"))
    if not any(getattr(variant, name) for _, name in asked):
        return {}
    named: dict[str, list[int]] = {}
    for n, node in enumerate(cluster.nodes):
        for depth in range(1, len(node.path) + 1):
            named.setdefault("/".join(node.path[:depth]), []).append(n)
    # A node that is called as a unit is meant itself.
    named |= {node.id: [n] for n, node in enumerate(cluster.nodes)}
    states: dict[int, NodeState] = {}
    issues = []
    for state, field_ in asked:
        for k, name in enumerate(getattr(variant, field_)):
            if name not in named:
                detail = f"the cluster has neither a node nor a unit of a tier that is called {name!r}"
                issues.append(Issue(code="unknown_node", pointer=f"/{field_}/{k}", detail=detail))
            for n in named.get(name, ()):
                if states.setdefault(n, state) is not state:
                    detail = f"node {cluster.nodes[n].id!r} shall be {states[n]} as well; say one of the two"
                    issues.append(Issue(code="two_states", pointer=f"/{field_}/{k}", detail=detail))
                    break
    raise_for_errors(issues, "variant")
    return states


def _moved(issues: Sequence[Issue], where: Mapping[str, str]) -> list[Issue]:
    """Issues of the changed snapshot, at the change that they come of; what none says is of the variant as a whole."""
    found = []
    for issue in issues:
        head = "/".join(issue.pointer.split("/")[:3])
        pointer = where[head] + issue.pointer[len(head) :] if head in where else ""
        found.append(replace(issue, pointer=pointer))
    return found
