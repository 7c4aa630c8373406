"""Does a plan keep the rules of ElasticFlow, and is its objective what it claims? Knows no solver and no program.

Beside the placement itself:

size       every planned job has a buddy block within its bounds on which its throughput is known
capacity   in no later slot more GPUs of a type are reserved than the plan may use, and no job is in two places
deadline   who is admitted does all of its work before its deadline (a slot before it, if it has not begun), with the
           GPUs of the plan in the present slot and with what is reserved later
promise    jobs that were promised their deadline are admitted
score      points of every admitted deadline, and weighted throughput of every planned job with GPUs
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from models.allocation.block_check import Shape, allows, kept_shape, node_sizes, point_rewards
from models.allocation.elasticflow.parameters import ElasticFlowParameters
from models.allocation.plan_check import (
    TOLERANCE,
    coverage_violations,
    num_usable_gpus,
    pinned_jobs,
    running_jobs,
    score_violations,
)
from models.configurations import ConfigurationSet
from models.performance.goodput.spec import ThroughputTable
from models.plan import JobAllocation, Plan
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix
from stowplan.errors import Issue


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """admitted: jobs whose deadline is guaranteed. later: job -> (slot, GPU type, GPUs, part of the slot). ends: of the
    slots, in seconds from now."""

    admitted: Set[str]
    later: Mapping[str, Sequence[tuple[int, str, int, float]]]
    ends: tuple[float, ...]


def elastic_violations(
    snapshot: Snapshot,
    parameters: ElasticFlowParameters,
    configurations: ConfigurationSet,
    samples_per_s: FloatMatrix,
    reserved: Reserved,
    promised: Set[str],
    plan: Plan,
    objective: float,
) -> list[Issue]:
    """Every rule that the plan breaks; pointers as in `placement_violations`.

    Parameters
    ----------
    samples_per_s
        Throughput (J, C) of the jobs on the blocks `configurations` (C), 0 where they cannot run.
    promised
        Jobs that were promised their deadline.
    """
    return _Check(snapshot, parameters, configurations, samples_per_s, reserved).violations(promised, plan, objective)


class _Check:
    def __init__(
        self,
        snapshot: Snapshot,
        parameters: ElasticFlowParameters,
        configurations: ConfigurationSet,
        samples_per_s: FloatMatrix,
        reserved: Reserved,
    ) -> None:
        self._snapshot, self._parameters, self._reserved = snapshot, parameters, reserved
        kinds = (configurations.gpu_types[t] for t in configurations.type_index.tolist())
        counts = zip(configurations.num_nodes.tolist(), configurations.num_gpus.tolist(), strict=True)
        blocks: list[Shape] = [(kind, *count) for kind, count in zip(kinds, counts, strict=True)]
        self._rows = {job.id: i for i, job in enumerate(snapshot.jobs)}
        # Samples/s by GPU type and GPUs, of what a job may get.
        self._speed: list[dict[tuple[str, int], float]] = [
            {
                (kind, num_gpus): speed
                for (kind, _, num_gpus), speed in zip(blocks, row, strict=True)
                if speed > 0 and allows(job, kind, num_gpus)
            }
            for job, row in zip(snapshot.jobs, samples_per_s.tolist(), strict=True)
        ]
        self._nodes = {node.id: node for node in snapshot.cluster.nodes}
        self._node_size, self._blocks = node_sizes(blocks), frozenset(blocks)
        self._running, self._pinned = running_jobs(snapshot).keys(), pinned_jobs(snapshot)

    def violations(self, promised: Set[str], plan: Plan, objective: float) -> list[Issue]:
        allocations = {item.job_id: item for item in plan.allocations if item.job_id not in self._pinned}
        allocations = {job_id: item for job_id, item in allocations.items() if job_id in self._rows}
        wrong = [
            Issue(
                code="promise_broken",
                pointer=f"/jobs/{self._rows[job_id]}/deadline_s",
                detail=f"the deadline of job {job_id!r}, which has begun, can be kept, and is not guaranteed any more",
            )
            for job_id in sorted(promised - self._reserved.admitted)
        ]
        return [
            *coverage_violations(self._snapshot, plan),
            *self._size_violations(plan),
            *wrong,
            *self._capacity_violations(),
            *self._deadline_violations(allocations),
            *self._score_violations(allocations, plan, objective),
        ]

    def _speed_on(self, job_id: str, gpu_type: str, num_gpus: int) -> float:
        """Samples/s on a block, 0 where the job may not run."""
        return self._speed[self._rows[job_id]].get((gpu_type, num_gpus), 0.0)

    def _size_violations(self, plan: Plan) -> Iterator[Issue]:
        for k, item in enumerate(plan.allocations):
            known = item.job_id in self._rows and item.job_id not in self._pinned
            if known and not self._speed_on(item.job_id, item.gpu_type, item.num_gpus) > 0:
                yield Issue(
                    code="not_runnable",
                    pointer=f"/allocations/{k}",
                    detail=f"job {item.job_id!r} has no known throughput on {item.num_gpus} GPUs of type "
                    f"{item.gpu_type!r}, or may not have these",
                )

    def _capacity_violations(self) -> Iterator[Issue]:
        """Later slots; the present one is the placement."""
        used: defaultdict[tuple[int, str], float] = defaultdict(float)
        busy: defaultdict[tuple[str, int], float] = defaultdict(float)
        for job_id, parts in self._reserved.later.items():
            for k, gpu_type, num_gpus, part in parts:
                used[k, gpu_type] += num_gpus * part
                busy[job_id, k] += part
        room = num_usable_gpus(self._snapshot, self._pinned)
        for (k, gpu_type), amount in used.items():
            if amount > room[gpu_type] * (1 + TOLERANCE) + TOLERANCE:
                yield Issue(
                    code="over_capacity",
                    pointer="/jobs",
                    detail=f"{amount:.6g} GPUs of type {gpu_type!r} are reserved in slot {k}; the plan may use "
                    f"{room[gpu_type]}",
                )
        for (job_id, k), part in busy.items():
            if part > 1 + TOLERANCE:
                yield Issue(
                    code="impossible_share",
                    pointer=f"/jobs/{self._rows[job_id]}",
                    detail=f"job {job_id!r} has GPUs for {part:.6g} times slot {k}",
                )

    def _deadline_violations(self, allocations: Mapping[str, JobAllocation]) -> Iterator[Issue]:
        for job_id in sorted(self._reserved.admitted):
            job = self._snapshot.jobs[self._rows[job_id]]
            work = (job.remaining_iterations or 0.0) * (_batch(job) or 0)
            done = self._done(job, allocations.get(job_id))
            if job.deadline_s is None or done < work * (1 - TOLERANCE):
                yield Issue(
                    code="deadline_not_kept",
                    pointer=f"/jobs/{self._rows[job_id]}/deadline_s",
                    detail=f"job {job_id!r} is admitted, and does {done:.6g} of {work:.6g} samples until its deadline",
                )

    def _done(self, job: Job, item: JobAllocation | None) -> float:
        """Samples until the deadline."""
        has_begun = job.id in self._running or job.attained_gpu_s > 0
        deadline_s = (job.deadline_s or 0.0) - (0.0 if has_begun else self._parameters.slot_s)
        ends = (0.0, *self._reserved.ends)

        def seconds(k: int) -> float:
            return max(0.0, min(ends[k + 1], deadline_s) - ends[k])

        done = 0.0
        if item is not None:
            speed = self._speed_on(job.id, item.gpu_type, item.num_gpus)
            done = speed * (seconds(0) - self._restart_s(job, item))
        return done + sum(
            self._speed_on(job.id, gpu_type, num_gpus) * seconds(k) * part
            for k, gpu_type, num_gpus, part in self._reserved.later.get(job.id, ())
        )

    def _score_violations(
        self, allocations: Mapping[str, JobAllocation], plan: Plan, objective: float
    ) -> Iterator[Issue]:
        jobs = self._snapshot.jobs
        expected = {("throughput", job_id): self._gain(item) for job_id, item in allocations.items()}
        due = {job.id: job.weight for job in jobs if job.deadline_s is not None and job.id not in self._pinned}
        points = point_rewards(due, math.fsum(job.weight for job in jobs))
        expected |= {("deadline_met", job_id): points.get(job_id, 0.0) for job_id in self._reserved.admitted}
        keys = [(term.term, term.job_id or "") for term in plan.score]
        wanted = "planned job with GPUs and guaranteed deadline"
        yield from score_violations(plan.score, keys, expected, objective, wanted=wanted)

    def _gain(self, item: JobAllocation) -> float:
        """Weighted throughput after the restart, in shares of the best one."""
        i = self._rows[item.job_id]
        job, best = self._snapshot.jobs[i], max(self._speed[i].values(), default=0.0)
        share = self._speed_on(job.id, item.gpu_type, item.num_gpus) / best if best else 0.0
        return job.weight * max(0.0, 1.0 - self._restart_s(job, item) / self._parameters.horizon_s) * share

    def _restart_s(self, job: Job, item: JobAllocation) -> float:
        """What a change of the block costs a job that runs."""
        if job.id not in self._running:
            return 0.0
        kept = kept_shape(job, self._nodes, self._node_size)
        stays = kept is not None and (kept[0], kept[2]) == (item.gpu_type, item.num_gpus)
        return 0.0 if stays and kept in self._blocks else job.restart_cost_s


def _batch(job: Job) -> int | None:
    return job.performance.batch_size if isinstance(job.performance, ThroughputTable) else None
