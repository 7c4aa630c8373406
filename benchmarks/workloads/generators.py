"""Made-up inputs: heterogeneous clusters and jobs for Sia, fabrics and free nodes for Arnold. Same seed, same input.

Every distribution is stated where it is drawn. "log-uniform a..b" is exp(uniform(log a, log b)).

Sia, a cluster (`sia_cluster`): of the first `num_types` types of `GPU_MODELS`, each with an equal share of the GPUs in
whole nodes, all up and free. `wear` is the share of nodes that are drained (a quarter), down (a quarter) or hold a
uniform 1..R-1 GPUs of outside work (half): these make the placeability rows that whole nodes do without.

Sia, a job (`_job`): every number is drawn for itself, so that no two jobs are equal.
  kind         60 % elastic and 20 % strong-scaling with fitted goodput models, 10 % rigid with one, 10 % throughput
               tables; of the fitted ones 5 % hybrid-parallel with 2, 4 or 8 GPUs per replica
  GPUs         max_gpus round(log-uniform 1..ceiling); a rigid job takes the power of two below; min_gpus 1, or P
  types        each type is left out with 15 % (memory), at least one stays; 10 % of the jobs allow half of the types
  weight       1 (80 %), 2 (15 %), 4 (5 %)
  age          exponential, mean 4 h; restarts uniform 0..5 and cost log-uniform 15..250 s for those that run
A share `running` of the jobs runs: in order, each on a random type of its own, with a power of two of GPUs or whole
nodes up to its maximum (log-uniform), side by side while the type has room.

Arnold (`arnold_snapshot`): minipods with so many free nodes each; further nodes, if any, are taken by other work.
Free nodes are split evenly, by halves, or by a Dirichlet distribution of weight 6, rounded by largest remainder.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GradientStatistics,
    TableEntry,
    ThroughputParameters,
    ThroughputTable,
    TypeProfile,
)
from models.workload import Adaptivity, Job, NodeGpus, Parallelism, Snapshot
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier

_GIB = 2**30
_DIRICHLET_WEIGHT = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """A GPU type and its node; `speed` is relative to the T4 on the made-up jobs."""

    gpu_type: GpuType
    num_gpus: int
    speed: float


def _model(
    name: str, num_gpus: int, speed: float, memory_gib: int, tflops: float, intra: float, inter: float
) -> GpuModel:
    gpu_type = GpuType(
        name=name,
        memory_bytes=memory_gib * _GIB,
        peak_flops_per_s=tflops * 1e12,
        intra_node_bandwidth_bytes_per_s=intra * 1e9,
        inter_node_bandwidth_bytes_per_s=inter * 1e9,
    )
    return GpuModel(gpu_type=gpu_type, num_gpus=num_gpus, speed=speed)


# Nominal values of the data sheets: dense tensor throughput at 16 bit, links in one direction.
GPU_MODELS = (
    _model("t4", 4, 1.0, 16, 65, 15.75, 6.25),
    _model("rtx", 8, 1.8, 11, 53.8, 15.75, 6.25),
    _model("a100", 8, 5.0, 40, 312, 300, 200),
    _model("v100", 8, 2.5, 32, 125, 150, 12.5),
    _model("l40s", 4, 4.0, 48, 362, 31.5, 25),
    _model("h100", 8, 10.0, 80, 989, 450, 400),
    _model("l4", 8, 1.6, 24, 121, 31.5, 12.5),
    _model("a40", 8, 2.2, 48, 150, 31.5, 25),
    _model("h200", 8, 11.0, 141, 989, 450, 400),
    _model("b200", 8, 20.0, 180, 2250, 900, 400),
)
H800 = _model("H800", 8, 10.0, 80, 989, 200, 50).gpu_type


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaSize:
    """How large an input of Sia is. `ceiling`: most GPUs of a job; `running`, `wear`: see the module."""

    num_gpus: int
    num_jobs: int
    num_types: int
    ceiling: int = 64
    running: float = 0.0
    wear: float = 0.0


def sia_snapshot(size: SiaSize, seed: int) -> Snapshot:
    """Cluster and jobs of this size."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    models = GPU_MODELS[: size.num_types]
    cluster = sia_cluster(size.num_gpus, models, size.wear, rng)
    jobs = [_job(f"job-{k:05}", models, size.ceiling, rng) for k in range(size.num_jobs)]
    seats = _Seats(cluster)
    jobs = [_running(job, seats, rng) if rng.random() < size.running else job for job in jobs]
    return Snapshot(cluster=cluster, jobs=tuple(jobs))


def sia_cluster(num_gpus: int, models: Sequence[GpuModel], wear: float, rng: random.Random) -> Cluster:
    """Equal shares of `num_gpus` GPUs in whole nodes, rounded down."""
    nodes = [
        _worn(
            Node(id=f"{model.gpu_type.name}-{k:05}", gpu_type=model.gpu_type.name, num_gpus=model.num_gpus), wear, rng
        )
        for model in models
        for k in range(num_gpus // len(models) // model.num_gpus)
    ]
    return Cluster(gpu_types=tuple(model.gpu_type for model in models), nodes=tuple(nodes))


def _worn(node: Node, wear: float, rng: random.Random) -> Node:
    draw = rng.random()
    if draw >= wear:
        return node
    if draw < wear / 2:
        return replace(node, state=NodeState.DRAINED if draw < wear / 4 else NodeState.DOWN)
    return replace(node, gpus_in_use=tuple(range(rng.randint(1, node.num_gpus - 1))))


def _log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _job(name: str, models: Sequence[GpuModel], ceiling: int, rng: random.Random) -> Job:
    """One waiting job."""
    kept = [model for model in models if rng.random() >= 0.15] or [rng.choice(models)]
    max_gpus = round(_log_uniform(rng, 1, ceiling))
    kind = rng.random()
    if kind < 0.1:
        return _with_wishes(
            Job(
                id=name,
                max_gpus=max_gpus,
                adaptivity=Adaptivity.STRONG_SCALING,
                performance=_scaling_table(kept, max_gpus, rng),
            ),
            kept,
            rng,
        )
    if kind < 0.2:
        count = 1 << (max_gpus.bit_length() - 1)
        job = Job(id=name, min_gpus=count, max_gpus=count, adaptivity=Adaptivity.RIGID)
        return _with_wishes(replace(job, performance=_goodput_model(kept, count, 1, rng)), kept, rng)
    adaptivity = Adaptivity.STRONG_SCALING if kind < 0.4 else Adaptivity.ELASTIC
    per_replica = rng.choice((2, 4, 8)) if rng.random() < 0.05 else 1
    max_gpus = max(max_gpus, per_replica)
    job = Job(id=name, min_gpus=per_replica, max_gpus=max_gpus, adaptivity=adaptivity)
    return _with_wishes(replace(job, performance=_goodput_model(kept, max_gpus, per_replica, rng)), kept, rng)


def _with_wishes(job: Job, models: Sequence[GpuModel], rng: random.Random) -> Job:
    """Weight, age, and for some the types they allow."""
    names = [model.gpu_type.name for model in models]
    chosen = rng.sample(names, (len(names) + 1) // 2) if rng.random() < 0.1 else None
    weight = rng.choices((1.0, 2.0, 4.0), (0.8, 0.15, 0.05))[0]
    return replace(
        job, gpu_types=tuple(sorted(chosen)) if chosen else None, weight=weight, age_s=rng.expovariate(1 / 14_400)
    )


def _goodput_model(
    models: Sequence[GpuModel], most_gpus: int, gpus_per_replica: int, rng: random.Random
) -> GoodputModel:
    """Fitted parameters.

    B0 16..1024 log-uniform and at least one sample per replica, Bmax 4..64 times that; gradient variance over squared
    norm log-uniform 0.1..1000 B0; a T4 takes log-uniform 0.2..200 ms a sample (beta_c), types differ by their speed
    times log-normal(0, 0.25); alpha_c log-uniform 0.02..0.5 beta_c B0; alpha_r log-uniform 0.02..0.5 of the gradient
    time at 4 samples per GPU in the A100's range, alpha_n 1.2..6 times that, beta_r and beta_n log-uniform
    0.001..0.03 of the alphas; gamma uniform 1..6; a GPU holds log-uniform 1/8..1 of B0. On a fifth of the types only
    single replicas have been seen.
    """
    initial = max(round(_log_uniform(rng, 16, 1024)), most_gpus // gpus_per_replica)
    seconds = _log_uniform(rng, 2e-4, 0.2)
    overhead, sync, across = (_log_uniform(rng, 0.02, 0.5), _log_uniform(rng, 0.02, 0.5), rng.uniform(1.2, 6))
    slope, gamma, held = _log_uniform(rng, 1e-3, 3e-2), rng.uniform(1, 6), _log_uniform(rng, 0.125, 1)
    profiles = {}
    for model in models:
        beta_c = seconds / (model.speed * rng.lognormvariate(0, 0.25))
        alpha_c = overhead * beta_c * initial * rng.uniform(0.5, 1)
        alpha_r = sync * (alpha_c + 4 * beta_c) * rng.uniform(0.8, 1.25)
        profiles[model.gpu_type.name] = TypeProfile(
            parameters=ThroughputParameters(
                alpha_c=alpha_c,
                beta_c=beta_c,
                alpha_r=alpha_r,
                beta_r=slope * alpha_r,
                alpha_n=across * alpha_r,
                beta_n=slope * across * alpha_r,
                gamma=gamma,
            ),
            max_local_batch=max(1, round(held * initial * rng.uniform(0.5, 1))),
            single_gpu_only=rng.random() < 0.2,
            gpus_per_replica=gpus_per_replica,
        )
    return GoodputModel(
        batch=BatchRange(initial=initial, maximum=round(initial * _log_uniform(rng, 4, 64))),
        gradient=GradientStatistics(squared_norm=1.0, variance=initial * _log_uniform(rng, 0.1, 1000)),
        profiles=profiles,
    )


def _scaling_table(models: Sequence[GpuModel], max_gpus: int, rng: random.Random) -> ThroughputTable:
    """Throughput n^e on n GPUs, e uniform 0.6..0.98, times speed and log-normal(0, 0.03) noise at every entry."""
    seconds, exponent = _log_uniform(rng, 2e-4, 0.2), rng.uniform(0.6, 0.98)
    return ThroughputTable(
        entries=tuple(
            TableEntry(
                gpu_type=model.gpu_type.name,
                num_gpus=count,
                value=model.speed / seconds * count**exponent * rng.lognormvariate(0, 0.03),
            )
            for model in models
            for count in _counts(model.num_gpus, max_gpus)
        ),
        batch_size=round(_log_uniform(rng, 64, 4096)),
    )


def _counts(node_size: int, most: int) -> list[int]:
    """GPU counts of the configurations of section 3.3 on nodes of a power of two GPUs."""
    within = [1 << k for k in range(node_size.bit_length()) if 1 << k <= most]
    return within + list(range(2 * node_size, most + 1, node_size))


class _Seats:
    """GPUs that are handed out side by side, type by type."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes: dict[str, list[Node]] = {}
        for node in reversed(cluster.nodes):
            if node.state is NodeState.UP and not node.gpus_in_use:
                self._nodes.setdefault(node.gpu_type, []).append(node)
        self._used: dict[str, int] = {}

    def take(self, gpu_type: str, num_gpus: int) -> tuple[NodeGpus, ...] | None:
        """Whole nodes, or an aligned block of the node that is being filled; None where there is no room."""
        nodes = self._nodes.get(gpu_type, [])
        if not nodes:
            return None
        size = nodes[-1].num_gpus
        if num_gpus < size:
            first = -(-self._used.get(gpu_type, 0) // num_gpus) * num_gpus
            if first + num_gpus > size:
                nodes.pop()
                self._used[gpu_type] = 0
                return self.take(gpu_type, num_gpus)
            self._used[gpu_type] = first + num_gpus
            return (NodeGpus(node=nodes[-1].id, gpus=tuple(range(first, first + num_gpus))),)
        # The node that is being filled stays the last one.
        last = len(nodes) - (self._used.get(gpu_type, 0) > 0)
        count = num_gpus // size
        if last < count:
            return None
        taken = nodes[last - count : last]
        del nodes[last - count : last]
        return tuple(NodeGpus(node=node.id, gpus=tuple(range(size))) for node in taken)


def _running(job: Job, seats: _Seats, rng: random.Random) -> Job:
    """The job where it runs, or as it was where its type is full."""
    performance = job.performance
    known: Sequence[str] = ()
    if isinstance(performance, GoodputModel):
        known = tuple(performance.profiles)
    elif isinstance(performance, ThroughputTable):
        known = tuple(sorted({entry.gpu_type for entry in performance.entries}))
    kind = rng.choice([name for name in known if job.gpu_types is None or name in job.gpu_types])
    node_size = next(model.num_gpus for model in GPU_MODELS if model.gpu_type.name == kind)
    wanted = round(_log_uniform(rng, job.min_gpus, job.max_gpus or node_size))
    counts = [count for count in _counts(node_size, wanted) if count >= job.min_gpus]
    current = seats.take(kind, counts[-1]) if counts else None
    if current is None:
        return job
    return replace(job, current=current, num_restarts=rng.randint(0, 5), restart_cost_s=_log_uniform(rng, 15, 250))


def arnold_snapshot(
    free: Sequence[int], num_rows: int, num_columns: int, *, busy: Sequence[int] = (), tp: int = 8
) -> Snapshot:
    """One job whose communication matrix is `num_rows` x `num_columns` nodes of eight GPUs, on minipods.

    `free` and `busy` nodes per minipod; busy ones have all GPUs in use. Every minipod is one tier deep.
    """
    width = len(str(max(len(free) - 1, 1)))
    nodes = [
        Node(
            id=f"m{m:0{width}}-{k:04}",
            gpu_type=H800.name,
            num_gpus=8,
            gpus_in_use=() if k < count else tuple(range(8)),
            path=(f"minipod-{m:0{width}}",),
        )
        for m, (count, taken) in enumerate(zip(free, busy or [0] * len(free), strict=True))
        for k in range(count + taken)
    ]
    cluster = Cluster(gpu_types=(H800,), nodes=tuple(nodes), tiers=(Tier(name="minipod"),), minipod_tier="minipod")
    return Snapshot(cluster=cluster, jobs=(pretraining_job(num_rows, num_columns, tp=tp),))


def pretraining_job(num_rows: int, num_columns: int, *, tp: int = 8) -> Job:
    """Job with this communication matrix on nodes of eight GPUs."""
    return Job(id="llm", parallelism=Parallelism(tp=tp, pp=num_columns, dp=num_rows * 8 // tp))


def dirichlet_split(total: int, num_parts: int, seed: int, *, most: int | None = None) -> tuple[int, ...]:
    """`total` nodes over the parts by a Dirichlet distribution of weight 6; no part gets more than `most`.

    Raises
    ------
    ValueError
        When the parts cannot hold the total.
    """
    if most is not None and most * num_parts < total:
        raise ValueError(f"{num_parts} parts of at most {most} cannot hold {total}")
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    weights = {k: rng.gammavariate(_DIRICHLET_WEIGHT, 1.0) for k in range(num_parts)}
    parts = dict.fromkeys(range(num_parts), 0)
    # What does not fit into full parts is split again among the others.
    while (left := total - sum(parts.values())) > 0:
        open_ = {k: weight for k, weight in weights.items() if most is None or parts[k] < most}
        for k, extra in _apportioned(left, open_).items():
            parts[k] += extra if most is None else min(extra, most - parts[k])
    return tuple(parts.values())


def _apportioned(total: int, weights: Mapping[int, float]) -> dict[int, int]:
    """Shares in proportion to the weights, rounded by largest remainder."""
    whole = sum(weights.values())
    exact = {k: total * weight / whole for k, weight in weights.items()}
    shares = {k: math.floor(value) for k, value in exact.items()}
    by_remainder = sorted(exact, key=lambda k: (shares[k] - exact[k], k))
    for k in by_remainder[: total - sum(shares.values())]:
        shares[k] += 1
    return shares


def even_split(total: int, num_parts: int) -> tuple[int, ...]:
    """Parts that differ by one at most, the larger ones first."""
    return tuple(total // num_parts + (k < total % num_parts) for k in range(num_parts))


def halving_split(total: int, num_parts: int) -> tuple[int, ...]:
    """Each part half of what is left, rounded up; the last part takes the rest."""
    parts, left = [], total
    for k in range(num_parts):
        part = left if k == num_parts - 1 else -(-left // 2)
        parts.append(part)
        left -= part
    return tuple(parts)
