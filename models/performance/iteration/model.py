"""Iteration time and memory of one 3D-parallel plan on concrete nodes; the mathematics is in `formulas`, `memory`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from models.parallel_plan import ParallelPlan, Stage, v_parts
from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients
from models.performance.iteration.exchanges import all_to_all_s_per_byte, ring_passes_s, ring_s_per_byte
from models.performance.iteration.fabric import Fabric
from models.performance.iteration.formulas import (
    Floats,
    exposed_reduction_s,
    hiding_s,
    pipeline_s,
    reduction_volume_bytes,
    scaling,
    tensor_communication_s,
)
from models.performance.iteration.memory import (
    StageMemory,
    activation_bytes,
    optimizer_shard,
    peak_parts,
    working_bytes,
)
from models.performance.iteration.profile import ModelProfile
from models.performance.iteration.sends import send_s
from models.performance.iteration.shares import ShareTable, StageShares
from models.performance.iteration.times import (
    GroupTimes,
    IterationTime,
    StageTime,
    parts_makespan_s,
    schedule_of,
)
from models.pipeline_schedule import PipelineSchedule
from models.software import FEATURES
from models.transformer import Checkpointing
from models.wording import counted
from stowplan.arrays import FloatArray
from stowplan.errors import InputError


# No slots: the shares are cached in the instance.
@dataclass(frozen=True, kw_only=True)
class PerformanceModel:
    """One job on one fabric.

    `memory_bytes`: GPU type -> memory of a GPU. `headroom`: share of it kept free for what the formulas do not know
    (A.3: 10 %). `send_receive`: count the transfers between stages, which the paper neglects. The first micro-batch
    waits for them; later ones overlap with computation until they take longer than it, where the software does that,
    and otherwise are part of the time of a stage. `overhead_bytes`: memory that is used beside tensors; it is in what a
    driver will report, and belongs to the headroom. `retrained`: the job with another checkpointing of all layers, None
    where it cannot be another. `context_parallel`, `expert_parallel`: replicas that share sequences and experts.
    Profile and coefficients are theirs (`at`): where sequences are shared, a sample is a part of one, of which there
    are as many more.
    """

    profile: ModelProfile
    coefficients: JobCoefficients
    fabric: Fabric
    memory_bytes: Mapping[str, float]
    headroom: float = 0.1
    send_receive: bool = False
    overhead_bytes: float = 0.0
    retrained: "Callable[[Checkpointing], PerformanceModel] | None" = None
    context_parallel: int = 1
    expert_parallel: int = 1

    def on(self, fabric: Fabric) -> "PerformanceModel":
        """The same job on other nodes, which it gets the same shares of bandwidth of."""
        own = self.fabric
        return replace(self, fabric=replace(fabric, intra_share=own.intra_share, inter_share=own.inter_share))

    def at(self, cp: int, ep: int) -> "PerformanceModel":
        """The model of plans with these degrees of context and expert parallelism."""
        if (cp, ep) == (self.context_parallel, self.expert_parallel):
            return self
        if self.context_parallel * self.expert_parallel > 1:
            raise ValueError(f"the model is that of CP{self.context_parallel} EP{self.expert_parallel} alone")
        if (cp, ep) not in self._shared:
            self._shared[cp, ep] = replace(
                self,
                profile=self.profile.shared(cp),
                coefficients=self.coefficients.shared(cp, ep),
                context_parallel=cp,
                expert_parallel=ep,
            )
        return self._shared[cp, ep]

    @cached_property
    def _shared(self) -> "dict[tuple[int, int], PerformanceModel]":
        return {}

    def of(self, plan: ParallelPlan) -> "PerformanceModel":
        """The model of plans with the degrees of this one."""
        return self.at(plan.context_parallel, plan.expert_parallel)

    def iteration(self, plan: ParallelPlan) -> IterationTime:
        """Time of one iteration (A.2).

        Raises
        ------
        InputError
            When the plan does not have the layers of the profile, or has a node or GPU type that is not known here.
        """
        model = self.of(plan)
        if model is not self:
            return model.iteration(plan)
        forward, backward, communication, weight, optimizer = self._stage_maxima(plan)
        ring, all_to_all = self._exchanges_s(plan)
        forward, backward = (
            passes + added for passes, added in zip((forward, backward), ring + all_to_all, strict=True)
        )
        reduction = self.reductions_s(plan)
        overlap = np.array([self._overlap(stage) for stage in plan.stages])
        hiding = hiding_s(forward, backward, self.profile.zero_stage, plan.num_micro_batches)
        exposed = exposed_reduction_s(hiding, reduction, overlap)
        sends = (
            send_s(self.fabric, self.profile, self.coefficients.sizes, plan) if self.send_receive else (0.0,) * plan.pp
        )
        warm_up, steady, extra = (
            float(part) for part in pipeline_s(forward, backward, exposed + optimizer, plan.num_micro_batches)
        )
        if plan.schedule.splits_backward:
            # Weights are what all stages end with, at about the same time.
            extra = float((exposed + optimizer).max())
        overlaps = FEATURES[self.profile.software].overlaps_sends
        if plan.virtual_stages > 1:
            schedule = schedule_of(plan.schedule, plan.pp, plan.virtual_stages, plan.num_micro_batches)
            times_s = np.array((forward, backward, weight))
            passes = parts_makespan_s(schedule, times_s, self._parts(plan), np.array(sends), blocking=not overlaps)
            if plan.schedule.splits_backward:
                # Known within 1 %, which may be more than the bubble.
                passes = max(passes, plan.num_micro_batches * float((forward + backward).max()))
            warm_up = max(passes - steady, 0.0)
            steady = passes - warm_up
        else:
            warm_up += sum(sends)
            if overlaps:
                # Links carry both directions at once.
                steady = max(steady, (plan.num_micro_batches - 1) * max(sends) / 2.0)
            else:
                steady = (plan.num_micro_batches - 1) * float((forward + backward + np.array(sends) / 2.0).max())
        total = warm_up + steady + extra
        straggling = total * (float(scaling(plan.num_gpus, self.coefficients.scale_loss)) - 1.0)
        both = (ring.sum(axis=0), all_to_all.sum(axis=0))
        columns = (forward, backward, communication, np.array(sends), reduction, exposed, optimizer, *both, weight)
        stages = tuple(
            StageTime(
                forward_s=row[0],
                backward_s=row[1],
                tensor_communication_s=row[2],
                send_s=row[3],
                reduction_s=row[4],
                exposed_reduction_s=row[5],
                optimizer_s=row[6],
                ring_s=row[7],
                all_to_all_s=row[8],
                weight_s=row[9] if plan.schedule.splits_backward else 0.0,
            )
            for row in np.transpose(columns).tolist()
        )
        return IterationTime(
            total_s=total + straggling,
            warm_up_s=warm_up,
            steady_s=steady,
            extra_s=extra,
            stages=stages,
            straggling_s=straggling,
        )

    def throughput(self, plan: ParallelPlan) -> float:
        """Samples per second."""
        return plan.global_batch / self.iteration(plan).total_s

    def memory(self, plan: ParallelPlan) -> tuple[StageMemory, ...]:
        """Peak memory per stage, on the GPUs of its replica with the largest local batch (A.3)."""
        return self.memory_of(
            plan, [(i, max(replica.local_batch for replica in stage.replicas)) for i, stage in enumerate(plan.stages)]
        )

    def memory_of(self, plan: ParallelPlan, replicas: Sequence[tuple[int, int]]) -> tuple[StageMemory, ...]:
        """Peak memory of a GPU of replicas, each given as (stage, local batch)."""
        return tuple(
            StageMemory(parameter_bytes=row[0], optimizer_bytes=row[1], gradient_bytes=row[2], activation_bytes=row[3])
            for row in np.transpose(self.of(plan)._peak_parts(plan, replicas)).tolist()
        )

    def reported_bytes(self, plan: ParallelPlan) -> float:
        """Memory that the driver reports of the fullest GPU: tensors and overhead."""
        return max(stage.total_bytes for stage in self.memory(plan)) + self.overhead_bytes

    def usable_bytes(self, gpu_type: str) -> float:
        """Memory of a GPU less the headroom."""
        return self.memory_bytes[gpu_type] * (1.0 - self.headroom)

    def fits(self, plan: ParallelPlan) -> bool:
        """Whether every replica fits into the memory of its GPUs."""
        replicas = sorted(
            {(i, r.local_batch, r.gpu_type) for i, stage in enumerate(plan.stages) for r in stage.replicas}
        )
        parts = self.of(plan)._peak_parts(plan, [(i, local_batch) for i, local_batch, _ in replicas])
        usable = np.array([self.usable_bytes(gpu_type) for *_, gpu_type in replicas])
        return bool((np.sum(parts, axis=0) <= usable).all())

    def shares(self, plan: ParallelPlan) -> tuple[StageShares, ...]:
        """Shares of every stage.

        Raises
        ------
        InputError
            When the plan does not have the layers of the profile.
        """
        if plan.num_layers != self.profile.num_layers:
            raise InputError(
                f"the plan has {counted(plan.num_layers, 'layer')}; the model {self.profile.name!r} has "
                f"{self.profile.num_layers}"
            )
        if plan.schedule is PipelineSchedule.ZBV:
            return tuple(there + back for there, back in self._v_shares(plan))
        bounds = accumulate((stage.num_layers for stage in plan.stages), initial=0)
        return tuple(self.share_table.stage(first, last) for first, last in pairwise(bounds))

    def _v_shares(self, plan: ParallelPlan) -> list[tuple[StageShares, StageShares]]:
        """Shares of both parts of every stage of zbv."""
        table = self.share_table
        return [
            (table.stage(*there), table.stage(*back)) for there, back in v_parts([s.num_layers for s in plan.stages])
        ]

    def _parts(self, plan: ParallelPlan) -> FloatArray:
        """Which part of the time of a stage each of its parts takes, (v, p); of zbv the end of the model is in one of
        them, others are taken to be alike."""
        if plan.schedule is not PipelineSchedule.ZBV:
            return np.full((plan.virtual_stages, plan.pp), 1.0 / plan.virtual_stages)
        compute = np.array([(there.compute, back.compute) for there, back in self._v_shares(plan)]).T
        whole = compute.sum(axis=0)
        return np.asarray(np.divide(compute, whole, out=np.full_like(compute, 0.5), where=whole > 0))

    @cached_property
    def share_table(self) -> ShareTable:
        """Shares of the layers in running sums."""
        return ShareTable.of(self.profile)

    def kept_as(self, kind: Checkpointing | None) -> "PerformanceModel":
        """The model of the job with this checkpointing of all layers; None: its own.

        Raises
        ------
        InputError
            When the job cannot have another one.
        """
        if kind is None or kind is self.profile.checkpointing:
            return self
        if self.retrained is None:
            raise InputError(f"{self.profile.name} is a list of operators, which say what they keep")
        if kind not in self._others:
            self._others[kind] = self.retrained(kind).at(self.context_parallel, self.expert_parallel)
        return self._others[kind]

    @cached_property
    def _others(self) -> "dict[Checkpointing, PerformanceModel]":
        return {}

    def coefficients_of(self, gpu_type: str) -> GpuCoefficients:
        """Coefficients of a GPU type.

        Raises
        ------
        InputError
            When there are none.
        """
        try:
            return self.coefficients.gpus[gpu_type]
        except KeyError:
            known = sorted(self.coefficients.gpus)
            raise InputError(f"no coefficients for GPU type {gpu_type!r}; there are some for {known}") from None

    def slowdowns(
        self, gpu_type: str, local_batch: FloatArray | float, tp: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Forward and backward computation at this size over that of the coefficients; arguments broadcast."""
        curve = self.coefficients.curves.get(gpu_type)
        if curve is None:
            same = np.ones(np.broadcast_shapes(np.shape(local_batch), np.shape(tp))) / self.context_parallel
            return same, same
        return curve.slowdowns(local_batch, tp)

    def elsewhere(self, parameters: Floats, experts: Floats) -> Floats:
        """Part of parameters that are experts of other replicas; `experts`: those of the `parameters` that are any."""
        return (1.0 - 1.0 / self.expert_parallel) * experts / parameters if self.expert_parallel > 1 else 0.0

    def ring_s(
        self, gpu_type: str, layers: Floats, local_batch: FloatArray, tp: FloatArray, s_per_byte: FloatArray
    ) -> FloatArray:
        """What attention waits for keys and values in both passes of stages, (2, ...); `layers`: share of the stage in
        tensor-parallel traffic, of which every layer has as much. Arguments broadcast."""
        curve = self.coefficients.curves.get(gpu_type)
        if curve is None or self.context_parallel == 1:
            return np.zeros((2, *np.broadcast_shapes(*map(np.shape, (layers, local_batch, tp, s_per_byte)))))
        passes = ring_passes_s(curve, local_batch, tp, self.context_parallel, s_per_byte)
        return np.array([one * layers / self.profile.num_layers for one in passes])

    def all_to_all_s(self, exchanged_bytes: Floats, local_batch: Floats, s_per_byte: Floats) -> FloatArray:
        """Time of what goes to experts and comes back in both passes of stages, (2, ...); `exchanged_bytes`: of a
        whole sequence. Arguments broadcast."""
        there = exchanged_bytes / self.context_parallel * local_batch * s_per_byte
        return np.array([there, self.profile.backward_all_reduces * there])

    def tensor_communication_s(self, local_batch: Floats, share: Floats, tp: Floats, bandwidth: Floats) -> Floats:
        """Time of the tensor-parallel communication of one forward pass; arguments as in `formulas`."""
        return self.coefficients.tensor_exposed * tensor_communication_s(
            self.coefficients.sizes.activation_bytes, local_batch, share, tp, bandwidth, self.fabric.saturation_bytes
        )

    def reduction_volume_bytes(
        self, parameters: Floats, dp: Floats, num_micro_batches: Floats, elsewhere: Floats = 0.0
    ) -> Floats:
        """Bytes that each replica of a stage sends in an iteration; `parameters` in mean layers."""
        sizes = self.coefficients.sizes
        return reduction_volume_bytes(
            sizes.gradient_bytes * parameters,
            sizes.parameter_bytes * parameters,
            dp,
            self.profile.zero_stage,
            num_micro_batches,
            elsewhere,
        )

    def group_times(self, plan: ParallelPlan, replicas: Sequence[tuple[int, str, float, int]]) -> GroupTimes:
        """Times of tensor-parallel groups of a plan.

        Parameters
        ----------
        replicas
            (stage, GPU type, bandwidth of a GPU inside the node, local batch) per group.
        """
        if (model := self.of(plan)) is not self:
            return model.group_times(plan, replicas)
        shares = self.shares(plan)
        stages = [
            (stage.tp, stage.dp, s.parameters, self.elsewhere(s.parameters, s.experts))
            for stage, s in zip(plan.stages, shares, strict=True)
        ]
        rows = [(self.coefficients_of(gpu_type).optimizer_s, *stages[i]) for i, gpu_type, *_ in replicas]
        optimizer_s, tp, dp, parameters, elsewhere = np.array(rows).T
        updated = optimizer_shard(parameters, tp, dp, self.profile.zero_stage, elsewhere)
        passes = np.zeros((5, len(replicas)))
        for model, of_stages in self._by_checkpointing(plan):
            at = [k for k, (i, *_) in enumerate(replicas) if i in of_stages]
            if at:
                passes[:, at] += model._passes_s(plan, of_stages, [replicas[k] for k in at])
        forward, backward, communication, both_ways, weight = passes
        return GroupTimes(
            forward_s=forward,
            backward_s=backward,
            communication_s=communication,
            both_ways_s=both_ways,
            weight_s=weight,
            optimizer_s=np.asarray(optimizer_s * updated),
        )

    def _passes_s(
        self, plan: ParallelPlan, shares: Mapping[int, StageShares], replicas: Sequence[tuple[int, str, float, int]]
    ) -> FloatArray:
        """Forward and backward time of groups, communication of one and of both passes, gradients of weights, (5, R);
        `shares`: by stage."""
        stages = {i: (plan.stages[i].tp, s.compute, s.tensor) for i, s in shares.items()}
        rows = [
            (c.compute_s, c.backward_ratio, bandwidth, local_batch, *stages[i])
            for i, gpu_type, bandwidth, local_batch in replicas
            for c in (self.coefficients_of(gpu_type),)
        ]
        compute_s, ratio, bandwidth, batch, tp, compute, tensor = np.array(rows).T
        computation = compute_s * batch * compute / tp
        communication = self.tensor_communication_s(batch, tensor, tp, bandwidth)
        forward, backward = np.ones((2, len(rows)))
        for gpu_type in {gpu_type for _, gpu_type, *_ in replicas}:
            of_type = np.array([gpu_type == other for _, other, *_ in replicas])
            forward[of_type], backward[of_type] = self.slowdowns(gpu_type, batch[of_type], tp[of_type])
        again = self.profile.backward_all_reduces
        back = ratio * computation * backward
        return np.array(
            (
                computation * forward + communication,
                back + again * communication,
                communication,
                communication * (1.0 + again),
                self.profile.weight_share * back,
            )
        )

    def _by_checkpointing(self, plan: ParallelPlan) -> "list[tuple[PerformanceModel, dict[int, StageShares]]]":
        """The layers of a plan by their checkpointing: the model of each, and shares of stages in it."""
        if not plan.has_own_checkpointing:
            return [(self, dict(enumerate(self.shares(plan))))]
        found: dict[Checkpointing | None, dict[int, StageShares]] = {}
        bounds = accumulate((stage.num_layers for stage in plan.stages), initial=0)
        for i, (stage, (first, last)) in enumerate(zip(plan.stages, pairwise(bounds), strict=True)):
            until = last if stage.recomputed_layers is None else first + stage.recomputed_layers
            for kind, start, end in ((stage.checkpointing, first, until), (Checkpointing.NONE, until, last)):
                if end > start:
                    found.setdefault(kind, {})[i] = self.kept_as(kind).share_table.stage(start, end)
        return [(self.kept_as(kind), shares) for kind, shares in found.items()]

    def reductions_s(self, plan: ParallelPlan) -> FloatArray:
        """Time of the gradient reduction over the replicas of every stage, (S,)."""
        if (model := self.of(plan)) is not self:
            return model.reductions_s(plan)
        return np.array(
            [
                self._reduction_s(stage, share, plan.num_micro_batches)
                for stage, share in zip(plan.stages, self.shares(plan), strict=True)
            ]
        )

    def _peak_parts(self, plan: ParallelPlan, replicas: Sequence[tuple[int, int]]) -> FloatArray:
        """Parameters, optimiser states, gradients, activations at the peak of replicas, (4, R) bytes."""
        shares = self.shares(plan)
        stages = [
            (
                *(s.parameters, s.partitioned, s.replicated, plan.stages[i].tp, plan.stages[i].dp, plan.in_flight(i)),
                self.elsewhere(s.parameters, s.experts),
                plan.waiting(i),
            )
            for i, s in enumerate(shares)
        ]
        rows = [(local_batch, *stages[i]) for i, local_batch in replicas]
        columns = np.array(rows, dtype=np.float64).T
        local_batch, parameters, partitioned, replicated, tp, dp, behind, elsewhere, waiting = columns
        return np.array(
            peak_parts(
                profile=self.profile,
                sizes=self.coefficients.sizes,
                parameters=parameters,
                partitioned=partitioned,
                replicated=replicated,
                tp=tp,
                dp=dp,
                local_batch=local_batch,
                stages_behind=behind,
                num_micro_batches=float(plan.num_micro_batches),
                elsewhere=elsewhere,
                waiting=waiting,
                kept=self._kept_bytes(plan, replicas) if plan.has_own_checkpointing else None,
            )
        )

    def _kept_bytes(self, plan: ParallelPlan, replicas: Sequence[tuple[int, int]]) -> tuple[FloatArray, FloatArray]:
        """What a sample keeps on a GPU of replicas, and what the layer keeps that is being repeated, (R,) each."""
        tp = np.array([plan.stages[i].tp for i, _ in replicas], dtype=np.float64)
        kept, working = np.zeros((2, len(replicas)))
        for model, shares in self._by_checkpointing(plan):
            for k, (i, _) in enumerate(replicas):
                if i in shares:
                    partitioned, replicated = shares[i].partitioned, shares[i].replicated
                    kept[k] += activation_bytes(model.profile, model.coefficients.sizes, tp[k], partitioned, replicated)
                    working[k] = max(working[k], working_bytes(model.profile, tp[k]))
        return kept, working

    def _stage_maxima(self, plan: ParallelPlan) -> FloatArray:
        """Forward, backward, communication of both, gradients of weights, and optimiser time of the slowest groups,
        (5, S)."""
        replicas, starts = _distinct_groups(plan, self.fabric)
        times = self.group_times(plan, replicas)
        columns = (times.forward_s, times.backward_s, times.both_ways_s, times.weight_s, times.optimizer_s)
        return np.asarray(np.maximum.reduceat(np.array(columns), starts, axis=1))

    def _exchanges_s(self, plan: ParallelPlan) -> tuple[FloatArray, FloatArray]:
        """Of every stage, (2, S) each: what attention waits for keys and values, and what goes to experts and back."""
        ring, all_to_all = np.zeros((2, 2, plan.pp))
        if self.context_parallel * self.expert_parallel == 1:
            return ring, all_to_all
        parts = self._by_checkpointing(plan)
        for i, stage in enumerate(plan.stages):
            nodes, tp = [replica.node for replica in stage.replicas], stage.tp
            batch = max(replica.local_batch for replica in stage.replicas)
            ring_s = ring_s_per_byte(self.fabric, nodes, tp, self.context_parallel)
            there_s = all_to_all_s_per_byte(self.fabric, nodes, tp, self.expert_parallel)
            kinds = {replica.gpu_type for replica in stage.replicas}
            for model, shares in parts:
                if (share := shares.get(i)) is not None:
                    sizes = share.tensor, np.array(batch), np.array(tp), np.array(ring_s)
                    ring[:, i] += np.max([model.ring_s(kind, *sizes) for kind in kinds], axis=0)
                    all_to_all[:, i] += model.all_to_all_s(share.exchanged_bytes, batch, there_s)
        return ring, all_to_all

    def _reduction_s(self, stage: Stage, share: StageShares, num_micro_batches: int) -> float:
        """Time of the gradient reduction over the replicas of a stage: the slowest part of the ring."""
        if stage.dp == 1:
            return 0.0
        elsewhere = self.elsewhere(share.parameters, share.experts)
        volume = float(self.reduction_volume_bytes(share.parameters, stage.dp, num_micro_batches, elsewhere))
        nodes = Counter(replica.node for replica in stage.replicas)
        inside = [self.fabric.intra_bytes_per_s(node) for node, replicas in nodes.items() if replicas > 1]
        times = [volume / stage.tp / min(inside)] if inside else []
        if len(nodes) > 1:
            times.append(volume / self.fabric.group_bytes_per_s(nodes))
        return max(times)

    def _overlap(self, stage: Stage) -> float:
        """The least overlap of the GPU types of a stage."""
        return min(self.coefficients_of(gpu_type).overlap for gpu_type in {r.gpu_type for r in stage.replicas})


def _distinct_groups(plan: ParallelPlan, fabric: Fabric) -> tuple[list[tuple[int, str, float, int]], list[int]]:
    """Groups whose times may differ, stage by stage, and where each stage starts among them."""
    groups: list[tuple[int, str, float, int]] = []
    starts: list[int] = []
    for i, stage in enumerate(plan.stages):
        starts.append(len(groups))
        groups += sorted({(i, r.gpu_type, fabric.intra_bytes_per_s(r.node), r.local_batch) for r in stage.replicas})
    return groups, starts
