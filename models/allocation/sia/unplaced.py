"""Why a job gets nothing, with the numbers behind it and what would make it fit.

Reasons, in the order in which they are tried:
  gpu_type               none of the GPU types that the job allows has nodes
  no_configuration       its bounds (or rigid count) contain no valid configuration
  out_of_memory, ...     its model has no plan on any configuration: why the candidate that comes closest is none
  no_plan                its model has no plan that was looked for on any configuration within its bounds
  no_performance         its performance gives no goodput on any configuration within its bounds
  capacity               even alone it does not fit the GPUs that are free for the plan
  outcompeted            it would fit alone; what the others got is worth more
  queue_penalty_too_low  GPUs are left for it, but running it costs more than the penalty for leaving it out
  within_gap             GPUs are left for it; the solve ended, within its gap or at a limit, before using them

Where there is no plan at all:
  overbooked             what jobs reserve is more than is free
"""

import numpy as np

from models.allocation.adaptive import unfit_job
from models.allocation.explanation import Explainer
from models.allocation.job_configurations import allowed_configurations
from models.allocation.sia.instance import SiaInstance
from models.performance.goodput.matrix import evaluate
from models.plan import UnplacedJob
from models.wording import counted
from models.workload import Adaptivity, Job
from solver.sense import Sense
from stowplan.arrays import IntVector, Mask

# Kinds of rows.
_WHERE = {"capacity": "", "blocks": " in blocks on one node", "whole_nodes": " as whole nodes"}


def unplaced_jobs(instance: SiaInstance, waiting: IntVector, counts: IntVector) -> tuple[UnplacedJob, ...]:
    """Explain the jobs `waiting` (indices) beside a plan that takes each configuration `counts` (C,) times."""
    if not waiting.size:
        return ()
    allowed = allowed_configurations([instance.jobs[i] for i in waiting], instance.configurations)
    explainer = _Explainer(
        instance=instance,
        missing_alone=instance.rows.missing_gpus(np.zeros_like(counts)),
        missing=instance.rows.missing_gpus(counts),
    )
    return tuple(explainer.explain(int(i), row) for i, row in zip(waiting, allowed, strict=True))


def overbooked(instance: SiaInstance) -> tuple[UnplacedJob, ...]:
    """The jobs that reserve more than is free, by the first row (`models.placement.placeability`) that they break."""
    rows, configurations = instance.rows, instance.configurations
    is_reserved = np.isin(instance.pair_jobs, instance.reserved)
    jobs, reserved = instance.pair_jobs[is_reserved], instance.pair_configurations[is_reserved]
    needed = rows.coefficients[:, reserved]
    broken = np.flatnonzero(needed.sum(axis=1) > rows.limits)
    if not broken.size:
        return ()
    k = broken[0]
    behind = needed[k] > 0
    kind = configurations.gpu_types[configurations.type_index[reserved[behind][0]]]
    wanted, free = (int(units * rows.gpus_per_unit[k]) for units in (needed[k].sum(), rows.limits[k]))
    where = _WHERE[rows.names[k].partition("[")[0]]
    return tuple(
        UnplacedJob(
            job_id=instance.jobs[i].id,
            reason="overbooked",
            detail=f"reserves {counted(num_gpus, f'{kind} GPU')}; together reservations take {wanted}{where}, "
            f"and {free} are free",
            counts={f"reserved_gpus.{kind}": wanted, f"free_gpus.{kind}": free},
            remedy=f"lower the reservations of {kind} by {counted(wanted - free, 'GPU')}, or free as many{where}",
            preempted=False,
        )
        for i, num_gpus in zip(jobs[behind], configurations.num_gpus[reserved[behind]].tolist(), strict=True)
    )


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
            return self._no_plan(job) if job.performance is None else self._no_performance(job, allowed)
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

    def _no_plan(self, job: Job) -> UnplacedJob:
        """There are plans of other configurations, or none of these was looked at (`adaptive`)."""
        degrees, counts = job.parallelism, {"min_gpus": job.min_gpus}
        detail = (
            f"its model has no plan on {_bounds(job)} GPUs; across nodes, plans are made for powers of two of nodes, "
            "or for a parallelism of as many GPUs as min_gpus and max_gpus"
        )
        if degrees is not None:
            detail += f", and its own takes {degrees.num_gpus}"
            counts["parallelism_gpus"] = degrees.num_gpus
        remedy = "give a parallelism of as many GPUs, or bounds that have a power of two of nodes"
        return self.unplaced(job, reason="no_plan", detail=detail, counts=counts, remedy=remedy)

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
    if job.adaptivity is Adaptivity.RIGID or job.max_gpus == job.min_gpus:
        return f"exactly {job.min_gpus}"
    return f"at least {job.min_gpus}" if job.max_gpus is None else f"{job.min_gpus} to {job.max_gpus}"
