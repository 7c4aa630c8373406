"""Jobs of known applications: each trains as fast as a table says of the GPUs that it has.

Work is iterations. Whoever plans with models is told the table, and may give a job fewer or more GPUs than it asked for
(`elasticity`), if it resizes jobs at all; whoever plans by sizes alone is told what it asked for. Where the table lacks
that, the count of the same GPU type that comes nearest stands for it, or else of any type.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from executor.control.backend import Measured
from executor.simulation.truth import Seen, Segment, TruthParameters, noise_factor
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.plan import JobAllocation
from models.workload import Job
from stowplan.errors import InputError
from topology.cluster import Cluster
from workloads.throughputs import Throughput
from workloads.trace import Trace, TraceJob

_Application = tuple[str | None, int | None]
_Shape = tuple[str, int]
# Of all iterations; what is left of a job is above 0.
_LEAST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Speeds:
    """Samples per second on one count of GPUs of one type: by nodes, fewest first."""

    num_nodes: tuple[int, ...]
    samples_per_s: tuple[float, ...]

    def on(self, num_nodes: int) -> float:
        """On so many nodes, or on the next larger number that is known, or on the largest."""
        k = min(bisect_left(self.num_nodes, num_nodes), len(self.num_nodes) - 1)
        return self.samples_per_s[k]


_Table = Mapping[_Shape, _Speeds]


class TabledThroughputs:
    """A `Truth` from a table.

    Parameters
    ----------
    trace
        Jobs with iterations, an application and a batch that are in the table (`covers`).
    elastic
        Whether policies are told the table; else what each job asked for.
    resizes
        Whether they may give it other numbers of GPUs than it asked for.
    """

    def __init__(
        self,
        trace: Trace,
        throughputs: Iterable[Throughput],
        cluster: Cluster,
        parameters: TruthParameters,
        seed: int,
        *,
        elastic: bool,
        resizes: bool = True,
    ) -> None:
        self._tables = _tables(throughputs, {kind.name for kind in cluster.gpu_types})
        self._jobs: Mapping[str, TraceJob] = {job.id: job for job in trace.jobs if self.covers(job)}
        self._elastic = elastic
        self._resizes = resizes
        self._parameters = parameters
        self._seed = seed
        self._told: dict[_Application, ThroughputTable] = {}

    def covers(self, job: TraceJob) -> bool:
        """Whether it is known how long the job runs."""
        return job.num_gpus > 0 and job.iterations is not None and (job.application, job.global_batch) in self._tables

    def told(self, job_id: str) -> Job:
        """The table and a range of counts, or one; or a count of one type."""
        job = self._jobs[job_id]
        if not self._elastic:
            gpu_type, num_gpus = self._requested(job)
            return Job(
                id=job_id,
                min_gpus=num_gpus,
                gpu_types=(gpu_type,),
                priority=job.priority or 1,
                queue=job.queue,
                remaining_s=self.expected_s(job_id, 0.0),
            )
        shapes = self._shapes(job) if self._resizes else [self._requested(job)]
        counts = [num_gpus for _, num_gpus in shapes]
        return Job(
            id=job_id,
            min_gpus=min(counts),
            max_gpus=max(counts),
            priority=job.priority or 1,
            queue=job.queue,
            performance=self._told_table(job),
            restart_cost_s=self._parameters.restart_s,
            remaining_iterations=self._parameters.told_left(self.work(job_id), self._seed, job_id),
            deadline_s=job.deadline_s,
        )

    def work(self, job_id: str) -> float:
        """Its iterations."""
        return self._jobs[job_id].iterations or 0.0

    def segment(self, allocation: JobAllocation, done: float, batch: int | None) -> Segment:  # noqa: ARG002 - the protocol
        """Iterations per second."""
        job, shape = self._jobs[allocation.job_id], (allocation.gpu_type, allocation.num_gpus)
        speeds = self._table(job).get(shape)
        if speeds is None:
            raise InputError(
                f"job {job.id!r} gets {allocation.num_gpus} GPUs of type {allocation.gpu_type!r}, and the table of "
                f"throughputs says nothing of {job.application} at {job.global_batch} there"
            )
        return Segment(speed=speeds.on(len(allocation.gpus)) / _batch(job))

    def learn(self, job_id: str, seen: Seen) -> None:
        """All is known from the start."""

    def delay_s(self, allocation: JobAllocation, *, is_first: bool) -> float:
        """By the parameters."""
        return self._parameters.delay_s(allocation.num_gpus, is_first=is_first)

    def kept(self, job_id: str, done: float) -> float:
        """What the last checkpoint has: one is written every so many iterations as the job does in that time where it
        runs as it asked for."""
        every_s = self._parameters.checkpoint_s
        if every_s is None:
            return 0.0
        job = self._jobs[job_id]
        every = every_s * self._best(job, self._requested(job)) / _batch(job)
        return done // every * every

    def alone(self, job_id: str) -> tuple[float, int]:
        """On the GPUs within its range on which it ends first."""
        job = self._jobs[job_id]

        def until_end(shape: _Shape) -> tuple[float, int]:
            start_s = self._parameters.delay_s(shape[1], is_first=True)
            return start_s + self.work(job_id) * _batch(job) / self._best(job, shape), shape[1]

        return min(map(until_end, self._shapes(job)))

    def expected_s(self, job_id: str, done: float) -> float | None:
        """By its speed where it runs as it asked for."""
        job = self._jobs[job_id]
        if self._elastic:
            return None

        def left_s() -> float:
            return max(0.0, self.work(job_id) - done) * _batch(job) / self._best(job, self._requested(job))

        return self._parameters.estimate_s(job, self._seed, left_s)

    def measured(self, job_id: str, done: float, batch: int | None) -> Measured:  # noqa: ARG002 - the protocol
        """Iterations left, above 0."""
        if not self._elastic:
            return Measured()
        work = self.work(job_id)
        return Measured(iterations_left=self._parameters.told_left(max(work - done, _LEAST * work), self._seed, job_id))

    def _table(self, job: TraceJob) -> _Table:
        return self._tables[job.application, job.global_batch]

    def _best(self, job: TraceJob, shape: _Shape) -> float:
        """Samples per second on as few nodes as are known."""
        return self._table(job)[shape].samples_per_s[0]

    def _requested(self, job: TraceJob) -> _Shape:
        """What stands for the GPUs that it asked for."""

        def distance(shape: _Shape) -> tuple[bool, int, int]:
            gpu_type, num_gpus = shape
            return job.gpu_type not in (None, gpu_type), abs(num_gpus - job.num_gpus), num_gpus

        return min(self._table(job), key=distance)

    def _shapes(self, job: TraceJob) -> list[_Shape]:
        """Counts that it may get; what stands for what it asked for where there are none."""
        factor = self._parameters.elasticity
        within = [
            (gpu_type, num_gpus)
            for gpu_type, num_gpus in self._table(job)
            if job.num_gpus <= factor * num_gpus and num_gpus <= factor * job.num_gpus
        ]
        return within or [self._requested(job)]

    def _told_table(self, job: TraceJob) -> ThroughputTable:
        """The table with noise; jobs of one application are told the same."""
        name = job.application, job.global_batch
        if name not in self._told:
            entries = [
                entry for shape, speeds in self._table(job).items() for entry in self._entries(job, shape, speeds)
            ]
            self._told[name] = ThroughputTable(entries=tuple(entries), batch_size=job.global_batch)
        return self._told[name]

    def _entries(self, job: TraceJob, shape: _Shape, speeds: _Speeds) -> Iterable[TableEntry]:
        """What is known of a count: on few nodes, then on more."""
        noise = noise_factor(
            self._parameters.noise, self._seed, str(job.application), str(job.global_batch), *map(str, shape)
        )
        for k, (num_nodes, samples_per_s) in enumerate(zip(speeds.num_nodes, speeds.samples_per_s, strict=True)):
            yield TableEntry(
                gpu_type=shape[0],
                num_gpus=shape[1],
                num_nodes=num_nodes if k else None,
                value=samples_per_s * noise,
            )


def _tables(throughputs: Iterable[Throughput], gpu_types: set[str]) -> dict[_Application, _Table]:
    """By application and batch, then by GPU type and count."""
    rows: dict[_Application, dict[_Shape, list[tuple[int, float]]]] = {}
    for row in throughputs:
        if row.gpu_type in gpu_types:
            shapes = rows.setdefault((row.application, row.global_batch), {})
            shapes.setdefault((row.gpu_type, row.num_gpus), []).append((row.num_nodes, row.samples_per_s))
    return {
        name: {
            shape: _Speeds(
                num_nodes=tuple(n for n, _ in sorted(known)), samples_per_s=tuple(s for _, s in sorted(known))
            )
            for shape, known in shapes.items()
        }
        for name, shapes in rows.items()
    }


def _batch(job: TraceJob) -> int:
    """Known of every job that is covered."""
    return job.global_batch or 1
