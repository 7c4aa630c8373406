"""Why a job gets nothing, with the numbers behind it and what would make it fit.

Reasons, in the order in which they are tried:
  gpu_type           none of the GPU types that the job allows has nodes
  no_configuration   its bounds (or rigid count), or the counts that are offered, contain no buddy block
  out_of_memory, ... its model has no plan on any buddy block: why the candidate that comes closest is none
  no_performance     it has no throughput on any buddy block within its bounds
  deadline           it cannot meet its deadline on any of them
  capacity           even alone it does not fit the GPUs that are free for the plan
  queue              heuristic: a job of a higher queue waits, which holds back all lower ones
  not_tried          heuristic: it was stopped before it came to this job
  blocked            heuristic: changing at most `search_depth` others does not make room for it
  outcompeted        integer program: it would fit alone; what the others got is worth more. Heuristic under Eq. 7: the
                     same, as far as at most `search_depth` changes of others go
  within_gap         GPUs are left for it; the solve ended, within its gap or at a limit, before using them
"""

import numpy as np

from models.allocation.adaptive import unfit_job
from models.allocation.arena.instance import ArenaInstance
from models.allocation.explanation import Explainer
from models.allocation.job_configurations import allowed_configurations
from models.allocation.work_left import samples_left
from models.plan import UnplacedJob
from models.wording import counted
from models.workload import Adaptivity, Job
from stowplan.arrays import IntVector, Mask


def unplaced_jobs(
    instance: ArenaInstance, waiting: IntVector, counts: IntVector, untried: Mask | None
) -> tuple[UnplacedJob, ...]:
    """Explain the jobs `waiting` (indices) beside a plan that takes each configuration `counts` (C,) times.

    `untried` (J,): jobs that Algorithm 1 came to no more; None for a plan of the integer program.
    """
    explainer = _Explainer(instance, waiting, counts, untried)
    return tuple(explainer.explain(int(i)) for i in waiting)


class _Explainer(Explainer):
    """Knows the plan, and what Algorithm 1 may do."""

    def __init__(self, instance: ArenaInstance, waiting: IntVector, counts: IntVector, untried: Mask | None) -> None:
        # Launched jobs are never left out: none is preempted.
        super().__init__(instance.configurations, running=())
        self._instance = instance
        self._untried = untried
        self._num_placed = int(counts.sum())
        self._missing_alone = instance.rows.missing_gpus(np.zeros_like(counts))
        self._missing = instance.rows.missing_gpus(counts)
        self._queue = instance.launch_queue
        queued = [int(i) for i in waiting if self._queue[i] > 0 and instance.utility.offered[i].any()]
        is_queued = untried is not None and queued
        self._head = min(queued, key=lambda i: self._queue[i]) if is_queued else None

    def explain(self, i: int) -> UnplacedJob:
        job, utility = self._instance.jobs[i], self._instance.utility
        allowed = allowed_configurations([job], self._instance.configurations)[0]
        if self._instance.parameters.counts is not None:
            allowed &= np.isin(self._instance.configurations.num_gpus, self._instance.parameters.counts)
        runnable = utility.runnable[i] & allowed
        if not allowed.any():
            return self._no_configuration(job)
        if not runnable.any():
            unfit = self._instance.throughputs.unfit.get(i)
            if unfit is not None:
                return unfit_job(job.id, unfit, preempted=job.id in self._instance.taken.running)
            return self._no_performance(i, job, allowed)
        if not (runnable & utility.in_time[i]).any():
            return self._too_late(i, job, runnable)
        if not utility.offered[i].any():
            detail = "does not fit what is free for this plan, even alone"
            return self.short(job, "capacity", runnable & utility.in_time[i], self._missing_alone, detail)
        return self._left_out(i, job)

    def _no_configuration(self, job: Job) -> UnplacedJob:
        valid = np.unique(self._instance.configurations.num_gpus[self.of_types(job)])
        if not valid.size:
            return self.no_nodes(job, "allow another GPU type, or bring nodes back up")
        upper = job.min_gpus if job.adaptivity is Adaptivity.RIGID else job.max_gpus
        counts = {"min_gpus": job.min_gpus, "largest_block": int(valid[-1])}
        offered = self._instance.parameters.counts
        return self.unplaced(
            job,
            reason="no_configuration",
            detail="no buddy block lies within its bounds" + ("" if offered is None else " and the counts offered"),
            counts=counts if upper is None else counts | {"max_gpus": upper},
            remedy=f"let it have one of the buddy blocks of {', '.join(map(str, valid))} GPUs",
        )

    def _no_performance(self, i: int, job: Job, allowed: Mask) -> UnplacedJob:
        known = np.flatnonzero(self._instance.throughputs.samples_per_s[i] > 0)
        labels = ", ".join(self._instance.configurations.label(int(c)) for c in known[:6])
        return self.unplaced(
            job,
            reason="no_performance",
            detail="it has no throughput on any buddy block within its bounds",
            counts={"blocks_within_bounds": int(allowed.sum()), "blocks_with_throughput": known.size},
            remedy=f"widen its bounds to what it can run on: {labels}"
            if known.size
            else "give throughputs for buddy blocks of this cluster, or a model that fits its memory",
        )

    def _too_late(self, i: int, job: Job, runnable: Mask) -> UnplacedJob:
        fastest = float(self._instance.throughputs.samples_per_s[i, runnable].max())
        needed_s = float(samples_left([job])[0]) / fastest
        return self.unplaced(
            job,
            reason="deadline",
            detail=f"it needs at least {needed_s:.0f} s and has {job.deadline_s:.0f} s",
            counts={"needed_s": int(np.ceil(needed_s)), "deadline_s": int(job.deadline_s or 0)},
            remedy=f"put the deadline off to {np.ceil(needed_s):.0f} s from now, or let it have more GPUs",
        )

    def _left_out(self, i: int, job: Job) -> UnplacedJob:
        """The job would fit alone."""
        instance = self._instance
        offered = instance.utility.offered[i]
        if self._head is not None and self._queue[i] > self._queue[self._head]:
            head, queue = instance.jobs[self._head], int(self._queue[self._head])
            return self.unplaced(
                job,
                reason="queue",
                detail=f"job {head.id!r} of queue {queue} waits and holds back queue {self._queue[i]}",
                counts={"queue": int(self._queue[i]), "blocked_queue": queue},
                remedy=f"make room for job {head.id!r}, or give this job priority {queue}",
            )
        if self._untried is not None and self._untried[i]:
            return self.unplaced(
                job,
                reason="not_tried",
                detail="the time was over before this job was tried",
                counts={"untried_jobs": int(self._untried.sum())},
                remedy="give a longer time limit",
            )
        if self._missing[offered].min() == 0:
            return self.within_gap(job, int((offered & (self._missing == 0)).sum()))
        if self._untried is None:
            detail = "would fit alone, but other jobs bring more on these GPUs"
            return self.short(job, "outcompeted", offered, self._missing, detail)
        if instance.is_min_max:
            detail = f"would fit alone, but the objective does not gain by {self._changes()} in its favour"
            return self.short(job, "outcompeted", offered, self._missing, detail)
        return self.short(job, "blocked", offered, self._missing, f"{self._changes()} does not make room for it")

    def _changes(self) -> str:
        """What Algorithm 1 may do to make room, with the jobs that there are."""
        depth, others = self._instance.parameters.search_depth, self._num_placed
        if not depth or not others:
            return "leaving every other job as it is"
        if others == 1:
            return "changing the only other job that runs"
        return f"changing {min(depth, others)} of the {counted(others, 'other job')} that run"
