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

from collections.abc import Mapping

import numpy as np

from models.allocation.adaptive import unfit_job
from models.allocation.job_configurations import allowed_configurations
from models.allocation.shortage import shortage
from models.allocation.sia.instance import SiaInstance
from models.configurations import ConfigurationSet
from models.performance.goodput.matrix import evaluate
from models.plan import UnplacedJob
from models.workload import Adaptivity, Job
from solver.problem import Sense
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


class _Explainer:
    """Explains one job at a time; `missing` and `missing_alone` (C,) are the GPUs short beside the plan and alone."""

    def __init__(self, *, instance: SiaInstance, missing_alone: IntVector, missing: IntVector) -> None:
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
            return self._short(
                job, "capacity", runnable, self._missing_alone, "does not fit what is free for this plan, even alone"
            )
        if self._missing[offered].min() > 0:
            return self._short(
                job, "outcompeted", offered, self._missing, "would fit alone, but other jobs bring more on these GPUs"
            )
        return self._left_out(i, job, offered)

    def _no_configuration(self, job: Job) -> UnplacedJob:
        configurations = self._instance.configurations
        typed = _of_types(job, configurations)
        if not typed.any():
            types = list(configurations.gpu_types if job.gpu_types is None else job.gpu_types)
            present = sorted({configurations.gpu_types[t] for t in configurations.type_index})
            return self._unplaced(
                job,
                reason="gpu_type",
                detail=f"all nodes of the GPU types that it allows ({types}) are missing or down",
                counts={f"nodes.{name}": 0 for name in types},
                remedy=f"allow one of {present}" if present else "bring nodes back up",
            )
        valid = np.unique(configurations.num_gpus[typed])
        below, above = valid[valid < job.min_gpus], valid[valid > job.min_gpus]
        nearest = [*below[-1:].tolist(), *above[:1].tolist()]
        counts = {"min_gpus": job.min_gpus, "max_configuration_gpus": int(valid[-1])}
        return self._unplaced(
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
        return self._unplaced(
            job,
            reason="no_performance",
            detail="its performance gives no goodput on any configuration within its bounds",
            counts={"configurations_within_bounds": int(allowed.sum()), "configurations_with_goodput": known.size},
            remedy=f"widen its bounds to what it can run on: {labels}"
            if known.size
            else "give a performance that covers a valid configuration of this cluster",
        )

    def _short(self, job: Job, reason: str, among: Mask, missing: IntVector, detail: str) -> UnplacedJob:
        """A job that lacks GPUs on each configuration `among`: name the smallest lack per type, and the least."""
        counts, remedy = shortage(self._instance.configurations, among, missing)
        return self._unplaced(job, reason=reason, detail=detail, counts=counts, remedy=remedy)

    def _left_out(self, i: int, job: Job, offered: Mask) -> UnplacedJob:
        """There is room beside the plan: leaving the job out is either cheaper, or an oversight of an early end."""
        fitting = np.flatnonzero(offered & (self._missing == 0))
        value, penalty = self._instance.utility.value[i, fitting], float(self._instance.penalty[i])
        label = self._instance.configurations.label(int(fitting[value.argmin()]))
        counts = {"fitting_configurations": int(fitting.size)}
        if self._instance.sense is Sense.MINIMIZE and value.min() >= penalty:
            return self._unplaced(
                job,
                reason="queue_penalty_too_low",
                detail=f"running it costs at least {value.min():.4g} ({label}), leaving it out {penalty:.4g}",
                counts=counts,
                remedy=f"raise queue_penalty above {value.min() / job.weight:.4g}",
            )
        return self._unplaced(
            job,
            reason="within_gap",
            detail="GPUs are left for it, but the solve ended before using them",
            counts=counts,
            remedy="solve with a smaller relative_gap or a longer time limit",
        )

    def _unplaced(self, job: Job, *, reason: str, detail: str, counts: Mapping[str, int], remedy: str) -> UnplacedJob:
        return UnplacedJob(
            job_id=job.id,
            reason=reason,
            detail=detail,
            counts=counts,
            remedy=remedy,
            preempted=job.id in self._instance.taken.running,
        )


def _of_types(job: Job, configurations: ConfigurationSet) -> Mask:
    """Configurations (C,) of the GPU types that the job allows."""
    names = [job.gpu_types is None or name in job.gpu_types for name in configurations.gpu_types]
    return np.asarray(np.array(names, dtype=np.bool_)[configurations.type_index])


def _bounds(job: Job) -> str:
    if job.adaptivity is Adaptivity.RIGID:
        return f"exactly {job.min_gpus}"
    return f"at least {job.min_gpus}" if job.max_gpus is None else f"{job.min_gpus} to {job.max_gpus}"
