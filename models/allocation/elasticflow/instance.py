"""One allocation problem as arrays: who may run on what, how fast, and until when."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.allocation.admission import rewards
from models.allocation.buddy_blocks import buddy_blocks
from models.allocation.elasticflow.parameters import ElasticFlowParameters
from models.allocation.elasticflow.slots import seconds_before, slot_ends
from models.allocation.job_configurations import allowed_configurations, current_configurations
from models.allocation.work_left import samples_left
from models.configurations import ConfigurationSet
from models.performance.goodput.matrix import evaluate
from models.performance.goodput.spec import ThroughputTable
from models.placement.occupancy import Occupancy, occupancy
from models.placement.placeability import PlaceabilityRows, free_rows
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElasticInstance:
    """J jobs, C buddy blocks and K slots.

    samples_per_s: float64 (J, C), 0 where the job may not run. offered: bool (J, C), where it can run and fits what is
    free for the plan, alone. gain: float64 (J, C), worth of having the block in the present slot, without a deadline.
    progress: float64 (J, C, K), share of the job's work that the block brings in all of a slot, as far as that is
    before its deadline, or for a job that has not begun a slot before it; of the present slot less the restart, which
    may be more than the slot. reward: float64 (J,), for meeting the deadline, 0 without. ends: float64 (K,), ends of
    the slots. current: int64 (J,), where a running job may stay, -1 for none. Bool (J,): wants has a deadline that it
    can meet, alone; begun runs, or has had GPUs; strict gets GPUs only with its deadline guaranteed; pinned keeps its
    GPUs.
    """

    snapshot: Snapshot
    parameters: ElasticFlowParameters
    configurations: ConfigurationSet
    taken: Occupancy
    rows: PlaceabilityRows
    samples_per_s: FloatMatrix
    offered: Mask
    gain: FloatMatrix
    progress: FloatMatrix
    reward: FloatVector
    ends: FloatVector
    current: IntVector
    wants: Mask
    begun: Mask
    strict: Mask
    pinned: Mask

    @property
    def jobs(self) -> Sequence[Job]:
        """Jobs in the order of the rows."""
        return self.snapshot.jobs


def elastic_instance(snapshot: Snapshot, parameters: ElasticFlowParameters) -> ElasticInstance:
    """Look up who may run where, and what it brings."""
    jobs, taken, blocks = snapshot.jobs, occupancy(snapshot), buddy_blocks(snapshot.cluster)
    rows = free_rows(snapshot.cluster, taken.free_masks, blocks)
    pinned = np.array([job.id in taken.pinned for job in jobs], dtype=np.bool_)
    runs = np.array([job.id in taken.running for job in jobs], dtype=np.bool_)
    begun = runs | np.array([job.attained_gpu_s > 0 for job in jobs], dtype=np.bool_)
    # A pinned job may say what nobody here asks for.
    tables = [job if isinstance(job.performance, ThroughputTable) else replace(job, performance=None) for job in jobs]
    samples_per_s = np.where(allowed_configurations(jobs, blocks), evaluate(tables, blocks).goodput, 0.0)
    offered = (samples_per_s > 0) & rows.fits_alone() & ~pinned[:, None]
    deadline_s = np.array([job.deadline_s or 0.0 for job in jobs])
    until_s = deadline_s - np.where(begun, 0.0, parameters.slot_s)
    has_deadline = (deadline_s > 0) & ~pinned
    best, work = np.where(offered, samples_per_s, 0.0).max(axis=1, initial=0.0), samples_left(jobs)
    wants = has_deadline & (best > 0) & (best * until_s >= work)
    # Who misses the deadline by less than a slot might, once begun, take what others were promised.
    is_close = has_deadline & (best > 0) & (best * deadline_s >= work) & (begun & wants).any()
    strict = (wants | is_close) & ~begun & (not parameters.best_effort)
    offered &= (wants | ~strict)[:, None]
    current = current_configurations(snapshot, blocks, taken)
    stays = np.arange(len(blocks)) == current[:, None]
    cost_s = np.array([job.restart_cost_s for job in jobs])
    restart_s = np.where(runs[:, None] & ~stays, cost_s[:, None], 0.0)
    gain = _gain(jobs, parameters, samples_per_s, restart_s)
    ends = slot_ends(until_s[wants], parameters.slot_s, parameters.max_slots)
    seconds = np.repeat(seconds_before(until_s, ends)[:, None, :], len(blocks), axis=1)
    seconds[:, :, 0] -= restart_s
    rate = np.divide(samples_per_s, work[:, None], out=np.zeros_like(gain), where=wants[:, None])
    weight = np.array([job.weight for job in jobs])
    return ElasticInstance(
        snapshot=snapshot,
        parameters=parameters,
        configurations=blocks,
        taken=taken,
        rows=rows,
        samples_per_s=samples_per_s,
        offered=offered,
        gain=gain,
        progress=rate[:, :, None] * seconds,
        reward=rewards(has_deadline, weight, float(weight.sum())),
        ends=ends,
        current=current,
        wants=wants,
        begun=begun,
        strict=strict,
        pinned=pinned,
    )


def _gain(
    jobs: Sequence[Job], parameters: ElasticFlowParameters, samples_per_s: FloatMatrix, restart_s: FloatMatrix
) -> FloatMatrix:
    """Weighted throughput (J, C) after the restart, in shares of the job's best one."""
    best = samples_per_s.max(axis=1, initial=0.0, keepdims=True)
    share = np.divide(samples_per_s, best, out=np.zeros_like(samples_per_s), where=best > 0)
    weight = np.array([job.weight for job in jobs])
    return np.asarray(weight[:, None] * np.maximum(0.0, 1.0 - restart_s / parameters.horizon_s) * share)
