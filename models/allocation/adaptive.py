"""Samples/s of jobs that say what they train, on every configuration, with the best 3D plan behind each.

A job runs its fastest plan on the GPUs that it gets (Arena section 3.5: "traverses relevant grids for the
best-performing one"), or that of the degrees that it keeps (`degrees`), trained in the fastest way that it leaves open.
One that runs a plan keeps it while it stays where it is, so that there its throughput is that of the plan it runs:
another one would cost a restart. A plan that runs although its performance model says that it cannot (its memory, say)
is kept too, with a warning. Across nodes, plans are made for powers of two of nodes only, but for degrees that are
kept; on a cluster of hundreds of nodes all others would take longer than they are worth. A configuration whose nodes
have but a share of the inter-node bandwidth between them, however they are chosen, is planned for with that share:
where groups of the plan find room inside units, it is faster than that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from models.allocation.degree_plans import degree_plans
from models.allocation.degrees import keeps_degrees
from models.configurations import ConfigurationSet
from models.parallel_plan import ParallelPlan
from models.parallelism.adaptive import adaptive_plans
from models.parallelism.binding import bind_plan
from models.parallelism.legality import plan_violations
from models.parallelism.results import PlanEstimate, Rejection, RejectionReason, how_close
from models.parallelism.training import trained
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.fabric import Fabric, fabric_of
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import performance_model
from models.plan import UnplacedJob
from models.transformer import JobModel
from models.wording import size_of
from models.workload import Job, NodeGpus, Snapshot
from stowplan.arrays import FloatArray, IntVector
from stowplan.errors import Issue, Severity
from stowplan.living import OfUnchanged
from topology.cluster import Cluster

V = TypeVar("V")
# Of plans that run: they stay the same round after round.
_speeds: OfUnchanged[ParallelPlan, float] = OfUnchanged()
_faults: OfUnchanged[ParallelPlan, Sequence[Issue]] = OfUnchanged()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdaptiveRows:
    """samples_per_s: float64 (J, C), 0 where the job has no plan, or no model. plans: (job, configuration) -> plan.

    unfit: job with a model and without any plan -> the candidate that comes closest. warnings: job that runs a plan
    which its performance model says cannot run -> what is wrong with it.
    """

    samples_per_s: FloatArray
    plans: Mapping[tuple[int, int], PlanEstimate]
    unfit: Mapping[int, Rejection]
    warnings: Mapping[int, Issue]


def adaptive_rows(
    snapshot: Snapshot, configurations: ConfigurationSet, current: IntVector, *, as_given: bool = True
) -> AdaptiveRows:
    """Plan all jobs with a model; `current` (J,): where running jobs may stay, -1 for none; `as_given`: those that keep
    their degrees have these."""
    samples_per_s = np.zeros((len(snapshot.jobs), len(configurations)))
    plans: dict[tuple[int, int], PlanEstimate] = {}
    unfit: dict[int, Rejection] = {}
    warnings: dict[int, Issue] = {}
    counts = _counts(snapshot.jobs, configurations)
    index = {
        (configurations.gpu_types[t], int(n)): c
        for c, (t, n) in enumerate(zip(configurations.type_index, configurations.num_gpus, strict=True))
    }
    fractions = {block: float(configurations.bandwidth_fraction[c]) for block, c in index.items()}
    for i, job in enumerate(snapshot.jobs):
        if job.model is None:
            continue
        if as_given and keeps_degrees(job):
            best, closest = degree_plans(job, snapshot.cluster, fractions)
        else:
            found = adaptive_plans(job.model, snapshot.cluster, counts, job.calibration, fractions, job.choices)
            rejections = (rejection for grid in found.grids for rejection in grid.rejections)
            best, closest = found.best, min(rejections, key=how_close, default=None)
        if not best and closest is not None:
            unfit[i] = closest
        for block, estimate in best.items():
            plans[i, index[block]] = estimate
            samples_per_s[i, index[block]] = estimate.throughput
        if job.parallel_plan is not None:
            same = job.model, snapshot.cluster, job.calibration
            if current[i] >= 0:
                samples_per_s[i, current[i]] = _of_running(job.parallel_plan, same, _speeds, _speed)
            if faults := _of_running(job.parallel_plan, same, _faults, plan_violations):
                warnings[i] = _not_understood(i, job.id, faults)
    return AdaptiveRows(samples_per_s=samples_per_s, plans=plans, unfit=unfit, warnings=warnings)


def unfit_job(job_id: str, closest: Rejection, *, preempted: bool) -> UnplacedJob:
    """Say of a job without any plan what comes closest, and how much memory that lacks."""
    counts = {}
    detail, remedy = f"{closest.candidate}: {closest.detail}", "change the model, its batch, or the bounds of the job"
    if closest.reason is RejectionReason.DEGREES:
        remedy = "give num_heads where it is missing, degrees that the model admits, or leave parallelism out"
    if closest.needed_bytes is not None and closest.usable_bytes is not None:
        detail = (
            f"its model fits nowhere; what comes closest, {closest.candidate}, needs at least "
            f"{size_of(closest.needed_bytes)} per GPU, of which {size_of(closest.usable_bytes)} are usable"
        )
        counts = {"needed_bytes": round(closest.needed_bytes), "usable_bytes": round(closest.usable_bytes)}
        remedy = "more or larger GPUs, or activation checkpointing"
    return UnplacedJob(
        job_id=job_id, reason=closest.reason.value, detail=detail, counts=counts, remedy=remedy, preempted=preempted
    )


class PlacedPlans:
    """Plans of jobs on GPUs of a cluster, and how fast they are there."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def on(
        self,
        job: Job,
        estimate: PlanEstimate | None,
        gpus: Sequence[NodeGpus],
        known: float,
        *,
        share: float,
        stays: bool,
    ) -> tuple[ParallelPlan | None, float]:
        """The plan that a job runs where it `stays`, else that of the estimate; and its samples/s on these GPUs.

        `known`: samples/s of the configuration, which hold where the model has nothing to say: there is no plan, it
        runs already, or the job has a performance. `share`: of the inter-node bandwidth, for which the estimate was
        made; nodes can have more between them than a class of placements asks for.
        """
        if stays and job.parallel_plan is not None:
            return job.parallel_plan, known
        if estimate is None:
            return None, known
        fabric = self._fabric
        is_apart = fabric.group_fraction(part.node for part in gpus) < 1.0
        near = sorted(gpus, key=lambda part: fabric.host(part.node).path) if is_apart else gpus
        plan = bind_plan(estimate.plan, near)
        if job.performance is not None or job.model is None:
            return plan, known
        if not is_apart and share == 1.0:
            return plan, estimate.throughput
        model = trained(job.model, plan.training)
        return plan, performance_model(model, self._cluster, job.calibration, fabric).throughput(plan)

    @cached_property
    def _fabric(self) -> Fabric:
        return fabric_of(self._cluster)


def _of_running(
    plan: ParallelPlan,
    same: tuple[JobModel, Cluster, Calibration | None],
    known: OfUnchanged[ParallelPlan, V],
    judge: Callable[[ParallelPlan, PerformanceModel], V],
) -> V:
    """What is known of a plan, or else what `judge` says of it and the model of its job."""
    found = known.get(plan, same)
    if found is None:
        model, cluster, calibration = same
        found = judge(plan, performance_model(trained(model, plan.training), cluster, calibration))
        known.put(plan, same, None, found)
    return found


def _speed(plan: ParallelPlan, model: PerformanceModel) -> float:
    return model.throughput(plan)


def _not_understood(index: int, job_id: str, faults: Sequence[Issue]) -> Issue:
    """Warn of a running plan that is said to be impossible: it runs, so that the model must be wrong."""
    return Issue(
        code="plan_not_understood",
        pointer=f"/jobs/{index}/parallel_plan",
        detail=f"job {job_id!r} runs a plan that its performance model calls impossible; where it stays, it keeps it, "
        f"at a throughput that may be wrong too: {faults[0].pointer.lstrip('/')} {faults[0].detail}",
        severity=Severity.WARNING,
    )


def _counts(jobs: Sequence[Job], configurations: ConfigurationSet) -> Mapping[str, Sequence[int]]:
    """Counts of each type up to the most GPUs that any job with a model may have: planners remember by all of them."""
    bounds = [np.inf if job.max_gpus is None else job.max_gpus for job in jobs if job.model is not None]
    nodes = configurations.num_nodes
    wanted = (configurations.num_gpus <= max(bounds, default=0)) & (nodes & (nodes - 1) == 0)
    counts = {
        name: configurations.num_gpus[wanted & (configurations.type_index == t)].tolist()
        for t, name in enumerate(configurations.gpu_types)
    }
    return {name: chosen for name, chosen in counts.items() if chosen}
