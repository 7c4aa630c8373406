"""Cases of the planners of 3D plans, so small that the exhaustive reference bounds them.

The seed chooses the model. grid: the answer of the grid planner on n GPUs. exhaustive: the reference itself.
incremental: a job on n / 2 GPUs, with the best plan there, grows to n.
"""

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.suite.case import Case, PlannerTask
from models.catalogue import find_model
from models.clock import PhaseClock
from models.parallel_plan import ParallelPlan
from models.parallelism.exhaustive import best_plan
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.planner import plan_on
from models.parallelism.incremental.expand import expand
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from topology.cluster import GpuType
from topology.gpu_catalogue import find_product, gpu_type_of

_MODELS = ("gpt2-350m", "moe-1.3b", "gpt2-1.3b")
_PRODUCTS = ("a100-40gb", "h100")
_COUNTS = (2, 4)
_GLOBAL_BATCH = 256

_Plan = Callable[[GpuType, int, int, PerformanceModel, PhaseClock], ParallelPlan | None]


def planner_cases() -> Iterator[Case]:
    """All cases of the planners of 3D plans."""
    for problem, plan in _PLANNERS.items():
        for product in _PRODUCTS:
            for num_gpus in _COUNTS:
                yield Case(
                    name=f"{problem}/{product}/{num_gpus}",
                    problem=problem,
                    series="",
                    scale=num_gpus,
                    size={"gpus": num_gpus},
                    source=f"{', '.join(_MODELS)} by seed, global batch {_GLOBAL_BATCH}, on {product}",
                    make=partial(_task, plan, product, num_gpus),
                )


def _task(plan: _Plan, product: str, num_gpus: int, seed: int) -> PlannerTask:
    known = find_product(product)
    described = find_model(_MODELS[seed % len(_MODELS)], global_batch=_GLOBAL_BATCH)
    gpu_type, per_node = gpu_type_of(known, described.precision.value), known.gpus_per_node
    return PlannerTask(
        build=partial(virtual_model, described, gpu_type, per_node, -(-num_gpus // per_node)),
        plan=partial(plan, gpu_type, per_node, num_gpus),
        bound=partial(_bound, gpu_type, per_node, num_gpus),
    )


def _grid(
    gpu_type: GpuType, per_node: int, num_gpus: int, model: PerformanceModel, clock: PhaseClock
) -> ParallelPlan | None:
    with clock.phase("solve"):
        loads = roofline_s(model.profile, gpu_type)
        found = plan_on(model, gpu_type.name, per_node, loads, [num_gpus], GridOptions(details=False)).best
    return next((estimate.plan for estimate in found.values()), None)


def _exhaustive(
    gpu_type: GpuType, per_node: int, num_gpus: int, model: PerformanceModel, clock: PhaseClock
) -> ParallelPlan | None:
    with clock.phase("solve"):
        return _best(gpu_type, per_node, num_gpus, model)


def _incremental(
    gpu_type: GpuType, per_node: int, num_gpus: int, model: PerformanceModel, clock: PhaseClock
) -> ParallelPlan | None:
    with clock.phase("base"):
        base = _best(gpu_type, per_node, num_gpus // 2, model)
    if base is None:
        return None
    released = [(str(k // per_node), k % per_node) for k in range(num_gpus // 2, num_gpus)]
    with clock.phase("solve"):
        return expand(model, base, released).steps[-1].plan


def _best(gpu_type: GpuType, per_node: int, num_gpus: int, model: PerformanceModel) -> ParallelPlan | None:
    found = best_plan(model, gpu_type.name, per_node, num_gpus).best
    return None if found is None else found.plan


def _bound(gpu_type: GpuType, per_node: int, num_gpus: int, model: PerformanceModel) -> float:
    """The most samples/s of any plan on at most so many GPUs."""
    results = (best_plan(model, gpu_type.name, per_node, count).best for count in range(1, num_gpus + 1))
    return max((found.throughput for found in results if found is not None), default=0.0)


_PLANNERS: dict[str, _Plan] = {"grid": _grid, "exhaustive": _exhaustive, "incremental": _incremental}
