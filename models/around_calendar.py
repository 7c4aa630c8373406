r"""Planning around a calendar: the snapshot with only what the calendar leaves to its jobs, planned by any policy.

A policy that counts the GPUs of a type takes all of them to be alike to all jobs. So it gets a snapshot in which they
are. For each GPU type t, of the nodes N_t that take work and the jobs J_t that may get GPUs of it anew,

  K_t in { U_j : j in J_t },  U_j the nodes of t that job j may start on now            nodes that are handed out
  A_t = { j in J_t : K_t within U_j }                                                   jobs that may have them

with K_t chosen so that min(GPUs of K_t, GPUs wanted by A_t) is largest, then A_t, then K_t. A job wants what it has, or
min_gpus. Then, in the snapshot that is planned,

- nodes outside of K_t take no work (drained), and a job has the types alone whose A_t it is in;
- a job that waits and has none is left out, and told so (`reserved`);
- a running job that must leave (`Access.must_leave`) waits;
- another running job that is on nodes outside of K_t, or not in A_t of its type, keeps its GPUs (not preemptible).

Of a reservation whose nodes are not all in K_t, the jobs that these have GPUs enough for are planned by themselves, on
those of the nodes that all of them may use, as another part. Objective and bound are sums over the parts.

Where everybody may use all nodes, K_t is all of them, and the snapshot is the one that was given. The plan is checked
as a plan of its parts, and against the calendar. What it gives away: nodes that only some jobs may use go to nobody,
unless more is wanted by these than by all, or they belong to them; jobs on nodes that will be closed do not change
until they must leave; jobs of a reservation are planned on its nodes or beside all others, and not on both.
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.access import Access, AccessClass, allows, wanted_gpus
from models.allocation.changes import change_of
from models.kept_nodes import KeptNodes
from models.placement.occupancy import Slices, gpus_of, mask_of, occupancy
from models.plan import Change, JobAllocation, Plan, UnplacedJob
from models.workload import Job, Snapshot, checked_snapshot
from stowplan.arrays import FloatVector, Mask
from stowplan.errors import InputError, Issue
from topology.cluster import NodeState

_JOB = re.compile(r"^/jobs/([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A snapshot to plan, and the positions of its jobs in the one that was given."""

    planned: Snapshot
    positions: tuple[int, ...]

    def told(self, issues: Iterable[Issue]) -> list[Issue]:
        """Issues about `planned`, pointing into the snapshot that was given."""
        return [
            replace(issue, pointer=_JOB.sub(lambda m: f"/jobs/{self.positions[int(m[1])]}", issue.pointer))
            for issue in issues
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Around:
    """The `parts` that are planned in place of `snapshot`: the one of all jobs, then those of reservations.

    left_out: positions of jobs that get nothing. leaving: ids of those that run and may not stay. running: where jobs
    run, by id.
    """

    snapshot: Snapshot
    access: Access
    parts: tuple[Part, ...]
    left_out: tuple[int, ...]
    leaving: frozenset[str]
    running: Mapping[str, Slices]

    def unplaced(self, found: Iterable[UnplacedJob] = ()) -> tuple[UnplacedJob, ...]:
        """Explanations `found` for the parts, with what the calendar keeps from those that lack room; then why those
        get nothing that are left out."""
        kept = KeptNodes(self.snapshot, self.access)
        jobs = {job.id: job for job in self.snapshot.jobs}
        told = [self._told(kept, jobs[item.job_id], item) for item in found]
        return (*told, *(self._reserved(kept, self.snapshot.jobs[k]) for k in self.left_out))

    def whole(self, plans: Sequence[Plan]) -> Plan:
        """The plans of the parts as one of `snapshot`."""
        allocations = [
            replace(item, change=self._change(item)) if item.job_id in self.leaving else item
            for plan in plans
            for item in plan.allocations
        ]
        place = {job.id: k for k, job in enumerate(self.snapshot.jobs)}
        if len(plans) > 1:
            allocations.sort(key=lambda item: place[item.job_id])
        return Plan(
            allocations=tuple(allocations),
            unplaced=self.unplaced(job for plan in plans for job in plan.unplaced),
            score=tuple(term for plan in plans for term in plan.score),
            pretraining=plans[0].pretraining,
        )

    def _told(self, kept: KeptNodes, job: Job, found: UnplacedJob) -> UnplacedJob:
        preempted = found.preempted or job.id in self.leaving
        if found.reason != "capacity" or not kept.num_kept(job):
            return replace(found, preempted=preempted)
        why = self._reserved(kept, job)
        return replace(
            why,
            detail=f"{found.detail}; {why.detail}",
            counts={**found.counts, **why.counts},
            remedy=f"{found.remedy}; or {why.remedy}",
            preempted=preempted,
        )

    def _reserved(self, kept: KeptNodes, job: Job) -> UnplacedJob:
        detail, counts, remedy = kept.explain(job, kept.admitted_s(job, wanted_gpus(job)))
        return UnplacedJob(
            job_id=job.id,
            reason="reserved",
            detail=detail,
            counts={"min_gpus": job.min_gpus, **counts},
            remedy=remedy,
            preempted=job.id in self.leaving,
        )

    def _change(self, item: JobAllocation) -> Change:
        index = self.access.windows.node_index
        after = tuple(sorted((index[part.node], mask_of(part.gpus)) for part in item.gpus))
        return change_of(self.snapshot.cluster, self.running[item.job_id], after)


def around(
    snapshot: Snapshot, access: Access, *, places_one: bool = False, startable: Callable[[Job], bool] = lambda _: True
) -> Around:
    """Leave to a policy what the calendar leaves to its jobs.

    Parameters
    ----------
    places_one
        Jobs that run stay, and but for the one that waits with parallelism nobody gets anything.
    startable
        Whether a job that must leave may be planned anew; others get nothing.

    Raises
    ------
    InputError
        When a job with a reservation of GPUs may not have them.
    """
    running = occupancy(snapshot).running
    leaving = frozenset(job.id for job in snapshot.jobs if job.id in running and access.must_leave(job))

    def asks(job: Job) -> bool:
        if places_one:
            return job.id not in running and job.parallelism is not None
        if job.id in leaving:
            return startable(job)
        return job.id not in running or job.preemptible

    kept, admitted = _handed_out(snapshot, access, [job for job in snapshot.jobs if asks(job)], strict=not places_one)
    own = {} if places_one else _own_nodes(snapshot, access, kept, running, leaving, asks)
    belongs = {k for positions, _ in own.values() for k in positions}
    jobs: dict[int, Job] = {}
    left_out: list[int] = []
    for k, job in enumerate(snapshot.jobs):
        if k not in belongs:
            types = admitted.get(job.id, ()) if asks(job) else None
            found = _beside_all(snapshot, kept, k, types, running, leaving)
            if found is None:
                left_out.append(k)
            else:
                jobs[k] = found
    parts = [_part(snapshot, kept, jobs)] if jobs or not own else []
    for positions, nodes in own.values():
        theirs = {k: _waiting(snapshot.jobs[k], leaving) for k in positions}
        names = {snapshot.jobs[k].id for k in positions}
        others = [slices for name, slices in running.items() if name not in names and name not in leaving]
        parts.append(_part(snapshot, nodes, theirs, others))
    return Around(
        snapshot=snapshot,
        access=access,
        parts=tuple(parts),
        left_out=tuple(left_out),
        leaving=leaving,
        running=running,
    )


def _beside_all(
    snapshot: Snapshot,
    kept: Mask,
    position: int,
    types: Sequence[str] | None,
    running: Mapping[str, Slices],
    leaving: Container[str],
) -> Job | None:
    """A job as it is planned beside all others, on these types (None: it asks for nothing); None: it gets nothing."""
    job = snapshot.jobs[position]
    if job.id in running and job.id not in leaving:
        is_free = types is not None and _is_within(snapshot, kept, types, running[job.id])
        return _with_types(snapshot, job, types or ()) if is_free else replace(job, preemptible=False)
    if types is None:
        return None if job.id in leaving else job
    if job.reservation is not None and job.reservation.gpu_type not in types:
        detail = f"job {job.id!r} has GPUs reserved on which the calendar does not let it start now; leave it out"
        issue = Issue(code="reserved", pointer=f"/jobs/{position}/reservation", detail=detail)
        raise InputError("a reservation goes against the calendar", [issue])
    return _with_types(snapshot, _waiting(job, leaving), types) if types else None


def _part(snapshot: Snapshot, kept: Mask, jobs: Mapping[int, Job], others: Iterable[Slices] = ()) -> Part:
    """The jobs on the nodes `kept` (N,), without the GPUs that others have there."""
    taken: dict[int, int] = {}
    for slices in others:
        for n, mask in slices:
            taken[n] = taken.get(n, 0) | mask
    nodes = list(snapshot.cluster.nodes)
    for n, node in enumerate(nodes):
        if node.state is NodeState.UP and not kept[n]:
            nodes[n] = replace(node, state=NodeState.DRAINED)
        elif n in taken:
            nodes[n] = replace(node, gpus_in_use=gpus_of(mask_of(node.gpus_in_use) | taken[n]))
    cluster = replace(snapshot.cluster, nodes=tuple(nodes))
    return Part(planned=checked_snapshot(cluster, tuple(jobs.values())), positions=tuple(jobs))


def _own_nodes(
    snapshot: Snapshot,
    access: Access,
    kept: Mask,
    running: Mapping[str, Slices],
    leaving: Container[str],
    asks: Callable[[Job], bool],
) -> Mapping[str, tuple[list[int], Mask]]:
    """Reservation -> positions of its jobs that are planned on its nodes, and these (N,), as far as they are not handed
    out to all."""
    left = ~kept & np.array([node.state is NodeState.UP for node in snapshot.cluster.nodes])
    found: dict[str, tuple[list[int], Mask]] = {}
    belonging: dict[str, list[int]] = {}
    for k, job in enumerate(snapshot.jobs):
        if asks(job) and access.windows.own_nodes(job):
            belonging.setdefault(job.calendar_entry or "", []).append(k)
    for name, positions in belonging.items():
        nodes = np.zeros(left.size, dtype=np.bool_)
        nodes[list(access.windows.nodes_of[name])] = True
        nodes &= left
        for k in positions:
            nodes &= access.usable(snapshot.jobs[k])
        chosen = [k for k in positions if _fits_own(snapshot, snapshot.jobs[k], nodes, running, leaving)]
        if chosen:
            found[name] = chosen, nodes
            left = left & ~nodes
    return found


def _fits_own(
    snapshot: Snapshot, job: Job, nodes: Mask, running: Mapping[str, Slices], leaving: Container[str]
) -> bool:
    """Whether a job runs on these nodes alone, or waits and they have as many GPUs as it wants."""
    if job.id in running and job.id not in leaving:
        return all(nodes[n] for n, _ in running[job.id])
    members = (snapshot.cluster.nodes[n] for n in np.flatnonzero(nodes))
    return sum(node.num_gpus for node in members if allows(job, node.gpu_type)) >= wanted_gpus(job)


def _waiting(job: Job, leaving: Container[str]) -> Job:
    return replace(job, current=None, parallel_plan=None, expansions=()) if job.id in leaving else job


def _handed_out(
    snapshot: Snapshot, access: Access, asking: Sequence[Job], *, strict: bool
) -> tuple[Mask, Mapping[str, list[str]]]:
    """(N,) the nodes K, and the types of every job. strict: nobody is admitted where nothing is handed out."""
    of_type: dict[str, list[int]] = {kind.name: [] for kind in snapshot.cluster.gpu_types}
    for n, node in enumerate(snapshot.cluster.nodes):
        if node.state is NodeState.UP:
            of_type[node.gpu_type].append(n)
    kept = np.zeros(len(snapshot.cluster.nodes), dtype=np.bool_)
    admitted: dict[str, list[str]] = {job.id: [] for job in asking}
    for gpu_type, members in of_type.items():
        jobs = [job for job in asking if allows(job, gpu_type)]
        positions = np.array(members, dtype=np.int64)
        masks = {access.class_of(job): access.usable(job)[positions] for job in jobs}
        if all(mask.all() for mask in masks.values()):
            chosen, classes = np.ones(positions.size, dtype=np.bool_), set(masks)
        else:
            sizes = np.array([snapshot.cluster.nodes[n].num_gpus for n in members])
            wanted: Counter[AccessClass] = Counter()
            for job in jobs:
                wanted[access.class_of(job)] += wanted_gpus(job)
            chosen, classes = _chosen(masks, sizes, wanted)
            classes = classes if chosen.any() or not strict else set()
        kept[positions[chosen]] = True
        for job in jobs:
            if access.class_of(job) in classes:
                admitted[job.id].append(gpu_type)
    return kept, admitted


def _chosen(
    masks: Mapping[AccessClass, Mask], sizes: FloatVector, wanted: Mapping[AccessClass, int]
) -> tuple[Mask, set[AccessClass]]:
    """The nodes K_t (of one type), and the classes of the jobs A_t."""
    classes = list(masks)
    usable = np.array([masks[found] for found in classes])
    # Nodes that are alike count as one with all their GPUs.
    kinds, number = np.unique(usable, axis=1, return_inverse=True)
    gpus = np.bincount(number.reshape(-1), weights=sizes, minlength=kinds.shape[1])
    within = (kinds.astype(np.int64) @ (~kinds).astype(np.int64).T) == 0
    demand = within @ np.array([wanted[found] for found in classes])
    values = np.minimum(kinds @ gpus, demand)
    best = max(range(len(classes)), key=lambda c: (values[c], demand[c], kinds[c] @ gpus))
    return usable[best], {found for found, fits in zip(classes, within[best], strict=True) if fits}


def _is_within(snapshot: Snapshot, kept: Mask, types: Sequence[str], slices: Slices) -> bool:
    """Whether a job runs on nodes that are handed out, of types that it may have."""
    return all(kept[n] and snapshot.cluster.nodes[n].gpu_type in types for n, _ in slices)


def _with_types(snapshot: Snapshot, job: Job, types: Sequence[str]) -> Job:
    """The job on these of its types alone."""
    allowed = job.gpu_types or tuple(kind.name for kind in snapshot.cluster.gpu_types)
    left = tuple(name for name in allowed if name in types)
    return job if len(left) == len(allowed) or job.reservation is not None else replace(job, gpu_types=left)
