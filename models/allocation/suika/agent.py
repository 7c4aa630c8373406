"""The agents of all jobs (Suika section 3): performance models, start plans, and incremental plans with a memory.

The incremental planner is asked about a job on its GPUs with the nearest released ones. Only what the performance model
sees of these matters: which GPUs share a node, which nodes a unit, and how fast links are; not what they are called. So
it is asked under neutral names (`situation`), and answers are kept for the process: jobs of one kind that sit alike
share them, and from one event to the next few situations are new.

Where a job leaves open how it trains, that is chosen whenever a plan is made for it from nothing: when it starts, and
where no plan grows or shrinks from the one that it has. What grows and shrinks trains on as it did.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from models.allocation.suika.placing import place, renamed
from models.allocation.suika.planner import Candidate, NoPlan, Offer, StartPlan
from models.allocation.suika.situation import Situation, situation_of
from models.allocation.suika.start_plan import FoundPlan, StartQuestion, find_start_plan
from models.allocation.suika.state import by_node
from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.incremental.affinity import affinity_order, units
from models.parallelism.incremental.expand import expand
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.incremental.shrink import shrink
from models.parallelism.legality import plan_violations
from models.parallelism.training import Training, trained
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.fabric import fabric_of
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import unplaced_model
from models.remembered import remembered
from models.transformer import JobModel
from models.workload import Job, Snapshot
from stowplan.catalogue import own_digest
from stowplan.errors import Issue, Severity, pointer_of
from topology.cluster import GpuType, NodeState

# Some hundred situations an event at most; an answer is a few plans.
_MEMORY = 4096
# A cluster has some dozen kinds of jobs.
_MODELS = 64
# An estimate needs no more: the same jobs are asked.
_OUTLOOK_WINDOW = 1


Token = Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Who asks (`token`) in which situation (`key`); whoever has asked first is remembered."""

    token: Token
    key: Hashable
    options: IncrementalOptions
    model: PerformanceModel = field(compare=False, repr=False)
    situation: Situation = field(compare=False, repr=False)

    def neutral_model(self) -> PerformanceModel:
        """The performance model on the nodes of the situation."""
        return replace(self.model, fabric=self.situation.neutral_fabric())


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobKind:
    """What decides how a job performs, whatever the nodes; `token` stands for model and calibration."""

    token: Token
    gpu_types: tuple[GpuType, ...]
    catalogue: str | None
    model: JobModel = field(compare=False, repr=False)
    calibration: Calibration | None = field(compare=False, repr=False)


class Agents:
    """Answers for the jobs of one snapshot; implements `planner.Planner`."""

    def __init__(self, snapshot: Snapshot, options: IncrementalOptions) -> None:
        self._cluster = snapshot.cluster
        self._pointers = {job.id: pointer_of("jobs", k) for k, job in enumerate(snapshot.jobs)}
        self._options = options
        self._models: dict[Token, PerformanceModel] = {}
        self._of_job: dict[tuple[str, Training | None], tuple[Token, PerformanceModel]] = {}
        self._fabric = fabric_of(snapshot.cluster)
        self._last_alone: dict[str, _Question] = {}
        self._kinds = {kind.name: kind for kind in snapshot.cluster.gpu_types}
        self._node_sizes: dict[str, int] = {}
        self._num_gpus: Counter[str] = Counter()
        for node in snapshot.cluster.nodes:
            if node.state is NodeState.UP:
                self._node_sizes[node.gpu_type] = max(node.num_gpus, self._node_sizes.get(node.gpu_type, 0))
                self._num_gpus[node.gpu_type] += node.num_gpus

    def model(self, job: Job, training: Training | None = None) -> PerformanceModel:
        """Performance of the job on this cluster, trained as a plan of it says."""
        return self._known(job, training)[1]

    def _known(self, job: Job, training: Training | None) -> tuple[Token, PerformanceModel]:
        """What the job shares with others of its kind; finding it by the model takes longer than by the id."""
        if (job.id, training) not in self._of_job:
            token = _token(job, training)
            if token not in self._models:
                kind = _JobKind(
                    token=token,
                    gpu_types=self._cluster.gpu_types,
                    catalogue=own_digest(),
                    model=trained(_model(job), training),
                    calibration=job.calibration,
                )
                self._models[token] = _performance(kind).on(self._fabric)
            self._of_job[job.id, training] = token, self._models[token]
        return self._of_job[job.id, training]

    def throughput(self, job: Job, plan: ParallelPlan) -> float:
        """Samples per second."""
        return _throughput(self._alone(job, plan))

    def assessed(self, job: Job, plan: ParallelPlan) -> float | None:
        """Samples per second; None when the plan breaks the rules or the memory of the job's model."""
        question = self._alone(job, plan)
        return _throughput(question) if _is_legal(question) else None

    def expand(self, job: Job, plan: ParallelPlan, released: Sequence[Gpu]) -> Offer:
        """Algorithm 1 on the released GPUs that it looks at."""
        order = affinity_order(self._fabric, {node for node, _ in plan.gpus}, released)
        unit, most = self._options.unit_of(plan.num_gpus), self._options.most_added(plan.num_gpus)
        horizon = tuple(gpu for piece in units(order, unit, most) for gpu in piece)
        question = self._question(job, plan, horizon)
        real = question.situation.real
        return Offer(
            candidates=tuple(
                Candidate(
                    added=frozenset(real[gpu] for gpu in added),
                    throughput=throughput,
                    build=partial(renamed, found, real),
                )
                for added, throughput, found in _expanded(question)
            ),
            horizon=frozenset(horizon),
        )

    def outlook(self, job: Job, plan: ParallelPlan) -> Sequence[tuple[int, float]]:
        """Algorithm 1 on what is left of the plan's nodes, and then on whole nodes beside the first of them."""
        kind = self._fabric.host(plan.gpus[0][0]).gpu_type
        most = min(self._options.most_added(plan.num_gpus), self._num_gpus[kind])
        return _outlook(self._alone(job, plan), self._node_sizes.get(kind, 1), int(most))

    def start_plans(self, job: Job) -> Sequence[StartPlan]:
        """Plans for the basic demand on every GPU type that the job allows and the cluster has, fastest first."""
        found = [
            StartPlan(gpu_type=kind, plan=answer.plan, throughput=answer.throughput)
            for kind, answer in self._starts(job)
            if answer.plan is not None
        ]
        return sorted(found, key=lambda start: -start.throughput)

    def why_no_plan(self, job: Job) -> NoPlan:
        """The reason on the type that comes closest: the first where memory is short, else the first."""
        reasons = [answer.why for _, answer in self._starts(job) if answer.why is not None]
        if not reasons:
            present = sorted(self._node_sizes)
            return NoPlan(
                reason="gpu_type",
                detail="all nodes of the GPU types that it allows are missing, drained or down",
                counts={f"nodes.{kind}": 0 for kind in job.gpu_types or sorted(self._kinds)},
                remedy=f"allow one of {present}" if present else "bring nodes back up",
            )
        return min(reasons, key=lambda why: why.reason != "out_of_memory")

    def derived_plan(self, job: Job, gpus: Collection[Gpu]) -> ParallelPlan | None:
        """The plan that the job would start with, on these GPUs."""
        free = {node: sorted(indices) for node, indices in by_node(sorted(gpus)).items()}
        kind = self._fabric.host(next(iter(free))).gpu_type
        found = self._start(job, kind, len(gpus))
        if found.plan is None:
            return None
        return place(found.plan, free, {node: self._fabric.host(node).path for node in free})

    def warnings(self, fixed: Mapping[str, Job]) -> list[Issue]:
        """Jobs that keep their GPUs although they could be changed: no plan is known that they could run."""
        return [
            Issue(
                code="plan_not_understood",
                pointer=f"{self._pointers[job.id]}/parallel_plan",
                detail=f"job {job.id!r} keeps its GPUs and is neither scaled out nor moved: "
                + ("its plan" if job.parallel_plan is not None else "every plan on them")
                + " breaks the rules or the memory of its performance model",
                severity=Severity.WARNING,
            )
            for job in fixed.values()
            if job.preemptible
        ]

    def _starts(self, job: Job) -> Iterator[tuple[str, FoundPlan]]:
        for kind in self._node_sizes:
            if job.gpu_types is None or kind in job.gpu_types:
                yield kind, self._start(job, kind, job.min_gpus)

    def _start(self, job: Job, kind: str, num_gpus: int) -> FoundPlan:
        """The fastest of the ways to train that are open; where none has a plan, what comes closest to one."""
        model = _model(job)
        ways = [Training.of(way) for way in job.choices.models(model)] if job.choices.are_open else [None]
        is_default = job.parallelism is not None and job.parallelism.num_gpus == num_gpus
        found = [
            find_start_plan(
                StartQuestion(
                    key=_token(job, training),
                    model=trained(model, training),
                    calibration=job.calibration,
                    gpu_type=self._kinds[kind],
                    gpus_per_node=self._node_sizes.get(kind, 1),
                    num_gpus=num_gpus,
                    degrees=job.parallelism if is_default else None,
                    training=training,
                )
            )
            for training in ways
        ]
        return min(found, key=lambda answer: (answer.plan is None, -answer.throughput, _lacking(answer.why)))

    def shrink(self, job: Job, plan: ParallelPlan, lost: Collection[Gpu]) -> ParallelPlan | None:
        """What is left of the plan, balanced anew."""
        question = self._alone(job, plan)
        neutral = question.situation.neutral
        left = _shrunk(question, tuple(sorted(neutral[gpu] for gpu in lost)))
        return None if left is None else renamed(left, question.situation.real)

    def _alone(self, job: Job, plan: ParallelPlan) -> _Question:
        """The question without released GPUs; it comes again and again for the plan that a job has."""
        last = self._last_alone.get(job.id)
        if last is None or last.situation.plan is not plan:
            last = self._last_alone[job.id] = self._question(job, plan, ())
        return last

    def _question(self, job: Job, plan: ParallelPlan, released: tuple[Gpu, ...]) -> _Question:
        token, model = self._known(job, plan.training)
        situation = situation_of(model.fabric, plan, released)
        fabric = (model.fabric.fractions, model.fabric.saturation_bytes, model.fabric.minipod_depth)
        return _Question(
            token=token,
            key=(self._cluster.gpu_types, fabric, situation.key),
            options=self._options,
            model=model,
            situation=situation,
        )


@lru_cache(maxsize=_MODELS)
def _performance(kind: _JobKind) -> PerformanceModel:
    """The same object from event to event, so that what hangs on it is found again (`CostTables.of`)."""
    return unplaced_model(kind.model, kind.gpu_types, kind.calibration)


@remembered(_MEMORY)
def _expanded(question: _Question) -> tuple[tuple[frozenset[Gpu], float, ParallelPlan], ...]:
    """New GPUs, throughput and plan of the candidates that differ and use all GPUs of the plan, by neutral names."""
    situation = question.situation
    plan = situation.neutral_plan()
    result = expand(question.neutral_model(), plan, situation.neutral_released(), question.options)
    base = frozenset(plan.gpus)
    found = []
    last = plan
    for step in result.steps:
        if step.plan is last:
            continue
        last = step.plan
        gpus = frozenset(step.plan.gpus)
        if gpus > base:
            found.append((gpus - base, step.throughput, _trained_alike(step.plan, plan)))
    return tuple(found)


@remembered(_MEMORY)
def _outlook(question: _Question, node_size: int, most: int) -> tuple[tuple[int, float], ...]:
    """(New GPUs, throughput) when all GPUs of the plan's nodes are released, and `most` more like the first one."""
    model, plan = question.neutral_model(), question.situation.neutral_plan()
    hosts = dict(model.fabric.hosts)
    first = hosts[plan.gpus[0][0]]
    released = [
        (node, gpu)
        for node, held in by_node(plan.gpus).items()
        for gpu in range(len(held), hosts[node].num_gpus or len(held))
    ]
    for gpu in range(most):
        node = f"free{gpu // node_size:04}"
        hosts[node] = first
        released.append((node, gpu % node_size))
    model = replace(model, fabric=replace(model.fabric, hosts=hosts))
    steps = expand(model, plan, released, replace(question.options, window=_OUTLOOK_WINDOW)).steps
    return tuple((step.num_added, step.throughput) for step in steps)


@remembered(_MEMORY)
def _shrunk(question: _Question, lost: tuple[Gpu, ...]) -> ParallelPlan | None:
    plan = question.situation.neutral_plan()
    left = shrink(question.neutral_model(), plan, lost, question.options)
    return None if left is None else _trained_alike(left, plan)


@remembered(_MEMORY)
def _throughput(question: _Question) -> float:
    return question.neutral_model().throughput(question.situation.neutral_plan())


@remembered(_MEMORY)
def _is_legal(question: _Question) -> bool:
    model, plan = question.neutral_model(), question.situation.neutral_plan()
    own = {node: (model.fabric.host(node).gpu_type, gpus) for node, gpus in by_node(plan.gpus).items()}
    return not plan_violations(plan, model, own)


def forget() -> None:
    """Drop everything that is remembered of earlier events; for measurements."""
    for memory in (_expanded, _outlook, _shrunk, _throughput, _is_legal, find_start_plan):
        memory.forget()
    _performance.cache_clear()


def _token(job: Job, training: Training | None) -> Token:
    """What decides the performance model of a job on a cluster."""
    return job.model, training, None if job.calibration is None else job.calibration.key


def _trained_alike(plan: ParallelPlan, running: ParallelPlan) -> ParallelPlan:
    """A plan that grew or shrank from one that runs: how it trains stays."""
    return plan if plan.training == running.training else replace(plan, training=running.training)


def _lacking(why: NoPlan | None) -> float:
    """Bytes that what comes closest to a plan needs."""
    return math.inf if why is None else why.counts.get("needed_bytes", math.inf)


def _model(job: Job) -> JobModel:
    if job.model is None:
        raise ValueError(f"job {job.id!r} has no model; policy_issues refuses it")
    return job.model
