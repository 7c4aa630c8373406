"""One allocation problem as arrays: everything that both methods, the extraction and tests read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.allocation.arena.parameters import ArenaObjective, ArenaParameters
from models.allocation.arena.throughput import Throughputs, throughputs
from models.allocation.arena.utility import Utilities, utilities
from models.allocation.buddy_blocks import buddy_blocks
from models.allocation.job_configurations import current_configurations
from models.clock import PhaseClock
from models.configurations import ConfigurationSet
from models.placement.occupancy import Occupancy, occupancy
from models.placement.placeability import PlaceabilityRows, free_rows
from models.workload import Job, Snapshot
from solver.sense import Sense
from stowplan.arrays import FloatVector, IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ArenaInstance:
    """J jobs and C buddy blocks, with the P pairs that the plan may choose.

    pair_jobs, pair_configurations: int64 (P,), ordered by job, then configuration. Bool (J,): pinned keep their GPUs;
    kept are those of them that could only stay as they are, and not preemptible in this snapshot for that; launched
    run and must go on; reserved get what they reserved; required are the last two. counted: planned jobs with a pair,
    or required to have one; the others cannot be helped by this plan and are no part of Eq. 7.
    """

    snapshot: Snapshot
    parameters: ArenaParameters
    configurations: ConfigurationSet
    throughputs: Throughputs
    taken: Occupancy
    rows: PlaceabilityRows
    utility: Utilities
    pair_jobs: IntVector
    pair_configurations: IntVector
    pinned: Mask
    kept: Mask
    launched: Mask
    reserved: Mask

    @property
    def jobs(self) -> Sequence[Job]:
        """Jobs in the order of the rows."""
        return self.snapshot.jobs

    @property
    def is_min_max(self) -> bool:
        """Whether the objective is Eq. 7."""
        return self.parameters.objective is ArenaObjective.FINISH_TIME_FAIRNESS

    @property
    def sense(self) -> Sense:
        """Throughput is maximised, finish times are minimised."""
        return Sense.MINIMIZE if self.is_min_max else Sense.MAXIMIZE

    @property
    def required(self) -> Mask:
        """Jobs (J,) that must get something."""
        return self.launched | self.reserved

    @property
    def counted(self) -> Mask:
        """Jobs (J,) that the plan decides about."""
        has_pair = np.zeros(len(self.jobs), dtype=np.bool_)
        has_pair[self.pair_jobs] = True
        return has_pair | self.required

    @property
    def launch_queue(self) -> IntVector:
        """Queue (J,) in which Algorithm 1 launches a job; 0 where the objective, not a queue, says who comes first:
        jobs with points to earn, and all jobs under Eq. 7."""
        return np.where((self.utility.reward > 0) | self.is_min_max, 0, self.utility.queue)

    @property
    def pair_values(self) -> FloatVector:
        """Gain or cost (P,) of every pair."""
        return np.asarray(self.utility.value[self.pair_jobs, self.pair_configurations])

    @property
    def mean_share(self) -> float:
        """What a unit of one job's cost adds to the objective of Eq. 7 by way of the mean."""
        return self.parameters.mean_weight / max(1, int(self.counted.sum()))

    def pinned_score(self, job: int) -> float:
        """Throughput worth of a pinned job; 0 where it is not known, and under Eq. 7, which only sees decisions."""
        c = self.utility.current[job]
        return 0.0 if self.is_min_max or c < 0 else float(self.utility.value[job, c])


def arena_instance(snapshot: Snapshot, parameters: ArenaParameters, clock: PhaseClock) -> ArenaInstance:
    """Evaluate throughputs and utilities, and list the pairs. Launched jobs without any pair are pinned.

    Raises
    ------
    InputError
        When a worth is not finite or too large.
    """
    with clock.phase("performance"):
        configurations = buddy_blocks(snapshot.cluster)
        current = current_configurations(snapshot, configurations, occupancy(snapshot))
        known = throughputs(snapshot, configurations, current)
    with clock.phase("build"):
        instance = _instance(snapshot, parameters, configurations, known)
        while (stranded := _stranded(instance)).size:
            jobs = list(instance.jobs)
            for i in stranded.tolist():
                jobs[i] = replace(jobs[i], preemptible=False)
            pinned = replace(snapshot, jobs=tuple(jobs))
            # Fewer GPUs are free now, so that others may be left without a pair.
            instance = _instance(pinned, parameters, configurations, known)
        kept = [a.preemptible and not b.preemptible for a, b in zip(snapshot.jobs, instance.jobs, strict=True)]
        return replace(instance, kept=np.array(kept, dtype=np.bool_))


def _stranded(instance: ArenaInstance) -> IntVector:
    """Launched jobs (indices) that may be given nothing: they can only stay as they are."""
    return np.flatnonzero(instance.launched & ~instance.reserved & ~instance.utility.offered.any(axis=1))


def _instance(
    snapshot: Snapshot, parameters: ArenaParameters, configurations: ConfigurationSet, known: Throughputs
) -> ArenaInstance:
    taken = occupancy(snapshot)
    rows = free_rows(snapshot.cluster, taken.free_masks, configurations)
    utility = utilities(snapshot, parameters, configurations, known.samples_per_s, taken, rows.fits_alone())
    pair_jobs, pair_configurations = np.nonzero(utility.offered)
    pinned = _mask(job.id in taken.pinned for job in snapshot.jobs)
    return ArenaInstance(
        snapshot=snapshot,
        parameters=parameters,
        configurations=configurations,
        throughputs=known,
        taken=taken,
        rows=rows,
        utility=utility,
        pair_jobs=pair_jobs,
        pair_configurations=pair_configurations,
        pinned=pinned,
        kept=np.zeros_like(pinned),
        launched=_mask(job.id in taken.running for job in snapshot.jobs) & ~pinned,
        reserved=_mask(job.reservation is not None for job in snapshot.jobs) & ~pinned,
    )


def _mask(values: Iterable[bool]) -> Mask:
    return np.fromiter(values, dtype=np.bool_)
