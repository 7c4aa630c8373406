"""Jobs that train models of the catalogue: each as fast as the performance model of 3D plans says of the plan that it
runs, but for an error that no policy knows (Suika section 5.3 has the error in the estimates; here it is in the truth).

Work is iterations; a job of which only the duration is known does as many as take it so long on the GPUs that it asked
for. A policy that plans 3D parallelism is told the model, and jobs run what it plans. One that plans by throughputs is
told those of data parallelism: of the fastest symmetric plan on the GPUs that were asked for, tensor and pipeline
degrees stay, and replicas come and go (what Suika calls DP-only, and takes Sia for), unless it keeps sizes, on nodes
that spread over the tiers as little as so many can. One that plans by sizes is told the size. Where a policy has no
plan of its own, jobs run these.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from executor.control.backend import Measured
from executor.simulation.truth import Seen, Segment, TruthParameters, noise_factor
from models.allocation.suika.placing import place
from models.allocation.suika.start_plan import FoundPlan, StartQuestion, find_start_plan
from models.catalogue import find_model
from models.configurations import enumerate_configurations
from models.parallel_plan import ParallelPlan
from models.parallelism.adaptive import slowed
from models.parallelism.micro_batches import divisors
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.performance.iteration.fabric import fabric_of
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import performance_model
from models.plan import JobAllocation
from models.policy import Policy
from models.transformer import Checkpointing, JobModel, Transformer
from models.workload import Job, Parallelism
from stowplan.errors import InputError
from topology.cluster import Cluster
from workloads.trace import Trace, TraceJob

# Of all iterations; what is left of a job is above 0.
_LEAST = 1e-9
_MORE = (Checkpointing.SELECTIVE, Checkpointing.FULL)
_Shape = tuple[str, int]
_Key = tuple[str, int, int, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Training:
    """What jobs of one application, batch and size share. degrees: of the fastest symmetric plan on as many GPUs as
    were asked for; basic: by GPU type, that plan where it is legal."""

    model: JobModel
    performance: PerformanceModel
    degrees: Parallelism
    basic: Mapping[str, FoundPlan]


class ModelledTrainings:
    """A `Truth` from the performance model of 3D plans.

    Parameters
    ----------
    trace
        Jobs with iterations or a duration, and a batch, that train a model of the catalogue, for which there is a plan
        on the GPUs that they ask for (`covers`), with as little activation checkpointing as it takes.
    policy
        Decides what is told of a job.
    """

    def __init__(self, trace: Trace, cluster: Cluster, parameters: TruthParameters, seed: int, policy: Policy) -> None:
        self._cluster = cluster
        self._kinds = {kind.name: kind for kind in cluster.gpu_types}
        self._fabric = fabric_of(cluster)
        configurations = enumerate_configurations(cluster)
        self._given = [
            (configurations.gpu_types[kind], int(num_gpus))
            for kind, num_gpus in zip(configurations.type_index, configurations.num_gpus, strict=True)
        ]
        self._fractions = configurations.bandwidth_fraction.tolist()
        # Of a type the last configuration of one node is its largest node.
        self._node_sizes = {
            gpu_type: num_gpus
            for (gpu_type, num_gpus), num_nodes in zip(self._given, configurations.num_nodes, strict=True)
            if num_nodes == 1
        }
        self._parameters = parameters
        self._seed = seed
        self._policy = policy
        self._trainings: dict[_Key, _Training | None] = {}
        self._tables: dict[_Key, ThroughputTable] = {}
        self._alone: dict[_Key, tuple[float, _Shape]] = {}
        self._jobs: Mapping[str, TraceJob] = {job.id: job for job in trace.jobs if self.covers(job)}

    def covers(self, job: TraceJob) -> bool:
        """Whether it is known how long the job runs."""
        return job.num_gpus > 0 and bool(job.iterations or job.duration_s) and self._training_of(job) is not None

    def told(self, job_id: str) -> Job:
        """The model, the throughputs of data parallelism, or the size."""
        job = self._jobs[job_id]
        training = self._training(job)
        shared = Job(
            id=job_id,
            min_gpus=job.num_gpus,
            gpu_types=tuple(training.basic),
            priority=job.priority or 1,
            queue=job.queue,
            deadline_s=job.deadline_s,
        )
        if self._policy.plans_by_size:
            return replace(shared, remaining_s=self.expected_s(job_id, 0.0))
        left = self._parameters.told_left(self.work(job_id), self._seed, job_id)
        shared = replace(shared, restart_cost_s=self._parameters.restart_s, remaining_iterations=left)
        most = int(self._parameters.elasticity * job.num_gpus)
        model = training.model
        named = {"transformer": model} if isinstance(model, Transformer) else {"operators": model}
        if self._policy.plans_parallelism:
            return replace(shared, max_gpus=most, parallelism=training.degrees, **named)
        if self._parameters.tells_models and self._policy.takes_goodput:
            # It finds out itself on how few GPUs there is a plan.
            return replace(shared, min_gpus=1, max_gpus=most, **named)
        table = self._table(job)
        if self._policy.keeps_sizes:
            return replace(shared, performance=table)
        counts = [entry.num_gpus for entry in table.entries]
        return replace(shared, min_gpus=min(counts), max_gpus=max(counts), performance=table)

    def work(self, job_id: str) -> float:
        """Its iterations."""
        job = self._jobs[job_id]
        return job.iterations or (job.duration_s or 0.0) * self._basic_speed(job)

    def segment(self, allocation: JobAllocation, done: float, batch: int | None) -> Segment:  # noqa: ARG002 - the protocol
        """Iterations per second of the plan that runs, where its GPUs are."""
        job = self._jobs[allocation.job_id]
        plan = allocation.parallel_plan or self._placed(job, allocation)
        samples_per_s = self._training(job).performance.throughput(plan)
        return Segment(speed=samples_per_s * self._error(job, plan) / _batch(job))

    def learn(self, job_id: str, seen: Seen) -> None:
        """Nothing is measured."""

    def delay_s(self, allocation: JobAllocation, *, is_first: bool) -> float:
        """By the parameters."""
        return self._parameters.delay_s(allocation.num_gpus, is_first=is_first)

    def kept(self, job_id: str, done: float) -> float:
        """What the last checkpoint has: one is written every so many iterations as the job does in that time on the
        GPUs that it asked for."""
        every_s = self._parameters.checkpoint_s
        if every_s is None:
            return 0.0
        every = every_s * self._basic_speed(self._jobs[job_id])
        return done // every * every

    def alone(self, job_id: str) -> tuple[float, int]:
        """On the fastest plan known of a number of GPUs that it may get, a power of two or all of a type."""
        job = self._jobs[job_id]
        speed, (_, num_gpus) = self._fastest(job)
        return self._parameters.delay_s(num_gpus, is_first=True) + self.work(job_id) / speed, num_gpus

    def expected_s(self, job_id: str, done: float) -> float | None:
        """By its speed on the GPUs that it asked for."""
        if not self._policy.plans_by_size:
            return None
        job = self._jobs[job_id]
        left = max(0.0, self.work(job_id) - done)
        return self._parameters.estimate_s(job, self._seed, lambda: left / self._basic_speed(job))

    def measured(self, job_id: str, done: float, batch: int | None) -> Measured:  # noqa: ARG002 - the protocol
        """Iterations left, above 0."""
        work = self.work(job_id)
        return Measured(iterations_left=self._parameters.told_left(max(work - done, _LEAST * work), self._seed, job_id))

    def _training(self, job: TraceJob) -> _Training:
        training = self._training_of(job)
        if training is None:
            raise ValueError(f"job {job.id!r} is not covered")
        return training

    def _training_of(self, job: TraceJob) -> _Training | None:
        """What the job trains; None where that is not known, or has no plan."""
        if job.application is None or job.global_batch is None:
            return None
        key = _key(job)
        if key not in self._trainings:
            known = (self._trained(model, job) for model in _models(job.application, job.global_batch))
            self._trainings[key] = next((training for training in known if training is not None), None)
        return self._trainings[key]

    def _trained(self, model: JobModel, job: TraceJob) -> _Training | None:
        """By the fastest symmetric plan; None when none is legal."""
        types = [name for name in self._kinds if self._may_get(job, name)]
        fastest, best = None, 0.0
        for degrees in _symmetric(job.num_gpus, max((self._node_sizes[name] for name in types), default=1)):
            for name in types:
                found = self._plan(model, (name, job.num_gpus), degrees)
                if found.plan is not None and found.throughput > best:
                    fastest, best = degrees, found.throughput
        if fastest is None:
            return None
        basic = {name: self._plan(model, (name, job.num_gpus), fastest) for name in types}
        return _Training(
            model=model,
            performance=performance_model(model, self._cluster, fabric=self._fabric),
            degrees=fastest,
            basic={name: found for name, found in basic.items() if found.plan is not None},
        )

    def _may_get(self, job: TraceJob, gpu_type: str) -> bool:
        """Whether there are as many GPUs of a type."""
        most = max((num_gpus for name, num_gpus in self._given if name == gpu_type), default=0)
        return job.num_gpus <= most and (job.gpu_type is None or gpu_type in job.gpu_type.split("|"))

    def _plan(self, model: JobModel, shape: _Shape, degrees: Parallelism | None = None) -> FoundPlan:
        """The fastest plan on virtual nodes, or that of degrees."""
        gpu_type, num_gpus = shape
        return find_start_plan(
            StartQuestion(
                key=model,
                model=model,
                calibration=None,
                gpu_type=slowed(self._kinds[gpu_type], self._fraction(shape)),
                gpus_per_node=self._node_sizes[gpu_type],
                num_gpus=num_gpus,
                degrees=degrees,
            )
        )

    def _fraction(self, shape: _Shape) -> float:
        """Share of the bandwidth at best, of the fewest nodes that hold so many GPUs."""
        gpu_type, num_gpus = shape
        holding = zip(self._given, self._fractions, strict=True)
        return next((fraction for (name, most), fraction in holding if name == gpu_type and most >= num_gpus), 1.0)

    def _scaled(self, training: _Training, shape: _Shape) -> FoundPlan | None:
        """The plan of the GPUs asked for, with as many replicas as make up others; None where that cannot be."""
        dp, rest = divmod(shape[1], training.degrees.tp * training.degrees.pp)
        if rest:
            return None
        scaled = self._plan(training.model, shape, replace(training.degrees, dp=dp))
        return None if scaled.plan is None else scaled

    def _table(self, job: TraceJob) -> ThroughputTable:
        """Samples/s of data parallelism on everything that the job may get."""
        key, training = _key(job), self._training(job)
        if key not in self._tables:
            scaled = [(shape, self._scaled(training, shape)) for shape in self._offered(job)]
            self._tables[key] = ThroughputTable(
                entries=tuple(
                    TableEntry(gpu_type=gpu_type, num_gpus=num_gpus, value=found.throughput)
                    for (gpu_type, num_gpus), found in scaled
                    if found is not None
                ),
                batch_size=job.global_batch,
            )
        return self._tables[key]

    def _offered(self, job: TraceJob) -> list[_Shape]:
        """Numbers of GPUs within the elasticity, those that were asked for included."""
        factor, basic = self._parameters.elasticity, self._training(job).basic
        within = {
            (gpu_type, num_gpus)
            for gpu_type, num_gpus in self._given
            if gpu_type in basic and job.num_gpus <= factor * num_gpus and num_gpus <= factor * job.num_gpus
        }
        return sorted(within | {(gpu_type, job.num_gpus) for gpu_type in basic})

    def _placed(self, job: TraceJob, allocation: JobAllocation) -> ParallelPlan:
        """The plan of data parallelism on these GPUs."""
        found = self._scaled(self._training(job), (allocation.gpu_type, allocation.num_gpus))
        free = {part.node: part.gpus for part in allocation.gpus}
        paths = {node: self._fabric.host(node).path for node in free}
        placed = None if found is None or found.plan is None else place(found.plan, free, paths)
        if placed is None:
            raise InputError(
                f"job {job.id!r} gets {allocation.num_gpus} GPUs of type {allocation.gpu_type!r} on "
                f"{len(allocation.gpus)} nodes, where {job.application} has no plan"
            )
        return placed

    def _fastest(self, job: TraceJob) -> tuple[float, _Shape]:
        """Iterations per second of the fastest plan on powers of two, or on all of a type; and where."""
        key, training = _key(job), self._training(job)
        if key not in self._alone:
            offered = self._offered(job)
            most = dict(offered)
            self._alone[key] = max(
                (found.throughput * self._error(job, found.plan) / _batch(job), shape)
                for shape in offered
                if shape[1].bit_count() == 1 or shape[1] in (most[shape[0]], job.num_gpus)
                for found in (self._plan(training.model, shape), self._scaled(training, shape))
                if found is not None and found.plan is not None
            )
        return self._alone[key]

    def _basic_speed(self, job: TraceJob) -> float:
        """Iterations per second on the GPUs that it asked for, of the type where it is fastest, by the model."""
        return max(found.throughput for found in self._training(job).basic.values()) / _batch(job)

    def _error(self, job: TraceJob, plan: ParallelPlan) -> float:
        """True speed of a plan over the model's, the same for plans of one shape; the mean of times is the model's."""
        noise = self._parameters.noise
        name = str(job.application), str(job.global_batch), plan.stages[0].replicas[0].gpu_type, plan.notation()
        return math.exp(noise * noise / 2) * noise_factor(noise, self._seed, *name)


def _models(application: str, global_batch: int) -> Iterator[JobModel]:
    """The model of this name, with more and more activation checkpointing where it has activations."""
    try:
        model = find_model(application, global_batch=global_batch)
    except InputError:
        return
    yield model
    if isinstance(model, Transformer):
        for checkpointing in _MORE:
            yield replace(model, checkpointing=checkpointing)


def _symmetric(num_gpus: int, node_size: int) -> Iterator[Parallelism]:
    """All degrees of so many GPUs, tensor groups inside nodes."""
    for tp in divisors(num_gpus):
        for pp in divisors(num_gpus // tp) if tp <= node_size else ():
            yield Parallelism(tp=tp, pp=pp, dp=num_gpus // tp // pp)


def _key(job: TraceJob) -> _Key:
    return str(job.application), _batch(job), job.num_gpus, job.gpu_type


def _batch(job: TraceJob) -> int:
    """Known of every job that is covered."""
    return job.global_batch or 1
