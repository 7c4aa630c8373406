"""Clusters in use, and pre-training jobs that are to start within weeks. Made up; everything random is seeded.

Nine of ten nodes are in use by jobs on whole nodes of one minipod: sizes 1 to 24, medians of the time left lognormal
around two and a half days, quantiles as wide as predictions of unlike jobs are. One in ten cannot be preempted. Two
minipods are maintained for half a day each, one arrives after nine days.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import groupby

from benchmarks.workloads.generators import H800, even_split
from models.forecast.lasting import Lasting
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import Cluster, Node, Tier

DAY_S = 86_400.0
_IN_USE = 0.9
_SIZES = (1, 2, 4, 8, 12, 16, 24)
_PROBABILITIES, _SHARES = (0.1, 0.5, 0.9, 0.99), (0.3, 1.0, 2.5, 5.0)
# Rows and columns of the matrix for 10,000 nodes, first day, days that it may wait, days that it lasts.
_WANTED = ((46, 8, 14, 14, 30), (64, 16, 7, 28, 20), (32, 8, 3, 28, 10), (24, 12, 1, 42, 14), (100, 16, 10, 28, 25))


def generated_cluster(num_nodes: int, num_minipods: int) -> Cluster:
    """Nodes of eight H800, minipods of one size."""
    width = len(str(num_minipods))
    nodes = [
        Node(id=f"m{m:0{width}}-{n:04}", gpu_type=H800.name, num_gpus=8, path=(f"minipod-{m:0{width}}",))
        for m, size in enumerate(even_split(num_nodes, num_minipods))
        for n in range(size)
    ]
    return Cluster(gpu_types=(H800,), nodes=tuple(nodes), tiers=(Tier(name="minipod"),), minipod_tier="minipod")


def weeks_snapshot(cluster: Cluster, wanted: Sequence[Job], seed: int) -> Snapshot:
    """The cluster in use, with a calendar, and jobs to be planned."""
    random_ = random.Random(seed)  # noqa: S311 - seeded, not secret
    minipods = [
        [node.id for node in nodes]
        for _, nodes in groupby(sorted(cluster.nodes, key=lambda node: node.path), key=lambda node: node.path)
    ]
    running = tuple(_running(random_, minipods[:-1]))
    return Snapshot(cluster=cluster, jobs=(*wanted, *running), calendar=_calendar(minipods))


def wanted_jobs(num_nodes: int) -> tuple[Job, ...]:
    """Five jobs that would take 37 % of 10,000 nodes together; of a smaller cluster at most as much."""
    share = min(1.0, num_nodes / 10_000)
    return tuple(
        _wanted(f"llm-{k}", max(1, int(rows * share)), columns if share > 0.1 else 2, first, patience, days)
        for k, (rows, columns, first, patience, days) in enumerate(_WANTED)
    )


def leads_job() -> Job:
    """2,944 GPUs in two weeks or up to two weeks later, for thirty days."""
    return _wanted("llm", *_WANTED[0])


def _wanted(name: str, rows: int, columns: int, first: float, patience: float, days: float) -> Job:
    return Job(
        id=name,
        parallelism=Parallelism(tp=8, pp=columns, dp=rows),
        earliest_start_s=first * DAY_S,
        latest_start_s=(first + patience) * DAY_S,
        lasting=Lasting(probabilities=(0.1, 0.5, 0.9), seconds=(0.9 * days * DAY_S, days * DAY_S, 1.1 * days * DAY_S)),
    )


def _running(random_: random.Random, minipods: Sequence[Sequence[str]]) -> Iterator[Job]:
    for m, nodes in enumerate(minipods):
        first, last = 0, round(_IN_USE * len(nodes))
        while first < last:
            size = min(random_.choice(_SIZES), last - first)
            median_s = random_.lognormvariate(0.9, 1.1) * DAY_S
            yield Job(
                id=f"job-{m}-{first}",
                current=tuple(NodeGpus(node=node, gpus=tuple(range(8))) for node in nodes[first : first + size]),
                preemptible=random_.random() >= 0.1,
                restart_cost_s=900.0,
                lasting=Lasting(probabilities=_PROBABILITIES, seconds=tuple(share * median_s for share in _SHARES)),
            )
            first += size


def _calendar(minipods: Sequence[Sequence[str]]) -> tuple[CalendarEntry, ...]:
    arrival = CalendarEntry(name="arrival", kind=EntryKind.ARRIVAL, from_s=9 * DAY_S, nodes=tuple(minipods[-1]))
    maintained = tuple(
        CalendarEntry(
            name=f"maintenance {m}",
            kind=EntryKind.MAINTENANCE,
            from_s=day * DAY_S,
            until_s=(day + 0.5) * DAY_S,
            nodes=tuple(minipods[m]),
        )
        for m, day in ((0, 21), (len(minipods) // 2, 35))
    )
    return (arrival, *maintained)
