"""Small clusters with jobs whose throughput is given by hand, and a planner that knows nothing else."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import strategies as st

from models.allocation.suika.parameters import SuikaParameters
from models.allocation.suika.planner import Candidate, NoPlan, Offer, StartPlan
from models.allocation.suika.state import by_node, node_gpus
from models.parallel_plan import Gpu, ParallelPlan, Replica, Stage
from models.workload import Expansion, Job, NodeGpus, Snapshot
from tests.models.placement.scenes import cluster, node
from topology.cluster import Cluster, Node

SEEDS = st.integers(0, 2**32 - 1)

Curve = Callable[[int], float]


def plan_on(gpus: Collection[Gpu], tp: int = 1, kind: str = "a") -> ParallelPlan:
    """One stage of data-parallel groups of `tp` GPUs."""
    groups = [
        Replica(node=name, gpu_type=kind, gpus=tuple(sorted(indices)[k : k + tp]), local_batch=1)
        for name, indices in sorted(by_node(gpus).items())
        for k in range(0, len(indices), tp)
    ]
    return ParallelPlan(stages=(Stage(num_layers=1, replicas=tuple(groups)),), num_micro_batches=1)


@dataclass(slots=True, kw_only=True, eq=False)
class FakePlanner:
    """Throughput by GPU count alone; released GPUs of the job's own nodes first, then by node and index.

    degrees: tensor degree of a job's plans (1 unless given). no_shrink: jobs that cannot lose GPUs. asked: job ids in
    the order of `expand`. hope: what every job has for its outlook; None: what it can have.
    """

    curves: Mapping[str, Curve]
    degrees: Mapping[str, int] = field(default_factory=dict)
    no_shrink: Collection[str] = ()
    kinds: Sequence[str] = ("a",)
    asked: list[str] = field(default_factory=list)
    hope: Sequence[tuple[int, float]] | None = None

    def start_plans(self, job: Job) -> Sequence[StartPlan]:
        tp = self.degrees.get(job.id, 1)
        gpus = [(f"v{k // 8}", k % 8) for k in range(job.min_gpus)]
        allowed = [kind for kind in self.kinds if job.gpu_types is None or kind in job.gpu_types]
        plans = [plan_on(gpus, tp, kind) for kind in allowed]
        return [
            StartPlan(gpu_type=kind, plan=plan, throughput=self.curves[job.id](job.min_gpus))
            for kind, plan in zip(allowed, plans, strict=True)
        ]

    def why_no_plan(self, job: Job) -> NoPlan:
        return NoPlan(reason="no_plan", detail=f"{job.id} has none", counts={}, remedy="none")

    def derived_plan(self, job: Job, gpus: Collection[Gpu]) -> ParallelPlan | None:
        return None if job.id in self.no_shrink else plan_on(gpus, self.degrees.get(job.id, 1))

    def assessed(self, job: Job, plan: ParallelPlan) -> float | None:
        return self.throughput(job, plan) if job.id in self.curves else None

    def throughput(self, job: Job, plan: ParallelPlan) -> float:
        return self.curves[job.id](plan.num_gpus)

    def expand(self, job: Job, plan: ParallelPlan, released: Sequence[Gpu]) -> Offer:
        self.asked.append(job.id)
        own = {name for name, _ in plan.gpus}
        tp = self.degrees.get(job.id, 1)
        order = sorted(released, key=lambda gpu: (gpu[0] not in own, gpu))[: plan.num_gpus]
        prefixes = [order[:k] for k in range(1, len(order) + 1)]
        whole = [taken for taken in prefixes if all(len(held) % tp == 0 for held in by_node(taken).values())]
        return Offer(
            candidates=tuple(
                Candidate(
                    added=frozenset(taken),
                    throughput=self.curves[job.id](plan.num_gpus + len(taken)),
                    build=lambda gpus=(*plan.gpus, *taken): plan_on(gpus, tp),  # type: ignore[misc]
                )
                for taken in whole
            ),
            horizon=frozenset(order),
        )

    def outlook(self, job: Job, plan: ParallelPlan) -> Sequence[tuple[int, float]]:
        possible = [(k, self.curves[job.id](plan.num_gpus + k)) for k in range(1, plan.num_gpus + 1)]
        return possible if self.hope is None else self.hope

    def shrink(self, job: Job, plan: ParallelPlan, lost: Collection[Gpu]) -> ParallelPlan | None:
        left = [gpu for gpu in plan.gpus if gpu not in lost]
        return None if job.id in self.no_shrink or not left else plan_on(left, self.degrees.get(job.id, 1))


def linear(per_gpu: float = 1.0) -> Curve:
    """B = 1 for every scale-out."""
    return lambda count: per_gpu * count


def saturating(limit: int) -> Curve:
    """Linear up to a number of GPUs, then flat."""
    return lambda count: float(min(count, limit))


def stepped(values: Mapping[int, float]) -> Curve:
    """Throughput at some counts; between them that of the next smaller one."""
    return lambda count: values[max(known for known in values if known <= count)]


def gpus(text: str) -> dict[str, list[Gpu]]:
    """Owner -> GPUs of a drawing, one node a word: `AA.. BB..` are nodes n0 and n1 of four GPUs; dots are free."""
    found: dict[str, list[Gpu]] = {}
    for k, word in enumerate(text.split()):
        for index, owner in enumerate(word):
            found.setdefault(owner, []).append((f"n{k}", index))
    return found


def drawn_cluster(text: str, *, racks: Sequence[str] = ()) -> Cluster:
    """The nodes of a drawing; `#` are GPUs used by work outside the snapshot. With `racks`, the rack of every node."""
    nodes = []
    for k, word in enumerate(text.split()):
        in_use = tuple(index for index, owner in enumerate(word) if owner == "#")
        nodes.append(node(f"n{k}", len(word), in_use=in_use, path=(racks[k],) if racks else ()))
    return cluster(*nodes, tiers=("rack",) if racks else ())


def on(owned: Collection[Gpu]) -> tuple[NodeGpus, ...]:
    return node_gpus(owned)


def running(name: str, drawing: str, *, added: str = "", benefits: Sequence[float] = (), **changes: object) -> Job:
    """A job that runs where the drawing has its letter (the first one of its name). `added`: letters of GPUs that
    expansions gave it, in order, with their benefits."""
    owners = gpus(drawing)
    held = owners[name[0]]
    grown = tuple(
        Expansion(gpus=on(owners[letter]), benefit=value) for letter, value in zip(added, benefits, strict=True)
    )
    everything = [*held, *(gpu for letter in added for gpu in owners[letter])]
    job = Job(id=name, min_gpus=len(held), current=on(everything), expansions=grown, parallel_plan=plan_on(everything))
    return replace(job, **changes)  # type: ignore[arg-type]


def snapshot(drawing: str, *jobs: Job, racks: Sequence[str] = ()) -> Snapshot:
    return Snapshot(cluster=drawn_cluster(drawing, racks=racks), jobs=jobs)


def nodes_of(drawing: str) -> list[Node]:
    return list(drawn_cluster(drawing).nodes)


def random_event(seed: int) -> tuple[str, SuikaParameters, FakePlanner, list[Job]]:
    """Two to four jobs on nodes of four GPUs, some scaled out already, and perhaps one that waits; throughputs rise by
    chance, benefits of the past are by chance."""
    rng = Random(seed)  # noqa: S311 - reproducible instances, no secret
    names = "ABCD"[: rng.randint(2, 4)]
    words = []
    left = list(names)
    while left:
        here = [left.pop(0) for _ in range(min(len(left), rng.randint(1, 2)))]
        word = "".join(here * rng.choice((1, 1, 2)))
        words.append((word + rng.choice(("", here[0].lower()))).ljust(4, ".")[:4])
    words += ["...."] * rng.randint(0, 1)
    drawing = " ".join(words)
    curves = {}
    for name in (*names, "W"):
        values, rate = {}, 10.0
        for count in range(1, 17):
            rate += rng.choice((0.0, 0.0, 1.0, 6.0, 12.0))
            values[count] = rate
        curves[name] = stepped(values)
    jobs = []
    for name in names:
        added = name.lower() if name.lower() in drawing else ""
        benefits = [rng.uniform(0.2, 1.5) for _ in added]
        jobs.append(running(name, drawing, added=added, benefits=benefits, weight=rng.choice((1.0, 1.0, 2.5))))
    jobs += [Job(id="W", min_gpus=rng.randint(1, 6))] * rng.randint(0, 1)
    parameters = SuikaParameters(aggressiveness=rng.choice((0.5, 1.0, 3.0)))
    return drawing, parameters, FakePlanner(curves=curves), jobs
