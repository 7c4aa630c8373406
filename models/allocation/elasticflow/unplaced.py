"""Why a job gets nothing in the present slot, whose deadline is not guaranteed, and what would help.

Reasons, in the order in which they are tried:
  gpu_type          none of the GPU types that the job allows has nodes
  no_configuration  no buddy block is within its bounds
  no_performance    its table has no throughput on any block that it may have
  capacity          even alone it does not fit the GPUs that are free for the plan
  reserved_later    its deadline is guaranteed: it has its GPUs in later slots
  not_admitted      its deadline cannot be guaranteed, and it has not begun
  outcompeted       it would fit alone; guarantees, and who gains more of the rest, come first
  within_gap        GPUs are left for it; the solve ended, within its gap or at a limit, before using them
"""

from collections.abc import Iterator

import numpy as np

from models.allocation.elasticflow.instance import ElasticInstance
from models.allocation.explanation import Explainer
from models.allocation.job_configurations import allowed_configurations
from models.plan import UnplacedJob
from models.wording import counted
from stowplan.arrays import IntVector, Mask
from stowplan.errors import Issue, Severity


def unplaced_jobs(
    instance: ElasticInstance, now: IntVector, admitted: Mask, counts: IntVector
) -> tuple[UnplacedJob, ...]:
    """Explain the jobs that `now` (J,) leaves out, beside a plan that takes each configuration `counts` (C,) times."""
    explainer = _Explainer(instance, counts, int(admitted.sum()))
    waiting = np.flatnonzero((now < 0) & ~instance.pinned)
    return tuple(explainer.explain(i, is_admitted=bool(admitted[i])) for i in waiting.tolist())


def deadline_warnings(instance: ElasticInstance, admitted: Mask) -> Iterator[Issue]:
    """Jobs whose deadline is not guaranteed."""
    for i, job in enumerate(instance.jobs):
        if job.deadline_s is None or admitted[i] or instance.pinned[i]:
            continue
        why = "with all that is free for it" if not instance.wants[i] else "beside the jobs that were admitted before"
        yield Issue(
            code="deadline_not_guaranteed",
            pointer=f"/jobs/{i}/deadline_s",
            detail=f"job {job.id!r} cannot finish within {job.deadline_s:g} s {why}; "
            + ("it is not admitted" if instance.strict[i] else "it has what is left"),
            severity=Severity.WARNING,
        )


class _Explainer(Explainer):
    def __init__(self, instance: ElasticInstance, counts: IntVector, num_admitted: int) -> None:
        super().__init__(instance.configurations, instance.taken.running)
        self._instance = instance
        self._num_admitted = num_admitted
        self._allowed = allowed_configurations(instance.jobs, instance.configurations)
        self._missing_alone = instance.rows.missing_gpus(np.zeros_like(counts))
        self._missing = instance.rows.missing_gpus(counts)

    def explain(self, i: int, *, is_admitted: bool) -> UnplacedJob:
        it, job = self._instance, self._instance.jobs[i]
        if not self.of_types(job).any():
            return self.no_nodes(job, "allow a GPU type that has nodes, or bring nodes back up")
        runnable = it.samples_per_s[i] > 0
        if not runnable.any():
            return self._not_runnable(i)
        if not (runnable & (self._missing_alone == 0)).any():
            detail = "does not fit what is free for this plan, even alone"
            return self.short(job, "capacity", runnable, self._missing_alone, detail)
        if is_admitted:
            return self.unplaced(
                job,
                reason="reserved_later",
                detail=f"GPUs are reserved for it in later slots, with which it ends within {job.deadline_s:g} s",
                counts={"slots": it.ends.size},
                remedy="ask again when the slot ends",
            )
        if it.strict[i]:
            return self.unplaced(
                job,
                reason="not_admitted",
                detail=f"its deadline in {job.deadline_s:g} s cannot be guaranteed beside what was admitted before",
                counts={"admitted": self._num_admitted},
                remedy="give it a later deadline or more GPUs, or plan with best_effort",
            )
        offered = it.offered[i]
        if self._missing[offered].min() > 0:
            detail = "jobs with guaranteed deadlines, and those that gain more by the GPUs that these leave, come first"
            return self.short(job, "outcompeted", offered, self._missing, detail)
        return self.within_gap(job, int((offered & (self._missing == 0)).sum()))

    def _not_runnable(self, i: int) -> UnplacedJob:
        job, allowed = self._instance.jobs[i], self._allowed[i]
        if not allowed.any():
            return self.unplaced(
                job,
                reason="no_configuration",
                detail="no buddy block (2^k GPUs of a node, or 2^k whole nodes) is within its bounds",
                counts={"min_gpus": job.min_gpus},
                remedy="widen min_gpus and max_gpus to a power of two, or to whole nodes",
            )
        return self.unplaced(
            job,
            reason="no_performance",
            detail=f"its table has no throughput on the {counted(int(allowed.sum()), 'block')} within its bounds",
            counts={"min_gpus": job.min_gpus},
            remedy="give its throughput on a number of GPUs that is a power of two within its bounds",
        )
