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
from functools import cached_property, lru_cache
from itertools import accumulate, islice, pairwise, product

import numpy as np

from models.parallel_plan import ParallelPlan
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.partition import odd_part
from models.parallelism.grid.planner import spaces
from models.parallelism.grid.space import PlanSpace
from models.parallelism.layout import build_plan, stage_places
from models.parallelism.results import Grid, GridResult
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.transformer import JobModel
from stowplan.errors import InputError
from topology.cluster import GpuType

# GPUs of a stage -> its (dp, tp) choices.
Choices = Mapping[int, Sequence[tuple[int, int]]]
# To a billionth of a GPU, as the bias itself.
_TOLERANCE = 1e-9
# Leaves the last bits of a distance to rounding.
_ROUNDING = 1.0 - 1e-9


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
        return sum(self._numbers())

    def counted(self, most_assignments: int) -> int | None:
        """Plans that are left; None when GPUs can be assigned to stages in more than so many ways."""
        numbers = self._numbers()
        total = sum(islice(numbers, most_assignments))
        return total if next(numbers, None) is None else None

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

    def _numbers(self) -> Iterator[int]:
        """Plans of every assignment of GPUs to the stages of a partition."""
        return (
            math.prod(len(choices[size]) for choices, size in zip(stages, sizes, strict=True))
            for _, stages, sizes in self._assignments()
        )

    def _assignments(self) -> Iterator[tuple[tuple[int, ...], list[Choices], tuple[int, ...]]]:
        """Layers, choices and GPUs of the stages of every partition that is left."""
        pipelines, num_gpus = self.space.pipelines(self.grid.pp), self.grid.num_gpus
        choices = [(unit, _choices(self.space, num_gpus, unit)) for unit in sorted({1, odd_part(num_gpus)})]
        for row, shares in enumerate(pipelines.shares.tolist()):
            layers = pipelines.layers(row)
            wanted = [share * num_gpus for share in shares]
            for unit, every in choices:
                stages = [self._left(every, interval) for interval in pairwise(accumulate(layers, initial=0))]
                for sizes in _assigned(wanted, stages, num_gpus, (self.max_bias + _TOLERANCE) ** 2, unit):
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
        choices, units = _choices(space, num_gpus, unit), num_gpus // unit
        counts = tuple(len(choices.get(unit << k, ())) for k in range(units.bit_length()))
        assignments += _num_assignments(units, pp, counts)
    return len(space.pipelines(pp).bounds) * assignments


@lru_cache(maxsize=100_000)
def _num_assignments(units: int, num_stages: int, counts: tuple[int, ...]) -> int:
    """Ways to give `units` to stages, a power of two to each, and each one of its `counts[k]` choices for 2^k.

    An even rest is left to the stages that get more than 1: the same with half of everything.
    """
    if not num_stages:
        return int(not units)
    if units < num_stages or not counts:
        return 0
    of_ones, of_more = counts[0], counts[1:]
    return sum(
        math.comb(num_stages, k) * of_ones**k * _num_assignments((units - k) // 2, num_stages - k, of_more)
        for k in range(units % 2, num_stages + 1, 2)
    )


def _assigned(
    wanted: Sequence[float], stages: Sequence[Choices], num_gpus: int, distance: float, unit: int
) -> Iterator[tuple[int, ...]]:
    """GPUs of the stages that add up to n, at most at this squared distance from what the loads ask for.

    Sizes are `unit` times powers of two: k of them add up to any n / unit with at most k binary ones that is at least
    k. What they get in sum beyond what they ask for is least distant when spread evenly; nor is the distance less than
    that of the nearest sizes.
    """
    nearest = [
        min(((size - share) ** 2 for size in choices), default=math.inf)
        for choices, share in zip(stages, wanted, strict=True)
    ]
    behind = [*accumulate(reversed(nearest), initial=0.0)][-2::-1]
    wanted_behind = [*accumulate(reversed(wanted), initial=0.0)][-2::-1]
    sizes = [sorted(choices) for choices in stages]

    def from_stage(j: int, rest: int, left: float) -> Iterator[tuple[int, ...]]:
        if j == len(wanted):
            yield ()
            return
        num_behind = len(wanted) - 1 - j
        for size in sizes[j]:
            units, allowed = (rest - size) // unit, left - (size - wanted[j]) ** 2
            if not units >= num_behind >= units.bit_count() or allowed < behind[j] * _ROUNDING:
                continue
            if allowed * num_behind >= (rest - size - wanted_behind[j]) ** 2 * _ROUNDING:
                for others in from_stage(j + 1, rest - size, allowed):
                    yield (size, *others)

    return from_stage(0, num_gpus, distance)
