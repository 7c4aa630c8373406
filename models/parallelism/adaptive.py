"""Throughput of a job by GPU type and count, with the best 3D plan each, as policies need it: quick, and remembered."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.planner import plan_grids
from models.parallelism.results import GridResult
from models.performance.iteration.coefficients import Calibration, GpuCoefficients, SizeCoefficients
from models.transformer import JobModel
from stowplan.errors import InputError
from topology.cluster import Cluster, GpuType, NodeState

# Results that are remembered, one per model, GPU type, counts and calibration: some 100 kB each.
_MAX_REMEMBERED = 512

_Calibration = tuple[tuple[tuple[str, GpuCoefficients], ...], SizeCoefficients | None]


def adaptive_plans(
    model: JobModel,
    cluster: Cluster,
    counts_by_type: Mapping[str, Sequence[int]],
    calibration: Calibration | None = None,
    fractions: Mapping[tuple[str, int], float] | None = None,
) -> GridResult:
    """Best plans of a job for numbers of GPUs of every type, on virtual nodes.

    Nodes have as many GPUs as the largest node of their type that is not down: more GPUs are whole nodes of that size.
    The result has the grids of those counts only that have no plan, with the reasons, and no proxy plans. It is
    remembered by model, not by job: ask for the same counts for all jobs of a cluster.

    Parameters
    ----------
    fractions
        (GPU type, count) -> share of the inter-node bandwidth that the nodes have between them; 1 where it is missing.

    Raises
    ------
    InputError
        When a GPU type is not known or all its nodes are down, a count is below 1, or the model's description is wrong.
    """
    kinds = {kind.name: kind for kind in cluster.gpu_types}
    sizes: dict[str, int] = {}
    for node in cluster.nodes:
        if node.state is not NodeState.DOWN:
            sizes[node.gpu_type] = max(node.num_gpus, sizes.get(node.gpu_type, 0))
    unknown = sorted(set(counts_by_type) - set(sizes))
    if unknown:
        raise InputError(f"the cluster has no GPUs of type {unknown} that are not down; it has {sorted(sizes)}")
    known = _key(calibration)
    parts = [
        _of_type(model, slowed(kinds[name], fraction), sizes[name], of_fraction, known)
        for name, counts in counts_by_type.items()
        for fraction, of_fraction in _by_fraction(name, counts, fractions or {})
    ]
    return GridResult(
        grids=tuple(grid for part in parts for grid in part.grids),
        proxies={},
        best={key: estimate for part in parts for key, estimate in part.best.items()},
    )


def slowed(gpu_type: GpuType, fraction: float) -> GpuType:
    """The type with a share of its inter-node bandwidth."""
    return replace(gpu_type, inter_node_bandwidth_bytes_per_s=gpu_type.inter_node_bandwidth_bytes_per_s * fraction)


def _by_fraction(
    name: str, counts: Sequence[int], fractions: Mapping[tuple[str, int], float]
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Counts of a type by the share of the bandwidth that their nodes have."""
    shares = {count: fractions.get((name, count), 1.0) for count in sorted(set(counts))}
    for fraction in sorted(set(shares.values()), reverse=True):
        yield fraction, tuple(count for count, share in shares.items() if share == fraction)


def forget_plans() -> None:
    """Empty the memory."""
    _of_type.cache_clear()


@lru_cache(maxsize=_MAX_REMEMBERED)
def _of_type(
    model: JobModel, gpu_type: GpuType, gpus_per_node: int, counts: tuple[int, ...], calibration: _Calibration | None
) -> GridResult:
    known = None if calibration is None else Calibration(gpus=dict(calibration[0]), sizes=calibration[1])
    return plan_grids(model, gpu_type, gpus_per_node, counts, GridOptions(details=False), known)


def _key(calibration: Calibration | None) -> _Calibration | None:
    """The calibration as a key: when it was measured makes no difference."""
    if calibration is None:
        return None
    return tuple(sorted(calibration.gpus.items(), key=lambda pair: pair[0])), calibration.sizes
