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
- another running job that is on nodes outside of K_t, or in no A_t of its type, keeps its GPUs (not preemptible).

Where everybody may use all nodes, K_t is all of them, and the snapshot is the one that was given. The plan is a plan of
that snapshot, with its objective, bound and check, and it honours the calendar, which is checked again. What it gives
away: nodes that only some jobs may use go to nobody, unless more is wanted by these than by all; a reservation is kept
free of others, and its own jobs may use it so far as that rule has it; jobs on nodes that will be closed do not change
until they must leave.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.access import Access, AccessClass
from models.allocation.changes import change_of
from models.kept_nodes import KeptNodes
from models.placement.occupancy import Slices, mask_of, occupancy
from models.plan import Change, JobAllocation, Plan, UnplacedJob
from models.workload import Job, Snapshot, checked_snapshot
from stowplan.arrays import FloatVector, Mask
from stowplan.errors import InputError, Issue
from topology.cluster import NodeState

_JOB = re.compile(r"^/jobs/([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Around:
    """The snapshot `planned` in place of `snapshot`.

    positions: of its jobs in `snapshot`. left_out: positions of those that get nothing. leaving: ids of those that run
    and may not stay. running: where jobs run, by id.
    """

    snapshot: Snapshot
    planned: Snapshot
    access: Access
    positions: tuple[int, ...]
    left_out: tuple[int, ...]
    leaving: frozenset[str]
    running: Mapping[str, Slices]

    def unplaced(self) -> tuple[UnplacedJob, ...]:
        """Why those that are left out get nothing."""
        kept = KeptNodes(self.snapshot, self.access)
        return tuple(self._reserved(kept, self.snapshot.jobs[k]) for k in self.left_out)

    def _reserved(self, kept: KeptNodes, job: Job) -> UnplacedJob:
        detail, counts, remedy = kept.explain(job, kept.admitted_s(job, _wanted(job)))
        return UnplacedJob(
            job_id=job.id,
            reason="reserved",
            detail=detail,
            counts={"min_gpus": job.min_gpus, **counts},
            remedy=remedy,
            preempted=job.id in self.leaving,
        )

    def for_want_of_kept(self, found: UnplacedJob) -> UnplacedJob:
        """An explanation with what the calendar keeps from the job, where it does."""
        kept = KeptNodes(self.snapshot, self.access)
        job = next(job for job in self.snapshot.jobs if job.id == found.job_id)
        if not kept.num_kept(job):
            return found
        detail, counts, remedy = kept.explain(job, kept.admitted_s(job, _wanted(job)))
        return replace(
            found,
            reason="reserved",
            detail=f"{found.detail}; {detail}",
            counts={**found.counts, **counts},
            remedy=f"{found.remedy}; or {remedy}",
        )

    def told(self, issues: Sequence[Issue]) -> list[Issue]:
        """Issues about `planned`, pointing into `snapshot`."""
        return [
            replace(issue, pointer=_JOB.sub(lambda m: f"/jobs/{self.positions[int(m[1])]}", issue.pointer))
            for issue in issues
        ]

    def whole(self, plan: Plan) -> Plan:
        """A plan of `planned` as one of `snapshot`."""
        allocations = tuple(
            replace(item, change=self._change(item)) if item.job_id in self.leaving else item
            for item in plan.allocations
        )
        waiting = tuple(replace(job, preempted=True) if job.job_id in self.leaving else job for job in plan.unplaced)
        return replace(plan, allocations=allocations, unplaced=(*waiting, *self.unplaced()))

    def part(self, plan: Plan) -> Plan:
        """The reverse of `whole`."""
        out = {self.snapshot.jobs[k].id for k in self.left_out}
        allocations = tuple(
            replace(item, change=Change.STARTED) if item.job_id in self.leaving else item for item in plan.allocations
        )
        waiting = tuple(
            replace(job, preempted=False) if job.job_id in self.leaving else job
            for job in plan.unplaced
            if job.job_id not in out
        )
        return replace(plan, allocations=allocations, unplaced=waiting)

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
        return job.id not in running or job.id in leaving or job.preemptible

    kept, admitted = _handed_out(snapshot, access, [job for job in snapshot.jobs if asks(job)], strict=not places_one)
    jobs: list[Job] = []
    positions: list[int] = []
    left_out: list[int] = []
    faults: list[Issue] = []
    for k, job in enumerate(snapshot.jobs):
        stays = job.id in running and job.id not in leaving
        types = admitted.get(job.id, ())
        if stays:
            is_free = asks(job) and set(types) >= _types_now(snapshot, running, job) and _is_within(kept, running, job)
            found: Job | None = _with_types(snapshot, job, types) if is_free else replace(job, preemptible=False)
        elif (job.id in leaving and (places_one or not startable(job))) or (asks(job) and not types):
            found = None
        else:
            start = replace(job, current=None, parallel_plan=None, expansions=()) if job.id in leaving else job
            found = _with_types(snapshot, start, types) if asks(job) else start
        if found is not None:
            jobs.append(found)
            positions.append(k)
        else:
            left_out.append(k)
        if job.reservation is not None and not stays and job.reservation.gpu_type not in types:
            detail = f"job {job.id!r} has GPUs reserved on which the calendar does not let it start now; leave it out"
            faults.append(Issue(code="reserved", pointer=f"/jobs/{k}/reservation", detail=detail))
    if faults:
        raise InputError("reservations of jobs go against the calendar", faults)
    nodes = tuple(
        replace(node, state=NodeState.DRAINED) if node.state is NodeState.UP and not kept[n] else node
        for n, node in enumerate(snapshot.cluster.nodes)
    )
    return Around(
        snapshot=snapshot,
        planned=checked_snapshot(replace(snapshot.cluster, nodes=nodes), tuple(jobs)),
        access=access,
        positions=tuple(positions),
        left_out=tuple(left_out),
        leaving=leaving,
        running=running,
    )


def _wanted(job: Job) -> int:
    """GPUs that a job wants at least."""
    if job.reservation is not None:
        return job.reservation.num_gpus
    if job.parallelism is not None and job.min_gpus == 1:
        return job.parallelism.num_gpus
    return sum(len(part.gpus) for part in job.current or ()) or job.min_gpus


def _allows(job: Job, gpu_type: str) -> bool:
    if job.reservation is not None:
        return job.reservation.gpu_type == gpu_type
    return job.gpu_types is None or gpu_type in job.gpu_types


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
        jobs = [job for job in asking if _allows(job, gpu_type)]
        positions = np.array(members, dtype=np.int64)
        masks = {access.class_of(job): access.usable(job)[positions] for job in jobs}
        if all(mask.all() for mask in masks.values()):
            chosen, classes = np.ones(positions.size, dtype=np.bool_), set(masks)
        else:
            sizes = np.array([snapshot.cluster.nodes[n].num_gpus for n in members])
            wanted: Counter[AccessClass] = Counter()
            for job in jobs:
                wanted[access.class_of(job)] += _wanted(job)
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


def _types_now(snapshot: Snapshot, running: Mapping[str, Slices], job: Job) -> set[str]:
    return {snapshot.cluster.nodes[n].gpu_type for n, _ in running[job.id]}


def _is_within(kept: Mask, running: Mapping[str, Slices], job: Job) -> bool:
    return all(kept[n] for n, _ in running[job.id])


def _with_types(snapshot: Snapshot, job: Job, types: Sequence[str]) -> Job:
    """The job on these of its types alone."""
    allowed = job.gpu_types or tuple(kind.name for kind in snapshot.cluster.gpu_types)
    left = tuple(name for name in allowed if name in types)
    return job if len(left) == len(allowed) or job.reservation is not None else replace(job, gpu_types=left)
