"""Runtime pruning (Arena section 3.6): which plans must a tuner still try, given the grids?

1. The pipeline degree is that of the best grid G_b, the one with the fastest proxy plan.
2. Plans that are more imbalanced than the most imbalanced one of G_b's frontier are left out. Imbalance is the
   computation bias (Eq. 3).
3. A stage with the operators of a stage of the frontier has its GPUs and its intra-stage parallelism.

Plans are counted before memory and batch are looked at, on both sides; `plans` gives only the legal ones.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product

import numpy as np

from models.parallel_plan import ParallelPlan
from models.parallelism.layout import build_plan, stage_places
from models.parallelism.options import GridOptions
from models.parallelism.partition import odd_part
from models.parallelism.planner import spaces
from models.parallelism.results import Grid, GridResult
from models.parallelism.space import PlanSpace
from models.performance.coefficients import Calibration
from models.performance.modelling import virtual_model
from models.performance.whitebox import roofline_s
from models.transformer import JobModel
from stowplan.errors import InputError
from topology.cluster import GpuType

# GPUs of a stage -> its (dp, tp) choices.
Choices = Mapping[int, Sequence[tuple[int, int]]]
# To a billionth of a GPU, as the bias itself.
_TOLERANCE = 1e-9


def remaining_plans(
    model: JobModel,
    gpu_type: GpuType,
    gpus_per_node: int,
    num_gpus: int,
    result: GridResult,
    options: GridOptions | None = None,
    calibration: Calibration | None = None,
) -> "PrunedSearch":
    """What is left to try on `num_gpus`; arguments as for `plan_grids`, which gave `result`.

    Raises
    ------
    InputError
        When the result has no plan for this number of GPUs, or was made without details.
    """
    options = options or GridOptions()
    performance = virtual_model(model, gpu_type, gpus_per_node, -(-num_gpus // gpus_per_node), calibration)
    loads = roofline_s(performance.profile, gpu_type)
    of_count = spaces(performance, gpu_type.name, gpus_per_node, loads, [num_gpus], options.num_operators)
    _, space = next(of_count)
    return PrunedSearch.of(space, num_gpus, result.grids)


@dataclass(frozen=True, kw_only=True)
class PrunedSearch:
    """The plans that are left of one GPU count. `grid`: G_b; `num_before`: plans of all pipeline degrees."""

    space: PlanSpace
    grid: Grid
    num_before: int

    @classmethod
    def of(cls, space: PlanSpace, num_gpus: int, grids: Sequence[Grid]) -> "PrunedSearch":
        """Apply the rules to the grids of `num_gpus`."""
        of_count = [grid for grid in grids if (grid.gpu_type, grid.num_gpus) == (space.gpu_type, num_gpus)]
        planned = [grid for grid in of_count if grid.proxy is not None and grid.frontier]
        if not planned:
            raise InputError(f"the grids have no frontier for {num_gpus} {space.gpu_type}")
        best = min(planned, key=lambda grid: grid.proxy.iteration.total_s if grid.proxy is not None else math.inf)
        return cls(space=space, grid=best, num_before=sum(_num_plans(space, num_gpus, grid.pp) for grid in of_count))

    @property
    def max_bias(self) -> float:
        """Rule 2: the largest computation bias that is left, in GPUs."""
        return max(plan.computation_bias for plan in self.grid.frontier)

    @cached_property
    def fixed(self) -> Mapping[tuple[int, int], frozenset[tuple[int, int]]]:
        """Rule 3: (first, end) layers of a stage -> the (dp, tp) that frontier plans give it."""
        found: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for entry in self.grid.frontier:
            bounds = accumulate((stage.num_layers for stage in entry.plan.stages), initial=0)
            for interval, stage in zip(pairwise(bounds), entry.plan.stages, strict=True):
                found.setdefault(interval, set()).add((stage.dp, stage.tp))
        return {interval: frozenset(degrees) for interval, degrees in found.items()}

    @cached_property
    def num_after(self) -> int:
        """Plans that are left."""
        return sum(
            math.prod(len(choices[size]) for choices, size in zip(stages, sizes, strict=True))
            for _, stages, sizes in self._assignments()
        )

    def plans(self) -> Iterator[ParallelPlan]:
        """The legal ones of them, on virtual nodes, with the proxy plan's number of micro-batches."""
        assert self.grid.proxy is not None  # noqa: S101 - only grids with a proxy plan are taken
        model, count = self.space.model, self.grid.proxy.plan.num_micro_batches
        micro_batch = model.profile.global_batch // count
        for layers, stages, sizes in self._assignments():
            places = stage_places(sizes, self.space.gpus_per_node)
            if places is None:
                continue
            for degrees in product(*(choices[size] for choices, size in zip(stages, sizes, strict=True))):
                if any(micro_batch % dp for dp, _ in degrees):
                    continue
                plan = build_plan(
                    layers=layers,
                    degrees=degrees,
                    places=places,
                    gpu_type=self.space.gpu_type,
                    micro_batch=micro_batch,
                    num_micro_batches=count,
                )
                if model.fits(plan):
                    yield plan

    def _assignments(self) -> Iterator[tuple[tuple[int, ...], list[Choices], tuple[int, ...]]]:
        """Layers, choices and GPUs of the stages of every partition that is left."""
        pipelines, num_gpus = self.space.pipelines(self.grid.pp), self.grid.num_gpus
        choices = [_choices(self.space, num_gpus, unit) for unit in sorted({1, odd_part(num_gpus)})]
        for row, shares in enumerate(pipelines.shares.tolist()):
            layers = pipelines.layers(row)
            wanted = [share * num_gpus for share in shares]
            for every in choices:
                stages = [self._left(every, interval) for interval in pairwise(accumulate(layers, initial=0))]
                for sizes in _assigned(wanted, stages, num_gpus, (self.max_bias + _TOLERANCE) ** 2):
                    yield layers, stages, sizes

    def _left(self, every: Choices, interval: tuple[int, int]) -> Choices:
        """Choices of a stage after rule 3."""
        if interval not in self.fixed:
            return every
        left: dict[int, list[tuple[int, int]]] = {}
        for dp, tp in sorted(self.fixed[interval]):
            if (dp, tp) in every.get(dp * tp, ()):
                left.setdefault(dp * tp, []).append((dp, tp))
        return left


def _choices(space: PlanSpace, num_gpus: int, unit: int) -> Choices:
    """(dp, tp) of stages of `unit` times a power of two GPUs."""
    degrees = space.degrees
    return {
        size: [degrees.degrees(g, t) for t in np.flatnonzero(degrees.possible[g]).tolist()]
        for g, size in enumerate(degrees.sizes.tolist())
        if size <= num_gpus and size % unit == 0 and odd_part(size // unit) == 1
    }


def _num_plans(space: PlanSpace, num_gpus: int, pp: int) -> int:
    """Partitions x assignments x intra-stage parallelism of a pipeline degree."""
    if pp > space.model.profile.num_layers:
        return 0
    assignments = 0
    for unit in {1, odd_part(num_gpus)}:
        choices = [(size, len(found)) for size, found in _choices(space, num_gpus, unit).items()]
        ways = [1] + [0] * num_gpus
        for _ in range(pp):
            ways = [sum(ways[n - g] * count for g, count in choices if g <= n) for n in range(num_gpus + 1)]
        assignments += ways[num_gpus]
    return len(space.pipelines(pp).bounds) * assignments


def _assigned(
    wanted: Sequence[float], stages: Sequence[Choices], num_gpus: int, distance: float
) -> Iterator[tuple[int, ...]]:
    """GPUs of the stages that add up to n, at most at this squared distance from what the loads ask for."""
    if not stages:
        if num_gpus == 0:
            yield ()
        return
    for size in sorted(stages[0]):
        left = distance - (size - wanted[0]) ** 2
        if left >= 0 and size + len(stages) - 1 <= num_gpus:
            for others in _assigned(wanted[1:], stages[1:], num_gpus - size, left):
                yield (size, *others)
