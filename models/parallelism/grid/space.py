"""Everything about the grids of one job on one GPU type that does not depend on the number of GPUs.

Tables of stages are made when first asked for; those of one number of micro-batches serve all grids.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from models.parallelism.grid.choices import Choices, Criterion, choose
from models.parallelism.grid.degrees import DegreeTable
from models.parallelism.grid.operators import cluster
from models.parallelism.grid.partition import partitions
from models.parallelism.grid.stage_table import StageCosts, StageTable
from models.performance.iteration.model import PerformanceModel
from stowplan.arrays import FloatArray, IntArray, Mask


@dataclass(frozen=True, kw_only=True, eq=False)
class Operators:
    """Operators of a model, and the tables of all stages that can be made of them.

    A stage that has its place in a pipeline is a pair (interval of `table`, number of stages behind it), of which only
    those are looked at that can be: (Q,).

    bounds: layers (O + 1,); loads: Eq. 2, (O,); index: interval by its bounds in operators (O + 1, O + 1); interval,
    behind: of the pairs (Q,).
    """

    bounds: IntArray
    loads: FloatArray
    table: StageTable
    index: IntArray
    interval: IntArray
    behind: IntArray
    _choices: dict[tuple[tuple[int, ...], Criterion], Choices] = field(default_factory=dict)
    _costs: dict[int, StageCosts] = field(default_factory=dict)
    _memory: dict[int, tuple[Mask, FloatArray]] = field(default_factory=dict)

    def choices(self, num_micro_batches: tuple[int, ...], criterion: Criterion) -> Choices:
        """Intra-stage parallelism of every pair (B, Q, G)."""
        key = num_micro_batches, criterion
        if key not in self._choices:
            parts = [
                choose(self.costs(count), self.interval, self._fits_and_least(count)[0], count, criterion)
                for count in num_micro_batches
            ]
            self._choices[key] = Choices.stacked(parts)
        return self._choices[key]

    def costs(self, num_micro_batches: int) -> StageCosts:
        """Costs of every stage."""
        if num_micro_batches not in self._costs:
            self._costs[num_micro_batches] = self.table.costs(num_micro_batches)
        return self._costs[num_micro_batches]

    def least_bytes(self, num_micro_batches: int) -> FloatArray:
        """Memory of the option that needs least, (Q, G); infinite where the batch does not divide for any."""
        return self._fits_and_least(num_micro_batches)[1]

    def _fits_and_least(self, num_micro_batches: int) -> tuple[Mask, FloatArray]:
        """Options that fit (Q, G, T), and the least memory (Q, G)."""
        if num_micro_batches not in self._memory:
            needed = self._pairs.own_memory_bytes(num_micro_batches, (self.behind + 1).astype(np.float64))
            self._memory[num_micro_batches] = self.table.fits(needed), np.asarray(needed.min(axis=-1))
        return self._memory[num_micro_batches]

    def pairs(self, bounds: IntArray) -> IntArray:
        """Pairs of the stages of pipelines with these bounds in operators (P, s + 1): (s, P)."""
        behind = np.arange(bounds.shape[1] - 2, -1, -1)
        return np.asarray(self._pair[behind[:, None], self.index[bounds[:, :-1].T, bounds[:, 1:].T]])

    @cached_property
    def _pairs(self) -> StageTable:
        every = self.table.intervals
        return replace(self.table, intervals=tuple(every[k] for k in self.interval.tolist()))

    @cached_property
    def _pair(self) -> IntArray:
        """Pair by stages behind and interval; -1 where there is none."""
        found = np.full((int(self.behind.max()) + 1, len(self.table.intervals)), -1, dtype=np.int64)
        found[self.behind, self.interval] = np.arange(len(self.interval))
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Pipelines:
    """All stage partitions of one pipeline degree: bounds in operators (P, s + 1).

    Arrays of (P, s) are stored stage by stage: sums over the few stages of many partitions are quicker so.
    """

    operators: Operators
    bounds: IntArray

    @property
    def num_stages(self) -> int:
        """Pipeline degree s."""
        return int(self.bounds.shape[1]) - 1

    @cached_property
    def shares(self) -> FloatArray:
        """Share of the load of every stage (P, s)."""
        running = np.concatenate([[0.0], np.cumsum(self.operators.loads)])
        return np.asarray(np.diff(running[self.bounds.T] / running[-1], axis=0).T)

    @cached_property
    def order(self) -> IntArray:
        """Stages by falling share, equal ones in pipeline order (s, P)."""
        return np.asarray(np.argsort(-np.round(self.shares.T, 12), axis=0, kind="stable"))

    @cached_property
    def descending(self) -> FloatArray:
        """Shares in falling order (P, s)."""
        return np.asarray(np.take_along_axis(self.shares.T, self.order, axis=0).T)

    @cached_property
    def rank(self) -> IntArray:
        """Place of every stage in that order (s, P)."""
        rank = np.empty_like(self.order)
        np.put_along_axis(rank, self.order, np.arange(self.num_stages)[:, None], axis=0)
        return rank

    @cached_property
    def stages(self) -> IntArray:
        """Pair of every stage (s, P)."""
        return self.operators.pairs(self.bounds)

    def layers(self, partition: int) -> tuple[int, ...]:
        """Layers of every stage of a partition."""
        return tuple(np.diff(self.operators.bounds[self.bounds[partition]]).tolist())


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanSpace:
    """Grids of one job on one GPU type; `loads`: Eq. 2 of the layers (L,)."""

    model: PerformanceModel
    gpu_type: str
    gpus_per_node: int
    degrees: DegreeTable
    loads: FloatArray
    num_operators: int
    _pipelines: dict[int, Pipelines] = field(default_factory=dict)

    def pipelines(self, num_stages: int) -> Pipelines:
        """Partitions into `num_stages` stages; above O of them, of as many operators."""
        if num_stages not in self._pipelines:
            operators = self._operators if num_stages <= self.num_operators else self._one_per_stage(num_stages)
            bounds = partitions(len(operators.loads), num_stages)
            self._pipelines[num_stages] = Pipelines(operators=operators, bounds=bounds)
        return self._pipelines[num_stages]

    @cached_property
    def _operators(self) -> Operators:
        bounds = cluster(self.loads, self.num_operators)
        count = len(bounds) - 1
        first, last = np.triu_indices(count + 1, 1)
        most = min(count, int(self.degrees.sizes[-1]))
        behind = np.arange(most)
        # Each stage has at least one operator and one GPU; only the last one has none behind it.
        possible = (behind <= count - last[:, None]) & ((behind == 0) == (last == count)[:, None])
        possible &= behind + (first > 0)[:, None] < most
        return self._made(bounds, first, last, *np.nonzero(possible))

    def _one_per_stage(self, num_stages: int) -> Operators:
        stages = np.arange(num_stages)
        return self._made(cluster(self.loads, num_stages), stages, stages + 1, stages, stages[::-1])

    def _made(
        self, bounds: tuple[int, ...], first: IntArray, last: IntArray, interval: IntArray, behind: IntArray
    ) -> Operators:
        index = np.zeros((len(bounds), len(bounds)), dtype=np.int64)
        index[first, last] = np.arange(len(first))
        layers = np.array(bounds, dtype=np.int64)
        return Operators(
            bounds=layers,
            loads=np.add.reduceat(self.loads, layers[:-1]),
            table=StageTable(
                model=self.model,
                gpu_type=self.gpu_type,
                intervals=tuple(zip(layers[first].tolist(), layers[last].tolist(), strict=True)),
                degrees=self.degrees,
            ),
            index=index,
            interval=interval,
            behind=behind,
        )
