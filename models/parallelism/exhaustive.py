"""The exhaustive reference for small sizes: every stage partition, degree, layout and number of micro-batches.

Exact under the performance model, with sends as searches know them (`with_sends`): all plans on exactly n GPUs of one
type whose nodes are full but for one, with stages of any size, any data and tensor degrees, local batches as equal as
they go, and any divisor of the global batch as number of micro-batches. Left out are only layouts that another one
beats in every stage.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.grid.degrees import DegreeTable, tensor_degrees
from models.parallelism.grid.partition import partitions
from models.parallelism.grid.stage_table import StageTable
from models.parallelism.layout import build_plan
from models.parallelism.micro_batches import divisors
from models.parallelism.node_layouts import Meeting, assignment_of, best_layouts, capacities
from models.parallelism.results import PlanEstimate
from models.performance.iteration.formulas import pipeline_s
from models.performance.iteration.model import PerformanceModel
from stowplan.arrays import IntArray
from stowplan.errors import InputError

# Plans that are compared at a time.
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustiveOptions:
    """What the reference looks at.

    bounds: layers between which stages may be cut, from 0 to L (None: every layer). pipeline_degrees: None for all.
    num_micro_batches: by pipeline degree, None for all divisors of the global batch. powers_of_two: only stages of a
    power of two GPUs. max_plans: the limit.
    """

    bounds: tuple[int, ...] | None = None
    pipeline_degrees: tuple[int, ...] | None = None
    num_micro_batches: Mapping[int, tuple[int, ...]] | None = None
    powers_of_two: bool = False
    max_plans: int = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustiveResult:
    """The best plan of every pipeline degree that has a legal one, the best of all, and how many were compared."""

    best: PlanEstimate | None
    by_degree: Mapping[int, PlanEstimate]
    num_plans: int


# (dp, tp) and layout of every stage.
_Shape = tuple[tuple[tuple[int, int], ...], tuple[Meeting, ...]]


def best_plan(
    model: PerformanceModel,
    gpu_type: str,
    gpus_per_node: int,
    num_gpus: int,
    options: ExhaustiveOptions | None = None,
) -> ExhaustiveResult:
    """Compare all plans on virtual nodes.

    Raises
    ------
    InputError
        When there are more plans than `max_plans`, or no GPUs.
    """
    options = options or ExhaustiveOptions()
    if num_gpus < 1:
        raise InputError(f"num_gpus is {num_gpus}; must be at least 1")
    search = _Search(model=model, gpu_type=gpu_type, gpus_per_node=gpus_per_node, num_gpus=num_gpus, options=options)
    by_degree = {pp: found for pp in search.pipeline_degrees if (found := search.best(pp)) is not None}
    estimates = {pp: search.estimate(plan) for pp, plan in by_degree.items()}
    best = min(estimates.values(), key=lambda estimate: estimate.iteration.total_s, default=None)
    return ExhaustiveResult(best=best, by_degree=estimates, num_plans=search.num_plans)


class _Search:
    """All plans of one job on n GPUs."""

    def __init__(
        self, *, model: PerformanceModel, gpu_type: str, gpus_per_node: int, num_gpus: int, options: ExhaustiveOptions
    ) -> None:
        self.model, self.gpu_type, self.options = model, gpu_type, options
        self.num_gpus, self.free = num_gpus, capacities(num_gpus, gpus_per_node)
        self.bounds = options.bounds or tuple(range(model.profile.num_layers + 1))
        sizes = [1 << k for k in range(num_gpus.bit_length())] if options.powers_of_two else range(1, num_gpus + 1)
        self.tensor = tensor_degrees(model.profile, min(gpus_per_node, num_gpus))
        self.degrees = _all_degrees(sizes, self.tensor)
        # Where the options of (dp, tp) start in the flat (G, T) axes of tables.
        self.flat = {
            (size // tp, tp): (g * len(self.tensor) + t) * len(Meeting)
            for g, size in enumerate(self.degrees.sizes.tolist())
            for t, tp in enumerate(self.tensor)
            if size % tp == 0
        }
        self.index = np.zeros((len(self.bounds), len(self.bounds)), dtype=np.int64)
        first, last = np.triu_indices(len(self.bounds), 1)
        self.index[first, last] = np.arange(len(first))
        self.table = StageTable(
            model=model,
            gpu_type=gpu_type,
            intervals=tuple((self.bounds[a], self.bounds[b]) for a, b in zip(first, last, strict=True)),
            degrees=self.degrees,
            even_batches=False,
        )
        self.num_plans = 0
        self._check_limit()

    @property
    def pipeline_degrees(self) -> Sequence[int]:
        """Degrees that the GPUs, the layers and ZeRO allow."""
        most = min(self.num_gpus, len(self.bounds) - 1) if self.model.profile.has_pipelines else 1
        wanted = self.options.pipeline_degrees
        return [pp for pp in range(1, most + 1) if wanted is None or pp in wanted]

    def best(self, pp: int) -> ParallelPlan | None:
        """The fastest plan with `pp` stages."""
        shapes = list(self._shapes(pp))
        if not shapes:
            return None
        stages = np.array([self._options_of(shape) for shape in shapes], dtype=np.int64)
        cuts = partitions(len(self.bounds) - 1, pp)
        found = [
            (*self._fastest(stages[rows], cuts, count), rows, count)
            for count in self._counts(pp)
            for rows in [self._rows(shapes, count)]
            if rows.size
        ]
        seconds, s, p, rows, count = min(found, key=lambda one: one[0], default=(np.inf, 0, 0, np.empty(0), 1))
        if not np.isfinite(seconds):
            return None
        bounds = [self.bounds[k] for k in cuts[p]]
        return self._plan(shapes[rows[s]], [b - a for a, b in pairwise(bounds)], count)

    def estimate(self, plan: ParallelPlan) -> PlanEstimate:
        """The plan with its time and memory by the performance model."""
        iteration = self.model.iteration(plan)
        return PlanEstimate(
            plan=plan,
            iteration=iteration,
            memory=self.model.memory(plan),
            throughput=plan.global_batch / iteration.total_s,
        )

    def _check_limit(self) -> None:
        """Count before anything is enumerated; several layouts of one shape are not counted."""
        ways = np.zeros(self.num_gpus + 1)
        for size in self.degrees.sizes.tolist():
            ways[size] = sum(size % tp == 0 for tp in self.tensor)
        shapes, total = np.array([1.0]), 0.0
        degrees = self.pipeline_degrees
        for pp in range(1, max(degrees, default=0) + 1):
            shapes = np.convolve(shapes, ways)[: self.num_gpus + 1]
            if pp in degrees and len(shapes) > self.num_gpus:
                cuts = math.comb(len(self.bounds) - 2, pp - 1)
                total += float(shapes[self.num_gpus]) * cuts * len(self._counts(pp))
        if total > self.options.max_plans:
            raise InputError(
                f"{self.num_gpus} GPUs and {len(self.bounds) - 1} operators make about {total:.3g} plans; the limit is "
                f"{self.options.max_plans:.3g}: use fewer GPUs, operators or pipeline degrees, or powers of two"
            )

    def _counts(self, pp: int) -> Sequence[int]:
        """Numbers of micro-batches."""
        batch = self.model.profile.global_batch
        wanted = self.options.num_micro_batches
        return divisors(batch) if wanted is None else [n for n in wanted.get(pp, ()) if batch % n == 0]

    def _shapes(self, pp: int) -> Iterator[_Shape]:
        """Degrees of `pp` stages that use all GPUs, each in its best layouts."""
        fabric = self.model.fabric
        intra, inter = fabric.intra_bytes_per_s("0"), fabric.group_bytes_per_s(fabric.hosts)
        for degrees in self._degree_tuples(pp, self.num_gpus):
            for layout in best_layouts(degrees, self.free, intra, inter):
                yield degrees, layout

    def _degree_tuples(self, pp: int, num_gpus: int) -> Iterator[tuple[tuple[int, int], ...]]:
        if pp == 0:
            if num_gpus == 0:
                yield ()
            return
        for size in self.degrees.sizes.tolist():
            if size + pp - 1 > num_gpus:
                break
            for tp in self.tensor:
                if size % tp == 0:
                    for others in self._degree_tuples(pp - 1, num_gpus - size):
                        yield ((size // tp, tp), *others)

    def _options_of(self, shape: _Shape) -> list[int]:
        """Index into the flat (G, T) axes of every stage."""
        return [self.flat[degrees] + meeting for degrees, meeting in zip(*shape, strict=True)]

    def _rows(self, shapes: Sequence[_Shape], num_micro_batches: int) -> IntArray:
        """Shapes that are legal with this number: where the job fixes its micro-batch, the stage with the most
        replicas has it."""
        profile = self.model.profile
        if profile.micro_batch is None:
            return np.arange(len(shapes))
        samples = profile.micro_batch * num_micro_batches
        return np.flatnonzero([max(dp for dp, _ in degrees) * samples == profile.global_batch for degrees, _ in shapes])

    def _fastest(self, stages: IntArray, cuts: IntArray, num_micro_batches: int) -> tuple[float, int, int]:
        """Seconds, shape and partition of the fastest plan; infinite when none fits."""
        costs, pp = self.table.costs(num_micro_batches), stages.shape[1]
        fits = self.table.fits(self.table.memory_bytes(num_micro_batches, range(pp, 0, -1)))
        forward, backward, extra = (
            values.reshape(-1) for values in (costs.forward_s, costs.backward_s, costs.once_s + costs.optimizer_s)
        )
        num_options, every = fits.shape[2] * fits.shape[3], np.arange(pp) * len(forward)
        intervals = self.index[cuts[:, :-1], cuts[:, 1:]] * num_options
        self.num_plans += len(stages) * len(cuts)
        best = (np.inf, 0, 0)
        step = max(1, _CHUNK // len(cuts))
        for first in range(0, len(stages), step):
            at = intervals[None, :, :] + stages[first : first + step, None, :]
            seconds = sum(pipeline_s(forward[at], backward[at], extra[at], num_micro_batches))
            seconds = np.where(fits.reshape(-1)[at + every].all(axis=-1), seconds, np.inf)
            s, p = np.unravel_index(seconds.argmin(), seconds.shape)
            best = min(best, (float(seconds[s, p]), first + int(s), int(p)))
        return best

    def _plan(self, shape: _Shape, layers: Sequence[int], num_micro_batches: int) -> ParallelPlan:
        used: dict[int, int] = {}
        places, (degrees, layout) = [], shape
        for (_, tp), nodes in zip(degrees, assignment_of(degrees, self.free, layout), strict=True):
            stage: list[Gpu] = []
            for node in nodes:
                first = used.get(node, 0)
                used[node] = first + tp
                stage += [(str(node), gpu) for gpu in range(first, first + tp)]
            places.append(tuple(stage))
        return build_plan(
            layers=layers,
            degrees=degrees,
            places=places,
            gpu_type=self.gpu_type,
            micro_batch=self.model.profile.global_batch // num_micro_batches,
            num_micro_batches=num_micro_batches,
        )


def _all_degrees(sizes: Sequence[int], tensor: Sequence[int]) -> DegreeTable:
    """Every size with every tensor degree and every way for its replicas to meet; options in that order."""
    size = np.array(sizes, dtype=np.int64)[:, None]
    tp = np.repeat(np.array(tensor, dtype=np.int64), len(Meeting))
    meeting = np.tile(np.array(list(Meeting)), len(tensor))
    dp = np.maximum(size // tp, 1)
    return DegreeTable(
        sizes=size[:, 0],
        tp=tp,
        dp=dp,
        possible=size % tp == 0,
        inside=(dp > 1) & (meeting != Meeting.SINGLES),
        across=np.broadcast_to(meeting != Meeting.WHOLE, dp.shape),
    )
