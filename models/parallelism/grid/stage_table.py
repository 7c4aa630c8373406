"""Times and memory of every stage that a job could have on one GPU type: the performance model as arrays.

Axes: I intervals of layers, G stage sizes, T options (tensor degree and where the replicas sit), K stages from here to
the end of the pipeline (1 to K).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from models.parallelism.grid.degrees import DegreeTable
from models.performance.iteration.exchanges import all_to_all_s_per_byte, ring_s_per_byte
from models.performance.iteration.formulas import Floats, exposed_reduction_s, hiding_s
from models.performance.iteration.memory import activation_bytes, peak_parts, shard, working_bytes
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.sends import copies, with_sends
from models.performance.iteration.sizes import boundary_bytes
from models.transformer import Checkpointing
from stowplan.arrays import FloatArray, IntArray, Mask

_SUMS = ("compute", "tensor", "partitioned", "replicated", "experts", "exchanged_bytes")

# Checkpointing of a stage, and of how many of its layers, None for all: as in `models.parallel_plan.Stage`.
Recomputation = tuple[Checkpointing, int | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageCosts:
    """Seconds, (I, G, T) each: per micro-batch, `once_s` and `optimizer_s` per iteration. Where the model counts sends,
    `forward_s` and `backward_s` have half of them each; `computing_s` (3, I, G, T) is of both passes without, and of
    the part of the backward pass that is of weights.

    Only those with `valid` (G, T) mean something: degrees that divide GPUs, model and batch. `communication_s`:
    tensor-parallel, both passes; part of `forward_s` and `backward_s`. `once_s`: reduction that the backward pass does
    not hide.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    computing_s: FloatArray
    communication_s: FloatArray
    once_s: FloatArray
    optimizer_s: FloatArray
    valid: Mask


@dataclass(frozen=True, kw_only=True, eq=False)
class StageTable:
    """Every stage of a job on nodes `0`, `1`, ... of one GPU type.

    `intervals`: (first, last) layers of every stage, last excluded. `even_batches`: micro-batches must divide into
    equal local batches; otherwise the largest of nearly equal ones counts. `recomputation`: of every stage, None: as
    the job's model says. `rejoined`: further layers of every stage, none where both are equal; None: of no stage.
    """

    model: PerformanceModel
    gpu_type: str
    intervals: tuple[tuple[int, int], ...]
    degrees: DegreeTable
    even_batches: bool = True
    recomputation: tuple[Recomputation, ...] | None = None
    rejoined: tuple[tuple[int, int], ...] | None = None

    def costs(self, num_micro_batches: int) -> StageCosts:
        """Costs of all stages when the global batch is cut into so many micro-batches."""
        model, shares, of_type = self.model, self._shares, self.model.coefficients_of(self.gpu_type)
        tp, dp = self.degrees.tp.astype(float), self.degrees.dp.astype(float)
        local, valid = self._local_batch(num_micro_batches)
        forward, backward, communication, weight = np.add.reduce(list(self._passes_s(local)))
        computing = np.stack([forward, backward, weight])
        hiding = hiding_s(forward, backward, model.profile.zero_stage, num_micro_batches)
        # Without ZeRO the number of replicas makes no difference.
        sharded = model.profile.zero_stage >= 1
        optimizer = shard(shares["parameters"], tp, dp, sharded, self._elsewhere) * np.ones_like(dp)
        once_s = exposed_reduction_s(hiding, self._reduction_s(num_micro_batches), of_type.overlap)
        if model.send_receive:
            forward, backward = with_sends(model.profile, forward, backward, self._send_s(local))
        return StageCosts(
            forward_s=np.asarray(forward),
            backward_s=np.asarray(backward),
            computing_s=computing,
            communication_s=np.asarray(communication),
            once_s=once_s,
            optimizer_s=of_type.optimizer_s * np.asarray(optimizer),
            valid=valid,
        )

    def memory_bytes(self, num_micro_batches: int, stages_behind: Sequence[float]) -> FloatArray:
        """Peak memory of a GPU, (K, I, G, T) for K numbers of stages to the end (of micro-batches in flight, where
        stages are cut into parts); infinite for what is not valid."""
        return self._peak_bytes(num_micro_batches, np.array(stages_behind, dtype=np.float64)[:, None, None, None])

    def own_memory_bytes(self, num_micro_batches: int, stages_behind: FloatArray, waiting: Floats = 0.0) -> FloatArray:
        """Peak memory of a GPU where every stage has its place in the pipeline (I,), (I, G, T); as `memory_bytes`.
        `waiting`: see `models.pipeline_schedule`, (I,)."""
        return self._peak_bytes(num_micro_batches, stages_behind[:, None, None], np.reshape(waiting, (-1, 1, 1)))

    def _peak_bytes(self, num_micro_batches: int, stages_behind: FloatArray, waiting: Floats = 0.0) -> FloatArray:
        local, valid = self._local_batch(num_micro_batches)
        parts = peak_parts(
            profile=self.model.profile,
            sizes=self.model.coefficients.sizes,
            parameters=self._shares["parameters"],
            partitioned=self._shares["partitioned"],
            replicated=self._shares["replicated"],
            tp=self.degrees.tp.astype(float),
            dp=self.degrees.dp.astype(float),
            local_batch=local,
            stages_behind=stages_behind,
            num_micro_batches=num_micro_batches,
            elsewhere=self._elsewhere,
            kept=None if self.recomputation is None else self._kept_bytes,
            waiting=waiting,
        )
        return sum(parts) + np.where(valid, 0.0, np.inf)

    def fits(self, memory_bytes: FloatArray) -> Mask:
        """Where the memory is enough."""
        return memory_bytes <= self.model.usable_bytes(self.gpu_type)

    def _local_batch(self, num_micro_batches: int) -> tuple[FloatArray, Mask]:
        """Largest local batch (G, T), and whether the batch divides and is not below the one that the job fixes."""
        profile, dp = self.model.profile, self.degrees.dp
        micro_batch = profile.global_batch // num_micro_batches
        divides = micro_batch % dp == 0 if self.even_batches else micro_batch >= dp
        local = np.ceil(micro_batch / dp)
        whole = (dp % self.model.context_parallel == 0) & (dp % self.model.expert_parallel == 0)
        return local, self.degrees.possible & divides & whole & (local >= (profile.micro_batch or 1))

    def _passes_s(self, local: FloatArray) -> Iterator[FloatArray]:
        """Forward and backward time, communication of both passes and gradients of weights, (4, I, G, T), by the
        checkpointing of layers."""
        tp, bandwidth = self.degrees.tp.astype(float), self.model.fabric.intra_bytes_per_s("0")
        for model, shares in self._by_checkpointing:
            of_type, again = model.coefficients_of(self.gpu_type), model.profile.backward_all_reduces
            computation = of_type.compute_s * shares["compute"] * local / tp
            communication = model.tensor_communication_s(local, shares["tensor"], tp, bandwidth)
            slower, slower_back = model.slowdowns(self.gpu_type, local, tp)
            back = of_type.backward_ratio * computation * slower_back
            forward, backward = computation * slower + communication, back + again * communication
            if model.context_parallel * model.expert_parallel > 1:
                there, come_back = self._exchanges_s(model, shares, local)
                forward, backward = forward + there, backward + come_back
            yield np.array((forward, backward, communication * (1.0 + again), model.profile.weight_share * back))

    @cached_property
    def _kept_bytes(self) -> tuple[FloatArray, FloatArray]:
        """What a sample keeps on a GPU, and what the layer keeps that is being repeated, (I, 1, T) each."""
        tp = self.degrees.tp.astype(float)
        kept, working = np.zeros((2, len(self.intervals), 1, len(tp)))
        for model, shares in self._by_checkpointing:
            sizes, is_there = model.coefficients.sizes, shares["compute"] > 0
            kept += activation_bytes(model.profile, sizes, tp, shares["partitioned"], shares["replicated"])
            working = np.maximum(working, np.where(is_there, working_bytes(model.profile, tp), 0.0))
        return kept, working

    @cached_property
    def _by_checkpointing(self) -> list[tuple[PerformanceModel, dict[str, FloatArray]]]:
        """The layers of the intervals by their checkpointing: the model of each, and shares of them, (I, 1, 1)."""
        if self.recomputation is None:
            return [(self.model, self._shares)]
        first, last = np.array(self.intervals, dtype=np.int64).T
        until = [
            end if n is None else start + n
            for (start, end), (_, n) in zip(self.intervals, self.recomputation, strict=True)
        ]
        found = []
        for kind in sorted({Checkpointing.NONE, *(kind for kind, _ in self.recomputation)}):
            own = np.array([kind is other for other, _ in self.recomputation])
            # Behind the layers that a stage recomputes are those that keep everything.
            end = np.where(own | (kind is not Checkpointing.NONE), until, last)
            model = self.model.kept_as(kind)
            found.append((model, self._sums(model, np.where(own, first, until), end)))
        return found

    def _sums(self, model: PerformanceModel, first: IntArray, last: IntArray) -> dict[str, FloatArray]:
        """Shares of layers [first, last) in mean layers (what goes to experts: in bytes), (I, 1, 1) each."""
        table = model.share_table
        return {name: (getattr(table, name)[last] - getattr(table, name)[first])[:, None, None] for name in _SUMS}

    @cached_property
    def _shares(self) -> dict[str, FloatArray]:
        """Shares of the intervals in mean layers, (I, 1, 1) each."""
        found: dict[str, FloatArray] = {}
        for intervals in (self.intervals, self.rejoined or ()):
            first, last = np.array(intervals, dtype=np.int64).reshape(-1, 2).T
            if first.size:
                parameters = self.model.share_table.parameters_of(first, last)
                sums = {**self._sums(self.model, first, last), "parameters": parameters[:, None, None]}
                found = {name: found.get(name, 0.0) + values for name, values in sums.items()}
        return found

    @cached_property
    def _elsewhere(self) -> Floats:
        """Part of the parameters that are experts of other replicas, (I, 1, 1)."""
        return self.model.elsewhere(self._shares["parameters"], self._shares["experts"])

    def _exchanges_s(self, model: PerformanceModel, shares: dict[str, FloatArray], local: FloatArray) -> FloatArray:
        """What replicas exchange that share sequences or experts, in both passes (2, I, G, T)."""
        ring, all_to_all = self._exchange_links
        waiting = model.ring_s(self.gpu_type, shares["tensor"], local, self.degrees.tp.astype(float), ring)
        return waiting + model.all_to_all_s(shares["exchanged_bytes"], local, all_to_all)

    @cached_property
    def _exchange_links(self) -> FloatArray:
        """Seconds per byte of rings and all-to-alls (2, G, T), of replicas on nodes from `0` on."""
        fabric, cp, ep = self.model.fabric, self.model.context_parallel, self.model.expert_parallel
        links = np.zeros((2, *self.degrees.dp.shape))
        for g, t in zip(*np.nonzero(self.degrees.possible), strict=True):
            dp, tp = int(self.degrees.dp[g, t]), int(self.degrees.tp[t])
            if dp % cp or dp % ep:
                continue
            on_node = max((fabric.host("0").num_gpus or 1) // tp, 1)
            nodes = [str(k // on_node) for k in range(dp)]
            # Groups lie on nodes in the same way again and again.
            if cp > 1:
                links[0, g, t] = ring_s_per_byte(fabric, nodes[: math.lcm(cp, on_node)], tp, cp)
            if ep > 1:
                links[1, g, t] = all_to_all_s_per_byte(fabric, nodes[: math.lcm(ep, on_node)], tp, ep)
        return links

    def _send_s(self, local: FloatArray) -> FloatArray:
        """Time to hand a micro-batch to the next stage (I, G, T), on other nodes where there are several; 0 for the
        last stage."""
        model, degrees, fabric = self.model, self.degrees, self.model.fabric
        boundaries = boundary_bytes(model.profile, model.coefficients.sizes)
        last = np.array(self.intervals, dtype=np.int64)[:, 1]
        sent = np.where(last < model.profile.num_layers, boundaries[last - 1], 0.0)[:, None, None]
        sent = sent * local * copies(model.profile, degrees.tp.astype(float))
        if len(fabric.hosts) == 1:
            return np.asarray(sent / degrees.tp / fabric.intra_bytes_per_s("0"))
        on_node = np.minimum(degrees.dp, np.maximum((fabric.host("0").num_gpus or 1) // degrees.tp, 1))
        return np.asarray(sent * on_node / fabric.group_bytes_per_s(fabric.hosts))

    def _reduction_s(self, num_micro_batches: int) -> FloatArray:
        """Time of the gradient reduction (I, G, T): the slower of links inside nodes and network."""
        fabric, degrees = self.model.fabric, self.degrees
        volume = self.model.reduction_volume_bytes(
            self._shares["parameters"], degrees.dp.astype(float), num_micro_batches, self._elsewhere
        )
        inside = volume / degrees.tp / fabric.intra_bytes_per_s("0")
        across = volume / fabric.group_bytes_per_s(fabric.hosts)
        return np.maximum(np.where(degrees.inside, inside, 0.0), np.where(degrees.across, across, 0.0))
