"""Jobs of applications that were measured: step times depend on the placement (the GPUs of each node, and the bandwidth
that tiers leave between the nodes), the worth of a step on the epoch, and elastic jobs choose their batch anew in every
epoch, by the model of themselves that they have so far (Pollux, Sia).

Work is steps of the initial batch at efficiency 1. A job notes what it measures where it runs; policies are told the
model fitted to that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from executor.control.backend import Measured
from executor.simulation.application import MeasuredApplication, ring
from executor.simulation.knowledge import Fits, Knowledge
from executor.simulation.truth import Profiling, Seen, Segment, TruthParameters, noise_factor
from models.configurations import ConfigurationSet, enumerate_configurations
from models.performance.goodput.batch import NUM_CANDIDATES, choose_batches
from models.performance.goodput.profiles import ProfileTable
from models.performance.goodput.spec import (
    GoodputModel,
    GoodputTable,
    GradientStatistics,
    Performance,
    TableEntry,
    ThroughputTable,
)
from models.performance.goodput.throughput import slowed
from models.plan import JobAllocation
from models.workload import Job
from stowplan.errors import InputError
from topology.bandwidth import fractions_of, group_fraction
from topology.cluster import Cluster
from workloads.profiles import ApplicationProfile, TypeSteps, covers
from workloads.trace import Trace, TraceJob

# A job that measures something new looks after so many seconds whether another batch is better.
_TUNED_AFTER_S = 60.0
# No job gets more (the released simulator of Sia).
_MAX_GPUS = 64
# Of all work; what is left of a job is above 0.
_LEAST = 1e-9


class ProfiledApplications:
    """A `Truth` from measurements.

    Parameters
    ----------
    trace
        Jobs with GPUs and an application that was measured (`covers`).
    elastic
        Whether jobs choose their batch, and policies are told models; else each keeps its GPUs and its batch.
    by_type
        Whether policies are told how fast a job that keeps them trains by GPU type.
    """

    def __init__(
        self,
        trace: Trace,
        profiles: Iterable[ApplicationProfile],
        cluster: Cluster,
        parameters: TruthParameters,
        seed: int,
        *,
        elastic: bool,
        by_type: bool = False,
    ) -> None:
        profiles, here = tuple(profiles), [kind.name for kind in cluster.gpu_types]
        self._applications: Mapping[str, MeasuredApplication] = {
            profile.application: MeasuredApplication(replace(profile, types=_types_of(profile, here)))
            for profile in profiles
        }
        self._covers = covers(profiles, here)
        self._jobs: Mapping[str, TraceJob] = {job.id: job for job in trace.jobs if self.covers(job)}
        self._parameters = parameters
        self._seed = seed
        self._elastic = elastic
        self._by_type = by_type
        self._configurations = enumerate_configurations(cluster)
        self._fractions = fractions_of(cluster)
        self._paths = {node.id: node.path for node in cluster.nodes}
        self._known: dict[str, Knowledge] = {}
        self._fits: dict[str, Fits] = {}
        self._alone: dict[str, tuple[float, int]] = {}

    def covers(self, job: TraceJob) -> bool:
        """Whether it is known how fast the job trains."""
        return self._covers(job)

    def told(self, job_id: str) -> Job:
        """What is known of it before it has run; or its size, with its speed by GPU type where that is told."""
        job = self._jobs[job_id]
        if not self._elastic:
            sized = Job(
                id=job_id,
                min_gpus=job.num_gpus,
                gpu_types=tuple(self._of(job).steps),
                priority=job.priority or 1,
                queue=job.queue,
                remaining_s=self.expected_s(job_id, 0.0),
            )
            if not self._by_type:
                return sized
            return replace(
                sized,
                performance=self._table(job),
                remaining_iterations=self.measured(job_id, 0.0, None).iterations_left,
            )
        now, profile = self.measured(job_id, 0.0, None), self._of(job).profile
        planned_s = profile.restart_s if profile.planned_restart_s is None else profile.planned_restart_s
        return Job(
            id=job_id,
            max_gpus=now.max_gpus,
            priority=job.priority or 1,
            queue=job.queue,
            performance=now.performance,
            restart_cost_s=self._parameters.restart_s if planned_s is None else planned_s,
            remaining_iterations=now.iterations_left,
            deadline_s=job.deadline_s,
        )

    def work(self, job_id: str) -> float:
        """Until its last epoch ends."""
        return self._of(self._jobs[job_id]).work

    def segment(self, allocation: JobAllocation, done: float, batch: int | None) -> Segment:
        """Until the epoch ends, or for a minute where something new is measured."""
        job = self._jobs[allocation.job_id]
        application, gpu_type, gpus = self._of(job), allocation.gpu_type, _gpus_of(allocation)
        if gpu_type not in application.steps:
            raise InputError(f"job {job.id!r} gets GPUs of type {gpu_type!r}, on which {job.application} is not known")
        epoch = application.epoch(done)
        fraction = group_fraction(self._fractions, [self._paths[part.node] for part in allocation.gpus])
        local_batch, accumulation = self._batch(job, gpu_type, gpus, application.gradient_at(batch, epoch), fraction)
        speed = application.speed(gpu_type, gpus, local_batch, accumulation, epoch, fraction)
        until = float(application.epoch_ends[epoch])
        seen = Seen(gpu_type=gpu_type, gpus=ring(gpus), local_batch=local_batch, bandwidth_fraction=fraction)
        teaches = self._elastic and self._knowledge(job).teaches(seen)
        if teaches:
            until = min(until, done + speed * _TUNED_AFTER_S)
        return Segment(
            speed=speed,
            until=until,
            batch=sum(gpus) * local_batch * (accumulation + 1),
            seen=seen if teaches else None,
        )

    def learn(self, job_id: str, seen: Seen) -> None:
        """The job, and those that share its model, know it from now on."""
        self._knowledge(self._jobs[job_id]).learn(seen)

    def delay_s(self, allocation: JobAllocation, *, is_first: bool) -> float:
        """That of its application, where it is known."""
        restart_s = self._of(self._jobs[allocation.job_id]).profile.restart_s
        if restart_s is not None:
            return restart_s
        return self._parameters.delay_s(allocation.num_gpus, is_first=is_first)

    def kept(self, job_id: str, done: float) -> float:
        """What the last checkpoint has: one is written at the end of every epoch."""
        if self._parameters.checkpoint_s is None:
            return 0.0
        application = self._of(self._jobs[job_id])
        epoch = application.epoch(done)
        return float(application.epoch_ends[epoch - 1]) if epoch else 0.0

    def alone(self, job_id: str) -> tuple[float, int]:
        """On the one configuration where it ends first, with the best batch of every epoch."""
        job = self._jobs[job_id]
        name = str(job.application)
        if name not in self._alone:
            self._alone[name] = self._of(job).fastest_s(self._configurations, _MAX_GPUS)
        training_s, num_gpus = self._alone[name]
        start_s = self._of(job).profile.restart_s
        if start_s is None:
            start_s = self._parameters.delay_s(num_gpus, is_first=True)
        return start_s + training_s, num_gpus

    def expected_s(self, job_id: str, done: float) -> float | None:
        """On the slowest GPU type that it may get, with the GPUs and the batch that it asked for."""
        job = self._jobs[job_id]
        if self._elastic:
            return None
        application = self._of(job)

        def left_s() -> float:
            return max(self._left_s(application, gpu_type, job, done) for gpu_type in application.steps)

        return self._parameters.estimate_s(job, self._seed, left_s)

    def measured(self, job_id: str, done: float, batch: int | None) -> Measured:
        """The model of the job as it is now, and how many GPUs it may get: twice as many as it ever had; of one that is
        not elastic what is left."""
        job = self._jobs[job_id]
        application, known = self._of(job), self._knowledge(job)
        left = max(application.work - done, _LEAST * application.work)
        left = self._parameters.told_left(left, self._seed, job_id)
        if not self._elastic:
            return Measured(iterations_left=left)
        gradient = application.gradient_at(batch, application.epoch(done))
        smallest = min(steps.measured.min_local_batch for steps in application.steps.values())
        most = min(2 * known.max_replicas, _MAX_GPUS, application.batch.maximum // smallest)
        return Measured(
            iterations_left=left,
            performance=self._performance(job, gradient),
            max_gpus=max(1, most),
        )

    def _table(self, job: TraceJob) -> ThroughputTable:
        """Work by second on the GPUs that it asked for, on average over all of its work, with noise."""
        application = self._of(job)
        return ThroughputTable(
            entries=tuple(
                TableEntry(
                    gpu_type=gpu_type,
                    num_gpus=job.num_gpus,
                    value=application.work
                    / self._left_s(application, gpu_type, job, 0.0)
                    * noise_factor(self._parameters.noise, self._seed, str(job.application), gpu_type),
                )
                for gpu_type in application.steps
            ),
            batch_size=1,
        )

    def _performance(self, job: TraceJob, gradient: GradientStatistics) -> Performance:
        """The model as policies are told it: with noise. Where nothing is known all GPU types look alike."""
        application, profiles = self._of(job), self._knowledge(job).profiles()
        if not profiles:
            entries = (TableEntry(gpu_type=name, num_gpus=1, value=1.0) for name in application.steps)
            return GoodputTable(entries=tuple(entries))
        noise = self._parameters.noise
        if noise:
            profiles = {
                name: replace(
                    profile,
                    parameters=slowed(
                        profile.parameters, 1 / noise_factor(noise, self._seed, str(job.application), name)
                    ),
                )
                for name, profile in profiles.items()
            }
        batch = application.batch
        if self._parameters.profiling is Profiling.RELEASED and job.global_batch is not None:
            batch = replace(batch, maximum=max(batch.initial, min(batch.maximum, job.global_batch)))
        return GoodputModel(batch=batch, gradient=gradient, profiles=profiles)

    def _batch(
        self, job: TraceJob, gpu_type: str, gpus: tuple[int, ...], gradient: GradientStatistics, fraction: float
    ) -> tuple[int, int]:
        """Local batch and accumulation steps: the best by the job's own model, or what it was submitted with."""
        application, initial = self._of(job), self._of(job).batch.initial
        steps = application.steps[gpu_type]
        if not self._elastic:
            return application.fixed_batch(gpu_type, gpus, job.global_batch or initial)
        parameters = self._knowledge(job).parameters(gpu_type)
        smallest = steps.measured.min_local_batch
        if parameters is None or smallest * sum(gpus) > application.batch.maximum:
            return application.fixed_batch(gpu_type, gpus, max(initial, smallest * sum(gpus)))
        profile = self._knowledge(job).profiles()[gpu_type]
        model = GoodputModel(
            batch=application.batch,
            gradient=gradient,
            profiles={
                **self._knowledge(job).profiles(),
                gpu_type: replace(profile, max_local_batch=steps.max_local_batch(gpus)),
            },
        )
        here = ConfigurationSet(
            gpu_types=(gpu_type,),
            type_index=np.array([0]),
            num_nodes=np.array([len(gpus)]),
            num_gpus=np.array([sum(gpus)]),
            bandwidth_fraction=np.array([fraction]),
        )
        first = np.array([0])
        pairs = ProfileTable.of({0: model}, (gpu_type,), elastic=True).pairs(first, first, here)
        best = choose_batches(pairs, NUM_CANDIDATES)
        if not best.local_batch[0]:
            return application.fixed_batch(gpu_type, gpus, max(initial, smallest * sum(gpus)))
        return int(best.local_batch[0]), int(best.accumulation_steps[0])

    def _left_s(self, application: MeasuredApplication, gpu_type: str, job: TraceJob, done: float) -> float:
        """Seconds that the job needs yet on GPUs of a type, packed."""
        it = self._configurations
        of_type = it.type_index == it.gpu_types.index(gpu_type)
        per_node = int(it.num_gpus[of_type & (it.num_nodes == 1)].max())
        full, rest = divmod(job.num_gpus, per_node)
        gpus = (per_node,) * full + ((rest,) if rest else ())
        fraction = float(it.bandwidth_fraction[of_type & (it.num_nodes <= len(gpus))].min())
        local_batch, accumulation = application.fixed_batch(
            gpu_type, gpus, job.global_batch or application.batch.initial
        )
        left_s = 0.0
        for epoch in range(application.epoch(done), application.epoch_ends.size):
            end = float(application.epoch_ends[epoch])
            speed = application.speed(gpu_type, gpus, local_batch, accumulation, epoch, fraction)
            left_s += max(0.0, end - done) / speed
            done = max(done, end)
        return left_s

    def _of(self, job: TraceJob) -> MeasuredApplication:
        return self._applications[str(job.application)]

    def _knowledge(self, job: TraceJob) -> Knowledge:
        """What the job knows, or all jobs of its application."""
        key = str(job.application) if self._parameters.shared_models else job.id
        if key not in self._known:
            profiled = self._parameters.profiling is Profiling.ONE_GPU
            self._known[key] = Knowledge(
                self._of(job), self._fits.setdefault(str(job.application), {}), profiled=profiled
            )
        return self._known[key]


def _types_of(profile: ApplicationProfile, gpu_types: Iterable[str]) -> tuple[TypeSteps, ...]:
    """What was measured on the types of a cluster, in the order of these: jobs borrow from the first that they know."""
    measured = {kind.gpu_type: kind for kind in profile.types}
    return tuple(measured[name] for name in gpu_types if name in measured)


def _gpus_of(allocation: JobAllocation) -> tuple[int, ...]:
    return tuple(len(part.gpus) for part in allocation.gpus)
