"""Why a job gets nothing, with the numbers behind it and what would make it fit.

Reasons, in the order in which they are tried:
  gpu_type               none of the GPU types that the job allows has nodes
  no_configuration       its bounds (or rigid count) contain no valid configuration
  out_of_memory, ...     its model has no plan on any configuration: why the candidate that comes closest is none
  no_performance         its performance gives no goodput on any configuration within its bounds
  capacity               even alone it does not fit the GPUs that are free for the plan
  outcompeted            it would fit alone; what the others got is worth more
  queue_penalty_too_low  GPUs are left for it, but running it costs more than the penalty for leaving it out
  within_gap             GPUs are left for it; the solve ended, within its gap or at a limit, before using them
"""

import numpy as np

from models.allocation.adaptive import unfit_job
from models.allocation.explanation import Explainer
from models.allocation.job_configurations import allowed_configurations
from models.allocation.sia.instance import SiaInstance
from models.performance.goodput.matrix import evaluate
from models.plan import UnplacedJob
from models.workload import Adaptivity, Job
from solver.sense import Sense
from stowplan.arrays import IntVector, Mask


def unplaced_jobs(instance: SiaInstance, waiting: IntVector, counts: IntVector) -> tuple[UnplacedJob, ...]:
    """Explain the jobs `waiting` (indices) beside a plan that takes each configuration `counts` (C,) times."""
    allowed = allowed_configurations([instance.jobs[i] for i in waiting], instance.configurations)
    explainer = _Explainer(
        instance=instance,
        missing_alone=instance.rows.missing_gpus(np.zeros_like(counts)),
        missing=instance.rows.missing_gpus(counts),
    )
    return tuple(explainer.explain(int(i), row) for i, row in zip(waiting, allowed, strict=True))


class _Explainer(Explainer):
    """Knows the plan: `missing` and `missing_alone` (C,) are the GPUs short beside the plan and alone."""

    def __init__(self, *, instance: SiaInstance, missing_alone: IntVector, missing: IntVector) -> None:
        super().__init__(instance.configurations, instance.taken.running)
        self._instance = instance
        self._missing_alone = missing_alone
        self._missing = missing

    def explain(self, i: int, allowed: Mask) -> UnplacedJob:
        job = self._instance.jobs[i]
        runnable, offered = self._instance.utility.runnable[i], self._instance.utility.offered[i]
        if not allowed.any():
            return self._no_configuration(job)
        if not runnable.any():
            unfit = self._instance.unfit.get(i)
            if unfit is not None:
                return unfit_job(job.id, unfit, preempted=job.id in self._instance.taken.running)
            return self._no_performance(job, allowed)
        if not offered.any():
            return self.short(
                job, "capacity", runnable, self._missing_alone, "does not fit what is free for this plan, even alone"
            )
        if self._missing[offered].min() > 0:
            return self.short(
                job, "outcompeted", offered, self._missing, "would fit alone, but other jobs bring more on these GPUs"
            )
        return self._left_out(i, job, offered)

    def _no_configuration(self, job: Job) -> UnplacedJob:
        configurations = self._instance.configurations
        typed = self.of_types(job)
        if not typed.any():
            present = sorted({configurations.gpu_types[t] for t in configurations.type_index})
            return self.no_nodes(job, f"allow one of {present}" if present else "bring nodes back up")
        valid = np.unique(configurations.num_gpus[typed])
        below, above = valid[valid < job.min_gpus], valid[valid > job.min_gpus]
        nearest = [*below[-1:].tolist(), *above[:1].tolist()]
        counts = {"min_gpus": job.min_gpus, "max_configuration_gpus": int(valid[-1])}
        return self.unplaced(
            job,
            reason="no_configuration",
            detail=f"no valid configuration has {_bounds(job)} GPUs",
            counts=counts if job.max_gpus is None else counts | {"max_gpus": job.max_gpus},
            remedy=f"let it have one of the nearest valid GPU counts: {', '.join(map(str, nearest))}",
        )

    def _no_performance(self, job: Job, allowed: Mask) -> UnplacedJob:
        configurations = self._instance.configurations
        # The matrix may leave out what lies outside the bounds.
        known = np.flatnonzero(evaluate([job], configurations).goodput[0] > 0)
        labels = ", ".join(configurations.label(int(c)) for c in known[:6])
        return self.unplaced(
            job,
            reason="no_performance",
            detail="its performance gives no goodput on any configuration within its bounds",
            counts={"configurations_within_bounds": int(allowed.sum()), "configurations_with_goodput": known.size},
            remedy=f"widen its bounds to what it can run on: {labels}"
            if known.size
            else "give a performance that covers a valid configuration of this cluster",
        )

    def _left_out(self, i: int, job: Job, offered: Mask) -> UnplacedJob:
        """There is room beside the plan: leaving the job out is either cheaper, or an oversight of an early end."""
        fitting = np.flatnonzero(offered & (self._missing == 0))
        value, penalty = self._instance.utility.value[i, fitting], float(self._instance.penalty[i])
        label = self._instance.configurations.label(int(fitting[value.argmin()]))
        given = self._instance.parameters.queue_penalty
        scale = penalty / given if given else job.weight
        if self._instance.sense is Sense.MINIMIZE and value.min() >= penalty:
            return self.unplaced(
                job,
                reason="queue_penalty_too_low",
                detail=f"running it costs at least {value.min():.4g} ({label}), leaving it out {penalty:.4g}",
                counts={"fitting_configurations": int(fitting.size)},
                remedy=f"raise queue_penalty above {value.min() / scale:.4g}",
            )
        return self.within_gap(job, int(fitting.size))


def _bounds(job: Job) -> str:
    if job.adaptivity is Adaptivity.RIGID:
        return f"exactly {job.min_gpus}"
    return f"at least {job.min_gpus}" if job.max_gpus is None else f"{job.min_gpus} to {job.max_gpus}"
