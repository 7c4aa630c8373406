"""One allocation problem as arrays: everything that the declared model, the extraction and tests read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.allocation.adaptive import AdaptiveRows, adaptive_rows
from models.allocation.job_configurations import allowed_in, current_configurations
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.sia.utility import Utilities, utilities
from models.clock import PhaseClock
from models.configurations import ConfigurationSet, enumerate_configurations
from models.parallelism.results import PlanEstimate, Rejection
from models.performance.goodput.listed import listed
from models.performance.goodput.matrix import GoodputMatrix
from models.performance.goodput.rounds import evaluate_round
from models.performance.goodput.spec import GoodputTable, ThroughputTable
from models.placement.occupancy import Occupancy, occupancy
from models.placement.placeability import PlaceabilityRows, free_rows
from models.roll import has_model, is_preemptible, reserves, roll_of
from models.workload import Job, Snapshot
from solver.sense import Sense
from stowplan.arrays import FloatVector, IntVector, Mask, pairs_in
from stowplan.errors import Issue
from stowplan.living import OfUnchanged
from topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SiaInstance:
    """J jobs and C configurations, with the P pairs that the plan may choose.

    pair_jobs, pair_configurations: int64 (P,), ordered by job, then configuration. pinned: indices of the jobs that
    keep their GPUs, planned: of all others, reserved: of those among them that must get what they reserved. penalty:
    weighted queue penalty, float64 (J,). plans: (job, configuration) -> 3D plan, of the jobs that have a model and no
    performance; unfit: those of them without any plan, and the candidate that comes closest; warnings: of the plans
    that they run.
    """

    snapshot: Snapshot
    parameters: SiaParameters
    configurations: ConfigurationSet
    matrix: GoodputMatrix
    taken: Occupancy
    rows: PlaceabilityRows
    utility: Utilities
    penalty: FloatVector
    pair_jobs: IntVector
    pair_configurations: IntVector
    pinned: IntVector
    planned: IntVector
    reserved: IntVector
    plans: Mapping[tuple[int, int], PlanEstimate]
    unfit: Mapping[int, Rejection]
    warnings: tuple[Issue, ...]

    @property
    def jobs(self) -> Sequence[Job]:
        """Jobs in the order of the rows."""
        return self.snapshot.jobs

    @property
    def sense(self) -> Sense:
        """Positive powers are maximised; negative ones and costs are minimised."""
        return objective_sense(self.parameters)

    @property
    def gain(self) -> FloatVector:
        """Change of the objective (P,) when a pair is chosen: its utility, and the penalty that is saved."""
        # As one vector: of elements by row and column it takes three times as long.
        value = self.utility.value.ravel()[self.pair_jobs * len(self.configurations) + self.pair_configurations]
        return np.asarray(value - self.sense.sign * self.penalty[self.pair_jobs])

    @property
    def constant(self) -> float:
        """Objective when no pair is chosen: every planned job waits, the pinned ones run."""
        waiting = self.sense.sign * float(self.penalty[self.planned].sum())
        return waiting + sum(self.pinned_score(int(i)) for i in self.pinned)

    def pinned_score(self, job: int) -> float:
        """Utility of a pinned job where it is; 0 where its shape is no configuration or its goodput is not known."""
        c = self.utility.current[job]
        return float(self.utility.value[job, c]) if c >= 0 else 0.0


def objective_sense(parameters: SiaParameters) -> Sense:
    """Direction of the objective (section 3.4)."""
    is_power = parameters.objective is SiaObjective.GOODPUT
    minimised = parameters.fairness_power < 0 if is_power else parameters.objective is SiaObjective.GIVEN_COSTS
    return Sense.MINIMIZE if minimised else Sense.MAXIMIZE


def sia_instance(
    snapshot: Snapshot, parameters: SiaParameters, clock: PhaseClock, configurations: ConfigurationSet | None = None
) -> SiaInstance:
    """Evaluate goodputs and utilities, and list the feasible pairs; of `sia_configurations` unless others are given,
    which may have those of several nodes once for each share of the bandwidth between nodes, the least first."""
    with clock.phase("performance"):
        if configurations is None:
            configurations = sia_configurations(snapshot)
        matrix = evaluate_round(snapshot, configurations, _wanted(snapshot, configurations))
        matrix, planned = _plan_models(snapshot, configurations, matrix)
    with clock.phase("build"):
        return instance_of(snapshot, parameters, configurations, matrix, planned)


# By the most GPUs of any job: what is found beside configurations is found again beside the same ones.
_known: OfUnchanged[Cluster, ConfigurationSet] = OfUnchanged()


def sia_configurations(snapshot: Snapshot) -> ConfigurationSet:
    """Those of the cluster that any job may have, has, or is promised."""
    cluster, most = snapshot.cluster, _most_gpus(snapshot)
    known = _known.get(cluster, (), most)
    if known is None:
        known = enumerate_configurations(cluster).up_to(most)
        _known.put(cluster, (), most, known)
    return known


def _plan_models(
    snapshot: Snapshot, configurations: ConfigurationSet, matrix: GoodputMatrix
) -> tuple[GoodputMatrix, AdaptiveRows | None]:
    """The matrix with the rows of jobs that have a model and no performance: throughput of the best plan, at the
    model's batch."""
    rows = [i for i in has_model(snapshot).nonzero()[0].tolist() if snapshot.jobs[i].performance is None]
    if not rows:
        return matrix, None
    current = current_configurations(snapshot, configurations, occupancy(snapshot))
    found = _each_shape_once(snapshot, configurations, current)
    batches = np.array([model.global_batch for i in rows if (model := snapshot.jobs[i].model)], dtype=np.int64)
    goodput, throughput, batch_size = matrix.goodput.copy(), matrix.throughput.copy(), matrix.batch_size.copy()
    goodput[rows] = throughput[rows] = found.samples_per_s[rows]
    batch_size[rows] = np.where(goodput[rows] > 0, batches[:, None], 0)
    planned = AdaptiveRows(
        samples_per_s=found.samples_per_s,
        plans={(i, c): estimate for (i, c), estimate in found.plans.items() if i in rows},
        unfit={i: closest for i, closest in found.unfit.items() if i in rows},
        warnings={i: issue for i, issue in found.warnings.items() if i in rows},
    )
    return replace(matrix, goodput=goodput, throughput=throughput, batch_size=batch_size), planned


def _each_shape_once(snapshot: Snapshot, configurations: ConfigurationSet, current: IntVector) -> AdaptiveRows:
    """Plans of all jobs on all configurations; planners know each count of GPUs once."""
    layers = list(configurations.layers())
    if len(layers) == 1:
        return adaptive_rows(snapshot, configurations, current)
    parts = []
    for layer in layers:
        position = np.full(len(configurations) + 1, -1, dtype=np.int64)
        position[layer] = np.arange(layer.size)
        is_in = np.zeros(len(configurations), dtype=np.bool_)
        is_in[layer] = True
        parts.append(adaptive_rows(snapshot, configurations.subset(is_in), position[current]))
    samples_per_s = np.zeros((len(snapshot.jobs), len(configurations)))
    for layer, part in zip(layers, parts, strict=True):
        samples_per_s[:, layer] = part.samples_per_s
    return AdaptiveRows(
        samples_per_s=samples_per_s,
        plans={
            (i, int(layer[c])): estimate
            for layer, part in zip(layers, parts, strict=True)
            for (i, c), estimate in part.plans.items()
        },
        unfit=parts[0].unfit,
        warnings=parts[0].warnings,
    )


def _wanted(snapshot: Snapshot, configurations: ConfigurationSet) -> Mask:
    """Pairs (J, C) that can matter: those within the job's bounds, and all of a job that may be pinned."""
    allowed, may_move = allowed_in(snapshot, configurations), is_preemptible(snapshot)
    return allowed if may_move.all() else np.asarray(allowed | ~may_move[:, None])


def _most_gpus(snapshot: Snapshot) -> int:
    """The most GPUs that any job may have, has, or is promised: larger configurations need no evaluation."""
    cluster, jobs = snapshot.cluster, snapshot.jobs

    def most(rows: list[int]) -> Iterator[int]:
        all_gpus = cluster.num_gpus
        return (_most_gpus_of(jobs[k], all_gpus) for k in rows)

    return int(roll_of(snapshot).each("most gpus", np.int64, most, same=(cluster,)).max(initial=0))


def _most_gpus_of(job: Job, all_gpus: int) -> int:
    running = sum(len(slice_.gpus) for slice_ in job.current) if job.current else 0
    promised = job.reservation.num_gpus if job.reservation is not None else 0
    most = job.max_gpus or all_gpus
    if isinstance(job.performance, ThroughputTable | GoodputTable):
        # A job whose table lies below its bounds keeps all configurations, to be told what is missing.
        most_listed = listed(job.performance).layout.most_gpus
        most = min(most, most_listed) if most_listed >= job.min_gpus else most
    return max(most, running, promised)


def instance_of(
    snapshot: Snapshot,
    parameters: SiaParameters,
    configurations: ConfigurationSet,
    matrix: GoodputMatrix,
    planned: AdaptiveRows | None = None,
) -> SiaInstance:
    """Build the instance from goodputs that are known."""
    taken = occupancy(snapshot)
    rows = free_rows(snapshot.cluster, taken.free_masks, configurations)
    utility = utilities(snapshot, parameters, configurations, matrix.goodput, taken, rows.fits_alone())
    pair_jobs, pair_configurations = pairs_in(utility.offered)
    is_pinned = taken.is_pinned(snapshot.jobs)
    is_planned = ~is_pinned
    return SiaInstance(
        snapshot=snapshot,
        parameters=parameters,
        configurations=configurations,
        matrix=matrix,
        taken=taken,
        rows=rows,
        utility=utility,
        penalty=utility.penalty,
        pair_jobs=pair_jobs,
        pair_configurations=pair_configurations,
        pinned=is_pinned.nonzero()[0],
        planned=is_planned.nonzero()[0],
        reserved=(reserves(snapshot) & is_planned).nonzero()[0],
        plans={} if planned is None else planned.plans,
        unfit={} if planned is None else planned.unfit,
        warnings=() if planned is None else tuple(planned.warnings.values()),
    )
