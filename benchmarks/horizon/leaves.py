"""Traces of Sia on 64 T4 below leaves: what it is worth to choose within what jobs of several nodes lie.

Jobs, applications and rules are those of `benchmarks.replays.sia_replays`, on 16 nodes of 4 T4 in place of three types,
four nodes to a leaf, with a quarter of the bandwidth between leaves (4:1). Where a job lies decides how long its
synchronisation takes, in truth and in what is measured of it. `hours`: jobs that are submitted until then alone.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from benchmarks.horizon.case import SIA_BY_TIME, Asked, Case, Variant, at_events, of_sia
from benchmarks.workloads.published.sia_traces import sia_cluster
from executor.simulation.setup import ReplaySetup
from topology.cluster import Cluster, Node, Tier

_TRACES = ("helios/workload-1", "helios/workload-2", "philly/workload-1")
_GPU_TYPE = "aws"
_LEAVES, _NODES_PER_LEAF, _GPUS_PER_NODE = 4, 4, 4
_ACROSS = 0.25
_S_PER_HOUR = 3600.0


def leaf_cases(asked: Asked) -> Iterator[Case]:
    """With placement classes, and without: each job is taken to lie where nodes spread least."""
    whole = at_events(asked)
    variants = (
        whole,
        replace(whole, name="no placement classes", policy=asked.horizon(placement_classes=False)),
        SIA_BY_TIME,
    )
    for trace, variant, seed in product(_TRACES, variants, range(asked.seeds)):
        make = partial(_on_leaves, trace, variant, seed, asked.hours)
        yield Case(trace=trace, variant=variant, seed=seed, make=make)


def leaf_cluster() -> Cluster:
    """See above."""
    nodes = (
        Node(id=f"n{k:02}", gpu_type=_GPU_TYPE, num_gpus=_GPUS_PER_NODE, path=(f"leaf{k // _NODES_PER_LEAF}",))
        for k in range(_LEAVES * _NODES_PER_LEAF)
    )
    # Of all types of Sia's cluster: profiles know them.
    known = sia_cluster().gpu_types
    return Cluster(gpu_types=known, nodes=tuple(nodes), tiers=(Tier(name="leaf"),), core_bandwidth_fraction=_ACROSS)


def _on_leaves(trace: str, variant: Variant, seed: int, hours: float | None) -> ReplaySetup:
    setup = of_sia(trace, variant, seed)
    jobs = setup.trace.jobs
    if hours is not None:
        jobs = tuple(job for job in jobs if job.submit_s < hours * _S_PER_HOUR)
    return replace(setup, cluster=leaf_cluster(), trace=replace(setup.trace, jobs=jobs))
