"""What checks say of single jobs: which GPUs they may get, on which they may stay, and what their points are worth.

Shares no code with what formulations use for that (`job_configurations`, `admission`), so that a fault there is found.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from models.allocation.plan_check import TOLERANCE
from models.workload import Adaptivity, Job
from topology.cluster import Node, NodeState

Shape = tuple[str, int, int]
"""GPU type, nodes and GPUs."""

# Points are whole multiples of the weights, from the least multiple up to these that makes them integers.
_MOST_MULTIPLES, _MOST_POINTS = 100, 10_000


def node_sizes(shapes: Iterable[Shape]) -> Counter[str]:
    """The most GPUs of one node, by GPU type."""
    sizes: Counter[str] = Counter()
    for kind, num_nodes, num_gpus in shapes:
        if num_nodes == 1:
            sizes[kind] = max(num_gpus, sizes[kind])
    return sizes


def allows(job: Job, gpu_type: str, num_gpus: int) -> bool:
    """Whether bounds, types and adaptivity of a job allow so many GPUs of a type."""
    upper = job.min_gpus if job.adaptivity is Adaptivity.RIGID else job.max_gpus
    typed = job.gpu_types is None or gpu_type in job.gpu_types
    return typed and num_gpus >= job.min_gpus and (upper is None or num_gpus <= upper)


def held_shape(job: Job, nodes: Mapping[str, Node]) -> Shape | None:
    """On what the job runs; None when it waits, also where a node of it is down."""
    parts = job.current or ()
    if not parts or any(nodes[part.node].state is NodeState.DOWN for part in parts):
        return None
    kind = nodes[parts[0].node].gpu_type
    return kind, len({part.node for part in parts}), sum(len(part.gpus) for part in parts)


def kept_shape(job: Job, nodes: Mapping[str, Node], sizes: Mapping[str, int]) -> Shape | None:
    """The shape in which a job that is not pinned may stay; None where it waits or has to move: a node takes no work,
    or it has parts of nodes where there would be whole ones. `sizes`: of whole nodes, by GPU type."""
    parts = job.current or ()
    if len(parts) == 1:
        # Most jobs: counting nodes takes longer than all of this.
        host, num_gpus = nodes[parts[0].node], len(parts[0].gpus)
        size = sizes[host.gpu_type] if host.state is NodeState.UP else 0
        return (host.gpu_type, 1, num_gpus) if num_gpus < size or num_gpus == host.num_gpus == size else None
    held = held_shape(job, nodes)
    if held is None:
        return None
    gpus: Counter[str] = Counter()
    for part in job.current or ():
        gpus[part.node] += len(part.gpus)
    hosts, size = [nodes[name] for name in gpus], sizes[held[0]]
    whole = all(host.num_gpus == gpus[host.id] == size for host in hosts)
    up = all(host.state is NodeState.UP for host in hosts)
    return held if up and (whole or held[2] < size) else None


def point_rewards(weights: Mapping[str, float], most_throughput: float) -> dict[str, float]:
    """What each job adds that gets its points, by id: each is worth more than all throughput.

    Parameters
    ----------
    weights
        Of the jobs that have points to get.
    most_throughput
        What all terms of throughput together cannot exceed.
    """
    if not weights:
        return {}
    least = min(weights.values())
    ratios = {job_id: weight / least for job_id, weight in weights.items()}
    largest = max(1, min(_MOST_MULTIPLES, math.floor(_MOST_POINTS / max(ratios.values()))))
    wholes = (k for k in range(1, largest + 1) if all(_is_whole(k * ratio) for ratio in ratios.values()))
    multiple = next(wholes, largest)
    return {job_id: (1.0 + most_throughput) * round(multiple * ratio) for job_id, ratio in ratios.items()}


def _is_whole(number: float) -> bool:
    return abs(number - round(number)) <= TOLERANCE * number
