"""The grid planner (Arena sections 3.2 to 3.4): throughput by GPU count, with the plan that reaches it.

For every GPU count and pipeline degree: the frontier and the proxy plan of `grid` (or Crius' assembled plan), its
iteration time by the performance model or as measured; per count, the best of the pipeline degrees, and of what the
incremental planner finds from all even layouts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from models.parallel_plan import ParallelPlan
from models.parallelism.grid.assembly import MAX_STAGES
from models.parallelism.grid.degrees import compact_degrees
from models.parallelism.grid.evaluation import SearchedGrid, estimate, search_grid
from models.parallelism.grid.options import GridOptions, PlanRule
from models.parallelism.grid.partition import odd_part, stage_sizes
from models.parallelism.grid.space import PlanSpace
from models.parallelism.incremental.cold_start import lay_out
from models.parallelism.node_layouts import capacities
from models.parallelism.results import GridResult, PlanEstimate
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.transformer import JobModel
from stowplan.arrays import FloatArray
from stowplan.errors import InputError
from topology.cluster import GpuType

_LOOKED_AT = 4


def plan_grids(
    model: JobModel,
    gpu_type: GpuType,
    gpus_per_node: int,
    counts: Sequence[int],
    options: GridOptions | None = None,
    calibration: Calibration | None = None,
) -> GridResult:
    """Plan a job on every number of GPUs of one type in `counts`.

    Raises
    ------
    InputError
        When a count or `gpus_per_node` is below 1, or the model's description is wrong.
    """
    if gpus_per_node < 1:
        raise InputError(f"gpus_per_node is {gpus_per_node}; must be at least 1")
    if not counts or min(counts) < 1:
        raise InputError(f"the numbers of GPUs are {list(counts)}; give at least one, none below 1")
    num_nodes = -(-max(counts) // gpus_per_node)
    performance = virtual_model(model, gpu_type, gpus_per_node, num_nodes, calibration)
    loads = roofline_s(performance.profile, gpu_type)
    return plan_on(performance, gpu_type.name, gpus_per_node, loads, counts, options or GridOptions())


def plan_on(
    model: PerformanceModel,
    gpu_type: str,
    gpus_per_node: int,
    loads: FloatArray,
    counts: Sequence[int],
    options: GridOptions,
) -> GridResult:
    """`plan_grids` for a performance model on virtual nodes, and the loads (L,) of its layers (Eq. 2)."""
    result = GridResult(grids=(), proxies={}, best={})
    for num_gpus, space in spaces(model, gpu_type, gpus_per_node, loads, counts, options.num_operators):
        if (result.grids or result.best) and options.is_over:
            break
        grids: list[SearchedGrid] = []
        is_over = is_found = False
        for pp in pipeline_degrees(model, num_gpus, options):
            grids.append(search_grid(space, num_gpus, pp, options))
            is_found = is_found or grids[-1].proxy is not None
            # Where symmetric plans are tried as well, these are quicker to find.
            is_over = (is_found or options.all_plans) and options.is_over
            if is_over:
                break
        if is_over and not is_found:
            break
        beyond = _laid_out(space, num_gpus) if options.all_plans and not is_over else None
        found = _in_detail(grids, beyond, options) if options.details and not is_over else _in_brief(grids, beyond)
        result = GridResult(
            grids=result.grids + found.grids,
            proxies={**result.proxies, **found.proxies},
            best={**result.best, **found.best},
        )
    return result


def _laid_out(space: PlanSpace, num_gpus: int) -> ParallelPlan | None:
    """The best plan outside of the grids, which know fewer partitions."""
    rooms = capacities(num_gpus, space.gpus_per_node)
    return lay_out(space.model, {str(node): room for node, room in enumerate(rooms)})


def _in_detail(searched: Sequence[SearchedGrid], beyond: ParallelPlan | None, options: GridOptions) -> GridResult:
    """Grids of one GPU count with all their plans; of the best ones, also that beyond the grids."""
    grids = tuple(grid.built(options) for grid in searched)
    proxies = [grid.proxy for grid in grids if grid.proxy is not None]
    model = searched[0].space.model
    others = [grid.refined.plan(grid.space) for grid in searched if grid.refined is not None]
    others += [beyond] if beyond is not None else []
    best = [*proxies, *(estimate(plan, model, options) for plan in others)]
    key = grids[0].gpu_type, grids[0].num_gpus
    return GridResult(
        grids=grids,
        proxies={key: _fastest(proxies)} if proxies else {},
        best={key: _fastest(best)} if best else {},
    )


def _in_brief(searched: Sequence[SearchedGrid], beyond: ParallelPlan | None) -> GridResult:
    """The best plan of one GPU count, or its grids when there is none."""
    found = [(grid, plan) for grid in searched for plan in (grid.proxy, grid.refined) if plan is not None]
    best = [] if beyond is None else [estimate(beyond, searched[0].space.model, GridOptions())]
    # Searches know only roughly what stages send: the fastest by what they know are looked at once more.
    nearest = sorted(found, key=lambda pair: pair[1].seconds)[
        : _LOOKED_AT if searched[0].space.model.send_receive else 1
    ]
    # Often the proxy plan is the refined one, too.
    different = {(plan.layers, plan.degrees, plan.num_micro_batches): (grid, plan) for grid, plan in nearest}
    best += [estimate(plan.plan(grid.space), grid.space.model, GridOptions()) for grid, plan in different.values()]
    if not best:
        return GridResult(grids=tuple(grid.built(GridOptions()) for grid in searched), proxies={}, best={})
    return GridResult(grids=(), proxies={}, best={(searched[0].space.gpu_type, searched[0].num_gpus): _fastest(best)})


def spaces(
    model: PerformanceModel,
    gpu_type: str,
    gpus_per_node: int,
    loads: FloatArray,
    counts: Sequence[int],
    num_operators: int,
) -> Iterator[tuple[int, PlanSpace]]:
    """Every count, ascending, with the tables for it; counts of one odd part share theirs, on one node or on several:
    what stages send goes over other links there."""
    largest: dict[tuple[int, bool], int] = {}
    for count in counts:
        unit = odd_part(count), count <= gpus_per_node
        largest[unit] = max(count, largest.get(unit, 0))
    one_node = replace(model.fabric, hosts={"0": model.fabric.host("0")})
    made = {
        unit: PlanSpace(
            model=replace(model, fabric=one_node) if unit[1] else model,
            gpu_type=gpu_type,
            gpus_per_node=gpus_per_node,
            degrees=compact_degrees(model.profile, stage_sizes(count), gpus_per_node),
            loads=loads,
            num_operators=min(num_operators, model.profile.num_layers),
        )
        for unit, count in largest.items()
    }
    for count in sorted(set(counts)):
        yield count, made[odd_part(count), count <= gpus_per_node]


def pipeline_degrees(model: PerformanceModel, num_gpus: int, options: GridOptions) -> tuple[int, ...]:
    """Pipeline degrees of the grids of a GPU count."""
    if options.pipeline_degrees is not None:
        return tuple(sorted(set(options.pipeline_degrees)))
    if not model.profile.has_pipelines:
        return (1,)
    most = min(num_gpus, model.profile.num_layers)
    if options.rule is PlanRule.CRIUS:
        return tuple(range(1, min(most, options.num_operators, MAX_STAGES) + 1))
    deep = [1 << k for k in range(most.bit_length()) if 1 << k > options.num_operators]
    return (*range(1, min(most, options.num_operators) + 1), *deep)


def _fastest(estimates: Sequence[PlanEstimate]) -> PlanEstimate:
    return min(estimates, key=lambda estimate: estimate.iteration.total_s)
