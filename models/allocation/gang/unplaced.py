"""Why a job does not start, with the numbers behind it and what would help.

Reasons
  gpu_type      none of the GPU types that the job allows has nodes that take work
  capacity      it does not fit the nodes that take work, even when all other jobs have ended
  reserved      the calendar keeps nodes from it that it would need, other jobs or not; says when it would be admitted
  quota         its queue has not so many GPUs left, or a job of the queue before it waits for that
  next          it is the next to start on its GPU types; says when that is at the latest, where it is known
  order         no backfill: it waits behind that job
  no_room       no room is left beside those that started before it, or, integer program, that bring more; or only
                on nodes of several groups (`groups`), and behind the next job nothing starts across these
  would_delay   room is there, but it would be in the way when the job that is next starts
  within_gap    integer program: room is left for it; the solve ended, within its gap or at a limit, before using it
"""

from collections.abc import Container, Mapping
from math import inf

from models.allocation.changes import num_gpus_of
from models.allocation.gang.admission import Reason, Waiting
from models.allocation.gang.admitted import Admitted
from models.allocation.gang.instance import GangInstance, JobClass
from models.allocation.gang.packing import Packing
from models.allocation.gang.placing import Layout
from models.allocation.gang.promise import Promise
from models.allocation.gang.queue_order import seconds_left
from models.allocation.gang.shapes import Shape
from models.kept_nodes import KeptNodes
from models.plan import UnplacedJob
from models.wording import counted
from models.workload import Job

# Reason, detail, counts, remedy.
_Words = tuple[str, str, Mapping[str, int], str]


def unplaced_jobs(instance: GangInstance, backfilled: Container[int], layout: Layout) -> tuple[UnplacedJob, ...]:
    """Explain the jobs that wait, beside the jobs at the positions `backfilled` and the final `layout`."""
    explainer = _Explainer(instance, layout)
    return tuple(
        explainer.explain(waiting) for waiting in instance.admission.waiting if waiting.position not in backfilled
    )


class _Explainer:
    def __init__(self, instance: GangInstance, layout: Layout) -> None:
        it = instance.admission
        self._it = it
        self._admitted = Admitted(it.snapshot, it.shapes, it.access)
        self._kept = KeptNodes(it.snapshot, it.access)
        self._whole = [it.groups.packing(room.index, layout.free, room.node_size) for room in it.rooms]
        self._open = {
            g: Packing((layout.free[node].bit_count() for node in ground.open_nodes), ground.node_size)
            for g, ground in instance.grounds.items()
        }
        self._class_of = {k: c for c, found in enumerate(instance.classes) for k in found.positions}
        self._classes = instance.classes
        kept = {it.jobs[position].id for position in it.promises}
        self._quota_left = dict(it.parameters.quotas)
        for job in it.jobs:
            if job.queue in self._quota_left:
                if it.runs(job):
                    self._quota_left[job.queue] -= num_gpus_of(it.taken.running[job.id])
                elif job.id in layout.given or job.id in kept:
                    self._quota_left[job.queue] -= job.min_gpus
        # What is said of one job holds for all of its class.
        self._said: dict[int, _Words] = {}

    def explain(self, waiting: Waiting) -> UnplacedJob:
        job = self._it.jobs[waiting.position]
        if waiting.reason is Reason.NEVER_FITS:
            reason, detail, counts, remedy = self._never_fits(job)
        elif waiting.reason is Reason.RESERVED:
            reason, detail, counts, remedy = self._reserved(job, self._admitted.in_s(job))
        elif waiting.reason is Reason.QUOTA:
            reason, detail, counts, remedy = self._over_quota(job, waiting.behind)
        elif waiting.reason is Reason.NEXT:
            reason, detail, counts, remedy = self._next(job, self._it.promises.get(waiting.position))
        elif not waiting.shapes:
            reason, detail, counts, remedy = self._behind(job, waiting)
        else:
            c = self._class_of[waiting.position]
            if c not in self._said:
                self._said[c] = self._left_out(job, self._classes[c], waiting)
            reason, detail, counts, remedy = self._said[c]
        return UnplacedJob(
            job_id=job.id,
            reason=reason,
            detail=detail,
            counts=counts,
            remedy=remedy,
            preempted=self._it.runs(job),
        )

    def _never_fits(self, job: Job) -> _Words:
        rooms = [room for room in self._it.rooms if job.gpu_types is None or room.name in job.gpu_types]
        alive = [room for room in rooms if room.node_size]
        if not alive:
            names = [room.name for room in rooms]
            return (
                "gpu_type",
                f"no node of the GPU types that it allows ({names}) takes work",
                {f"nodes.{name}": 0 for name in names},
                "allow another GPU type, or bring nodes back up",
            )
        counts = {"size": job.min_gpus}
        for room in alive:
            counts |= {f"gpus_per_node.{room.name}": room.node_size, f"whole_nodes.{room.name}": room.num_clean}
        return (
            "capacity",
            "does not fit the nodes that take work without outside work, even when all other jobs have ended",
            counts,
            "give it a smaller size, allow another GPU type, or bring nodes back up",
        )

    def _over_quota(self, job: Job, behind: int | None) -> _Words:
        queue = job.queue or ""
        quota, left = self._it.parameters.quotas[queue], self._quota_left[queue]
        counts = {"size": job.min_gpus, "quota": quota, "quota_left": max(0, left)}
        if behind is not None:
            first = self._it.jobs[behind].id
            return (
                "quota",
                f"waits behind job {first!r}, which is the next of queue {queue!r} and waits for its quota",
                counts,
                f"raise the quota of queue {queue!r}, or let it come before job {first!r}",
            )
        used = f"{counted(quota - left, 'GPU')} of its quota of {quota} are taken or kept for its next job"
        if job.min_gpus > quota:
            return "quota", f"queue {queue!r} may never have so many GPUs", counts, "raise the quota, or shrink the job"
        return (
            "quota",
            f"queue {queue!r} has too few GPUs left: {used}",
            counts,
            "raise the quota, or wait for its jobs",
        )

    def _reserved(self, job: Job, admitted_s: float) -> _Words:
        detail, counts, remedy = self._kept.explain(job, admitted_s)
        return "reserved", detail, {"size": job.min_gpus, **counts}, remedy

    def _next(self, job: Job, made: Promise | None) -> _Words:
        if made is None:
            # Whenever those who run have ended, too little time is left.
            return self._reserved(job, inf)
        counts = {"size": job.min_gpus, **self._room_counts(job, made.shape)}
        nodes = counted(made.shape.num_nodes, "node")
        name = self._it.rooms[made.shape.gpu_type].name
        if made.start_s == inf:
            return (
                "next",
                f"is the next to start; {nodes} of type {name!r} are kept for it until the jobs there have ended, "
                "and it is not known of all of them when",
                counts,
                "give remaining_s of the running jobs, or default_remaining_s",
            )
        return (
            "next",
            f"is the next to start, in {made.start_s:.0f} s at the latest, when jobs on {nodes} of type {name!r} have "
            "ended",
            {**counts, "starts_in_s": int(made.start_s)},
            self._more_room(job, made.shape),
        )

    def _behind(self, job: Job, waiting: Waiting) -> _Words:
        first = self._first(waiting)
        return (
            "order",
            f"waits behind job {first.id!r}{self._until(waiting)}; without backfill nothing starts before it",
            {"size": job.min_gpus},
            "plan with backfill, or let it come first",
        )

    def _left_out(self, job: Job, found: JobClass, waiting: Waiting) -> _Words:
        """A job that might have been backfilled."""
        counts: dict[str, int] = {"size": job.min_gpus}
        for shape in found.shapes:
            counts |= self._room_counts(job, shape)
        first = self._first(waiting)
        if any(self._open[shape.group].fits(shape.items) for shape in found.shapes):
            if found.quota is not None and found.size > self._quota_left[found.quota]:
                return self._over_quota(job, None)
            return (
                "within_gap",
                "room is left for it, but the solve ended before using it",
                counts,
                "solve with a smaller relative_gap or a longer time limit",
            )
        if any(self._whole[shape.gpu_type].fits(shape, (shape.group,)) for shape in found.shapes):
            left_s = seconds_left(job, self._it.parameters)
            lasts = "for an unknown time" if left_s == inf else f"for {left_s:.0f} s"
            return (
                "would_delay",
                f"runs {lasts}, and would be in the way of job {first.id!r}{self._until(waiting)}",
                counts,
                "give a shorter remaining_s, if that is true, or let it come first",
            )
        return "no_room", f"finds no room behind job {first.id!r}", counts, self._more_room(job, found.shapes[0])

    def _first(self, waiting: Waiting) -> Job:
        return self._it.jobs[waiting.position if waiting.behind is None else waiting.behind]

    def _until(self, waiting: Waiting) -> str:
        made = self._it.promises.get(waiting.position if waiting.behind is None else waiting.behind)
        return f", which starts in {made.start_s:.0f} s" if made is not None and made.start_s != inf else ""

    def _room_counts(self, job: Job, shape: Shape) -> dict[str, int]:
        left, name = self._left(job, shape), self._it.rooms[shape.gpu_type].name
        return {
            f"whole_nodes_needed.{name}": shape.num_whole,
            f"whole_nodes_free.{name}": left[-1],
            f"gpus_needed_on_a_node.{name}": shape.rest or shape.node_size,
            f"most_free_on_a_node.{name}": max((a for a, count in enumerate(left) if count), default=0),
        }

    def _left(self, job: Job, shape: Shape) -> list[int]:
        """Nodes that the job may use, by free GPUs."""
        return self._whole[shape.gpu_type].num_free(self._it.groups.open_to(job, shape.gpu_type))

    def _more_room(self, job: Job, shape: Shape) -> str:
        name = self._it.rooms[shape.gpu_type].name
        missing = shape.num_whole - self._left(job, shape)[-1]
        if missing > 0:
            return f"{counted(missing, 'more whole free node')} of type {name} would let it run"
        return f"a node of type {name} with {counted(shape.rest or shape.node_size, 'free GPU')} would let it run"
