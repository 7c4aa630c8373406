"""Iteration time and memory of one 3D-parallel plan on concrete nodes; the mathematics is in `formulas`, `memory`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.parallel_plan import ParallelPlan, Stage
from models.performance.iteration.exchanges import all_to_all_s_per_byte, ring_s_per_byte
from models.performance.iteration.fabric import Fabric
from models.performance.iteration.formulas import exposed_reduction_s, hiding_s, pipeline_s, scaling
from models.performance.iteration.job_on_fabric import JobOnFabric
from models.performance.iteration.memory import (
    StageMemory,
    activation_bytes,
    optimizer_shard,
    peak_parts,
    working_bytes,
)
from models.performance.iteration.sends import send_s
from models.performance.iteration.shares import StageShares
from models.performance.iteration.times import (
    GroupTimes,
    IterationTime,
    StageTime,
    parts_makespan_s,
    schedule_of,
)
from models.software import FEATURES
from stowplan.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class PerformanceModel(JobOnFabric):
    """One job on one fabric: how long plans of it take, and what memory they need."""

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

    def fits(self, plan: ParallelPlan) -> bool:
        """Whether every replica fits into the memory of its GPUs."""
        replicas = sorted(
            {(i, r.local_batch, r.gpu_type) for i, stage in enumerate(plan.stages) for r in stage.replicas}
        )
        parts = self.of(plan)._peak_parts(plan, [(i, local_batch) for i, local_batch, _ in replicas])
        usable = np.array([self.usable_bytes(gpu_type) for *_, gpu_type in replicas])
        return bool((np.sum(parts, axis=0) <= usable).all())

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
