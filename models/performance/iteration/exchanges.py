r"""What replicas exchange that share sequences (context parallelism) or experts (expert parallelism).

Ring attention (Liu et al. 2023) of c replicas: each holds the keys and values of its tokens, and passes what it has to
the next one c - 1 times, while it computes attention with them. Backwards their gradients go with them, twice as much.

    exposed forward    (c - 1) max(0, V - A / c)           V: time to pass keys and values on, A: attention forward
    exposed backward   (c - 1) max(0, 2 V - B / c)         B: attention backward; and forward again if it is repeated

Causal masks leave every pair of replicas as much to do where each has an early and a late part of the sequence.

Experts of e replicas: every layer that has experts sends each token to those that work on it, and gets it back: two
all-to-alls forward, the same for gradients backward (and those of the forward pass again if it is repeated), of which
nothing is hidden. Of what a replica sends, one e-th goes to each of the others.

Links: inside a node every GPU has links of its own. Between nodes all that leaves a node at the same time shares its
network bandwidth, of which a GPU has its part at most: that of its own network card.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from models.performance.iteration.fabric import Fabric, Host
from models.performance.iteration.kernels import KernelCurve, attention_passes_s
from stowplan.arrays import FloatArray


def ring_s_per_byte(fabric: Fabric, nodes: Sequence[str], tp: int, cp: int) -> float:
    """Seconds until every replica has passed a byte on, the slowest counts.

    Parameters
    ----------
    nodes
        Of the replicas of a stage, of which every `cp` are a ring; a replica's `tp` GPUs send a part each.
    """
    inside, leaving = 0.0, defaultdict[str, list[float]](list)
    for ring in _groups(nodes, cp):
        for here, there in zip(ring, (*ring[1:], ring[0]), strict=True):
            if here == there:
                inside = max(inside, 1.0 / tp / fabric.intra_bytes_per_s(here))
            else:
                leaving[here].append(1.0 / fabric.send_receive_bytes_per_s(here, there))
    return max(inside, _over_network(fabric, leaving, tp))


def all_to_all_s_per_byte(fabric: Fabric, nodes: Sequence[str], tp: int, ep: int) -> float:
    """Seconds until every replica has sent a byte to its group, in equal parts to itself and all others; arguments as
    above, every `ep` replicas are a group."""
    inside, leaving = 0.0, defaultdict[str, list[float]](list)
    for group in _groups(nodes, ep):
        members = Counter(group)
        alike = _alike(fabric, members)
        for here, count in members.items():
            inside = max(inside, (count - 1) / ep / tp / fabric.intra_bytes_per_s(here))
            away = 0.0
            for others, replicas in alike:
                there = next((node for node in others if node != here), None)
                if there is not None:
                    left = replicas - (count if here in others else 0)
                    away += left / ep / fabric.group_bytes_per_s((here, there))
            leaving[here] += [away] * count
    return max(inside, _over_network(fabric, leaving, tp))


def _alike(fabric: Fabric, members: Mapping[str, int]) -> list[tuple[set[str], int]]:
    """Nodes that are the same to others, and how many members they have together."""
    found = defaultdict[Host, set[str]](set)
    for node in members:
        found[fabric.host(node)].add(node)
    return [(nodes, sum(members[node] for node in nodes)) for nodes in found.values()]


def _groups(nodes: Sequence[str], degree: int) -> Iterator[Sequence[str]]:
    return (nodes[k : k + degree] for k in range(0, len(nodes), degree))


def _over_network(fabric: Fabric, leaving: dict[str, list[float]], tp: int) -> float:
    """Seconds until the slowest node has sent; `leaving`: what each replica on it would take by itself with all of its
    network bandwidth."""
    return max(
        (max(sum(times), (fabric.host(node).num_gpus or tp) / tp * max(times)) for node, times in leaving.items()),
        default=0.0,
    )


def ring_passes_s(curve: KernelCurve, batch: FloatArray, tp: FloatArray, cp: int, s_per_byte: FloatArray) -> FloatArray:
    """What ring attention adds to both passes of all layers, (2, ...); `batch` and the kernels are of replicas that
    share their sequences (`KernelCurve.shared`). Arguments broadcast."""
    found = np.zeros((2, *np.broadcast_shapes(batch.shape, tp.shape, s_per_byte.shape)))
    for layer, count in curve.layers:
        forward, backward = attention_passes_s(layer, curve.machine, batch / tp)
        passing = batch * layer.key_value_bytes * s_per_byte
        there = (cp - 1) * np.maximum(passing - forward / cp, 0.0)
        back = (cp - 1) * np.maximum(2.0 * passing - backward / cp, 0.0)
        found += count * np.array([there, back + there if layer.repeats_layer else back])
    return found
