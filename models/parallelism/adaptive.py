"""Throughput of a job by GPU type and count, with the best 3D plan each, as policies need it: quick, and remembered.

Where a job leaves open how it trains, every way that is open is planned, as planners of one job do it, and the fastest
is taken. Pipelines are interleaved where the software has that.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from models.parallelism.even import even_plans
from models.parallelism.grid.evaluation import estimate
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.planner import plan_grids
from models.parallelism.results import GridResult, PlanEstimate
from models.parallelism.training import AS_THE_MODEL_SAYS, Choices, Training
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.pipeline_schedule import PipelineSchedule
from models.software import FEATURES
from models.transformer import JobModel
from stowplan.errors import InputError
from stowplan.living import OfLiving
from topology.cluster import Cluster, GpuType, NodeState

# Results that are remembered, one per model, GPU type, counts and calibration: some 100 kB each.
_MAX_REMEMBERED = 512
_sizes: OfLiving[Cluster, dict[str, int]] = OfLiving()
# Policies ask for many plans, and often.
_OPTIONS = GridOptions(details=False, schedules=(PipelineSchedule.ONE_F_ONE_B,))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A job, and the GPUs of one type that it may get; `key` stands for the calibration."""

    model: JobModel
    choices: Choices
    gpu_type: GpuType
    gpus_per_node: int
    counts: tuple[int, ...]
    key: Hashable
    calibration: Calibration | None = field(compare=False)


def adaptive_plans(
    model: JobModel,
    cluster: Cluster,
    counts_by_type: Mapping[str, Sequence[int]],
    calibration: Calibration | None = None,
    fractions: Mapping[tuple[str, int], float] | None = None,
    choices: Choices = AS_THE_MODEL_SAYS,
) -> GridResult:
    """Best plans of a job for numbers of GPUs of every type, on virtual nodes.

    Nodes have as many GPUs as the largest node of their type that is not down: more GPUs are whole nodes of that size.
    The result has the grids of those counts only that have no plan, with the reasons, and no proxy plans. It is
    remembered by model, not by job: ask for the same counts for all jobs of a cluster.

    Parameters
    ----------
    fractions
        (GPU type, count) -> share of the inter-node bandwidth that the nodes have between them; 1 where it is missing.
    choices
        What of the training is open; plans say then how they train.

    Raises
    ------
    InputError
        When a GPU type is not known or all its nodes are down, a count is below 1, or the model's description is wrong.
    """
    kinds = {kind.name: kind for kind in cluster.gpu_types}
    sizes = node_sizes(cluster)
    unknown = sorted(set(counts_by_type) - set(sizes))
    if unknown:
        raise InputError(f"the cluster has no GPUs of type {unknown} that are not down; it has {sorted(sizes)}")
    parts = [
        _of_type(
            _Asked(
                model=model,
                choices=choices,
                gpu_type=slowed(kinds[name], fraction),
                gpus_per_node=sizes[name],
                counts=of_fraction,
                key=None if calibration is None else calibration.key,
                calibration=calibration,
            )
        )
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


def node_sizes(cluster: Cluster) -> Mapping[str, int]:
    """GPU type -> GPUs of its largest node that is not down."""
    sizes = _sizes.get(cluster)
    if sizes is None:
        sizes = {}
        for node in cluster.nodes:
            if node.state is not NodeState.DOWN:
                sizes[node.gpu_type] = max(node.num_gpus, sizes.get(node.gpu_type, 0))
        _sizes.put(cluster, sizes)
    return sizes


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
def _of_type(asked: _Asked) -> GridResult:
    """The fastest plan of all ways to train, and the grids of counts for which none has a plan."""
    if not asked.choices.are_open:
        return _of_model(asked, asked.model)
    ways = [(Training.of(model), _of_model(asked, model)) for model in asked.choices.models(asked.model)]
    best: dict[tuple[str, int], PlanEstimate] = {}
    for training, way in ways:
        for key, found in way.best.items():
            if key not in best or found.throughput > best[key].throughput:
                best[key] = replace(found, plan=replace(found.plan, training=training))
    left = [grid for _, way in ways for grid in way.grids if (grid.gpu_type, grid.num_gpus) not in best]
    return GridResult(grids=tuple(left), proxies={}, best=best)


def _of_model(asked: _Asked, model: JobModel) -> GridResult:
    """Plans of one way to train: the grids', or symmetric ones of the kinds that the software has where these are
    faster."""
    kind, size = asked.gpu_type, asked.gpus_per_node
    result = plan_grids(model, kind, size, asked.counts, _OPTIONS, asked.calibration)
    if not FEATURES[model.software].virtual_stages:
        return result
    best = dict(result.best)
    for count in asked.counts:
        key = kind.name, count
        known = [best[key]] if key in best else []
        fastest = max((*known, *_even(asked, model, count)), key=lambda found: found.throughput, default=None)
        if fastest is not None:
            best[key] = fastest
    left = [grid for grid in result.grids if (grid.gpu_type, grid.num_gpus) not in best]
    return GridResult(grids=tuple(left), proxies={}, best=best)


def _even(asked: _Asked, model: JobModel, count: int) -> Iterator[PlanEstimate]:
    """The best symmetric plans of each kind."""
    kind, size = asked.gpu_type, asked.gpus_per_node
    performance = virtual_model(model, kind, size, -(-count // size), asked.calibration)
    found = even_plans(performance, kind.name, size, count, roofline_s(performance.profile, kind), _OPTIONS)
    for plan in found.found:
        yield estimate(plan, performance, _OPTIONS)
