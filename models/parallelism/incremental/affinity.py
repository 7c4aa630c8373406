"""The order in which a job takes released GPUs (Suika section 3.2.1).

    Affinity(r) = max over the job's GPUs r0 of EffectiveBandwidth(r, r0),   highest first

EffectiveBandwidth is that inside the node where r and r0 share it, else that between their nodes. Ties go by (units of
the topology, node, GPU), so that GPUs which are close to each other come one after another (footnote 5).
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from models.parallel_plan import Gpu
from models.performance.iteration.fabric import Fabric
from topology.bandwidth import num_shared


def affinity_order(fabric: Fabric, held: Iterable[str], released: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Sort released GPUs (node, GPU) for a job on the nodes `held`.

    Raises
    ------
    InputError
        When the fabric does not have one of the nodes.
    """
    own = set(held)
    # What counts of the job's nodes is where they are and how fast: most share both.
    places = {(host.path, host.inter_bytes_per_s) for host in map(fabric.host, own)}
    gpus = set(released)
    affinity = {node: _affinity(fabric, node, own, places) for node in {node for node, _ in gpus}}
    return tuple(sorted(gpus, key=lambda gpu: (-affinity[gpu[0]], fabric.hosts[gpu[0]].path, *gpu)))


def _affinity(fabric: Fabric, node: str, own: set[str], places: set[tuple[tuple[str, ...], float]]) -> float:
    host = fabric.host(node)
    between = fabric.inter_share * max(
        fabric.fractions[num_shared(host.path, path)] * min(host.inter_bytes_per_s, inter) for path, inter in places
    )
    return max(fabric.intra_bytes_per_s(node), between) if node in own else between


def units(order: Sequence[Gpu], size: int, most: float) -> list[tuple[Gpu, ...]]:
    """Cut the order into pieces of at most `size` GPUs of one node, until `most` GPUs are reached."""
    pieces: list[tuple[Gpu, ...]] = []
    taken = 0
    for _, run in groupby(order, key=lambda gpu: gpu[0]):
        gpus = tuple(run)
        for start in range(0, len(gpus), size):
            if taken >= most:
                return pieces
            pieces.append(gpus[start : start + size])
            taken += len(pieces[-1])
    return pieces
