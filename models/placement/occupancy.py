"""Who sits where before a plan: what a new plan may hand out, and which jobs it must leave alone.

GPUs of a node are a bit mask: bit g stands for GPU g. Nodes are named by their position in `Cluster.nodes`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.roll import roll_of, row_of, rows_that_say
from models.workload import Job, NodeGpus, Snapshot
from stowplan.arrays import Mask, none_of
from stowplan.living import OfUnchanged, found_once
from topology.cluster import Cluster, NodeState

Slices = tuple[tuple[int, int], ...]
"""Node positions with the GPU mask taken on each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Occupancy:
    """The state that a plan starts from.

    free_masks: per node the GPUs that the plan may hand out: not in use by outside work, not held by a pinned job,
    none on drained and down nodes. GPUs of other running jobs are free: the plan may preempt them.
    running: job id -> where it runs; a job with a node that is down does not run, it is planned as waiting.
    held: the same of each job (J,) of the snapshot, as objects, nothing for one that does not run; read-only.
    pinned: ids of the non-preemptible running jobs; they keep exactly their GPUs, also on drained nodes.
    """

    node_index: Mapping[str, int]
    free_masks: tuple[int, ...]
    running: Mapping[str, Slices]
    held: NDArray[Any]
    pinned: frozenset[str]

    def keepable(self, job_id: str) -> bool:
        """Whether the job may stay where it is: it is pinned, or all its nodes still take work."""
        slices = self.running.get(job_id)
        if slices is None:
            return False
        return job_id in self.pinned or all(mask & ~self.free_masks[node] == 0 for node, mask in slices)

    def is_pinned(self, jobs: Sequence[Job]) -> Mask:
        """Whether each job (J,) is pinned; read-only."""
        if not self.pinned:
            # Nearly always, and asked several times.
            return none_of(len(jobs))
        return np.array([job.id in self.pinned for job in jobs], dtype=np.bool_)


_read: OfUnchanged[Snapshot, Occupancy] = OfUnchanged()


def occupancy(snapshot: Snapshot, *, all_stay: bool = False) -> Occupancy:
    """Read the state off the snapshot; with `all_stay`, every running job counts as not preemptible."""
    known = _read.get(snapshot, (), all_stay)
    if known is None:
        known = _occupancy(snapshot, all_stay=all_stay)
        _read.put(snapshot, (), all_stay, known)
    return known


def _occupancy(snapshot: Snapshot, *, all_stay: bool) -> Occupancy:
    held = _held(snapshot)
    running = _by_id(snapshot, held)
    pinned = frozenset(running)
    if not all_stay:
        pinned &= {snapshot.jobs[row].id for row in rows_that_say(snapshot, "preemptible")}
    free_masks = list(_free_in(snapshot.cluster))
    for job_id in pinned:
        for node, mask in running[job_id]:
            free_masks[node] &= ~mask
    index = node_index(snapshot.cluster)
    return Occupancy(node_index=index, free_masks=tuple(free_masks), running=running, held=held, pinned=pinned)


@found_once
def node_index(cluster: Cluster) -> Mapping[str, int]:
    """Position of each node, by its id."""
    return {node.id: i for i, node in enumerate(cluster.nodes)}


@found_once
def _free_in(cluster: Cluster) -> Sequence[int]:
    """What nodes have beside outside work."""
    return [
        0
        if node.state is not NodeState.UP
        # Most nodes have nothing in use; a call for each would be most of the time on a large cluster.
        else (1 << node.num_gpus) - 1 & ~mask_of(node.gpus_in_use)
        if node.gpus_in_use
        else (1 << node.num_gpus) - 1
        for node in cluster.nodes
    ]


@found_once
def _down_in(cluster: Cluster) -> Set[str]:
    return {node.id for node in cluster.nodes if node.state is NodeState.DOWN}


def running_jobs(snapshot: Snapshot) -> Mapping[str, Slices]:
    """`running` of the occupancy alone."""
    return _by_id(snapshot, _held(snapshot))


def _by_id(snapshot: Snapshot, held: NDArray[Any]) -> Mapping[str, Slices]:
    slices = held.tolist()
    return dict(compress(zip(row_of(snapshot), slices, strict=True), slices))


def _held(snapshot: Snapshot) -> NDArray[Any]:
    """Where jobs (J,) run; nothing where a node of theirs is down."""
    jobs, cluster = snapshot.jobs, snapshot.cluster
    index = node_index(cluster)

    def held(rows: list[int]) -> Iterator[Slices]:
        down = _down_in(cluster)
        for row in rows:
            current = jobs[row].current
            if not current or (down and any(part.node in down for part in current)):
                yield ()
            else:
                yield _slices(current, index)

    return roll_of(snapshot).each("held", np.object_, held, same=(cluster,))


def _slices(current: tuple[NodeGpus, ...], node_index: Mapping[str, int]) -> Slices:
    masks: dict[int, int] = {}
    for part in current:
        node = node_index[part.node]
        masks[node] = masks.get(node, 0) | mask_of(part.gpus)
    return tuple(sorted(masks.items()))


def mask_of(gpus: Iterable[int]) -> int:
    """Set the bit of every GPU index."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask


@lru_cache(maxsize=4096)
def gpus_of(mask: int) -> tuple[int, ...]:
    """GPU indices of the set bits, ascending."""
    return tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)


_node_id = attrgetter("node")


def node_gpus(slices: Slices, snapshot: Snapshot) -> tuple[NodeGpus, ...]:
    """Turn positions and masks into the public form, ordered by node id."""
    nodes = snapshot.cluster.nodes
    parts = [NodeGpus(node=nodes[node].id, gpus=gpus_of(mask)) for node, mask in slices]
    if len(parts) > 1:
        parts.sort(key=_node_id)
    return tuple(parts)
