"""Iteration time and memory of one 3D-parallel plan on concrete nodes; the mathematics is in `formulas`, `memory`."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from models.parallel_plan import ParallelPlan, Replica, Stage
from models.performance.coefficients import JobCoefficients
from models.performance.fabric import Fabric
from models.performance.formulas import all_reduce_bytes, exposed_reduction_s, pipeline_s, saturated_bandwidth
from models.performance.memory import StageMemory, stage_memory
from models.performance.profile import ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShares:
    """What a stage is of the mean layer: sums over its layers (embedding and head included) over the mean.

    `compute` by FLOPs, `parameters` by weights, `tensor` by tensor-parallel traffic, `partitioned` and `replicated`
    by activations kept. All are the number of layers where layers are equal and there is neither embedding nor head.
    """

    num_layers: int
    compute: float
    parameters: float
    tensor: float
    partitioned: float
    replicated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """Times of one stage in seconds: per micro-batch, the slowest replica; the last three once per iteration.

    `forward_s` and `backward_s` include the tensor-parallel communication. `send_s`: the activation to the next stage,
    there and its gradient back; it is part of the warm-up only, since later sends overlap with computation.
    """

    forward_s: float
    backward_s: float
    tensor_communication_s: float
    send_s: float
    reduction_s: float
    exposed_reduction_s: float
    optimizer_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTime:
    """Iteration time in seconds and what it is made of: `total_s` = warm_up_s + steady_s + extra_s."""

    total_s: float
    warm_up_s: float
    steady_s: float
    extra_s: float
    stages: tuple[StageTime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceModel:
    """One job on one fabric.

    `memory_bytes`: GPU type -> memory of a GPU. `headroom`: share of it kept free for what the formulas do not know
    (A.3: 10 %). `send_receive`: add the first micro-batch's transfers between stages, which the paper neglects.
    """

    profile: ModelProfile
    coefficients: JobCoefficients
    fabric: Fabric
    memory_bytes: Mapping[str, float]
    headroom: float = 0.1
    send_receive: bool = False

    def iteration(self, plan: ParallelPlan) -> IterationTime:
        """Time of one iteration (A.2)."""
        times = [self._stage(plan, i, shares) for i, shares in enumerate(self.shares(plan))]
        forward, backward = (np.array([getattr(t, name) for t in times]) for name in ("forward_s", "backward_s"))
        extra = np.array([t.exposed_reduction_s + t.optimizer_s for t in times])
        warm_up, steady, last = (float(part) for part in pipeline_s(forward, backward, extra, plan.num_micro_batches))
        warm_up += sum(t.send_s for t in times)
        return IterationTime(
            total_s=warm_up + steady + last, warm_up_s=warm_up, steady_s=steady, extra_s=last, stages=tuple(times)
        )

    def throughput(self, plan: ParallelPlan) -> float:
        """Samples per second."""
        return plan.global_batch / self.iteration(plan).total_s

    def memory(self, plan: ParallelPlan) -> tuple[StageMemory, ...]:
        """Peak memory per stage, on the GPUs of its replica with the largest local batch (A.3)."""
        return tuple(
            stage_memory(
                profile=self.profile,
                sizes=self.coefficients.sizes,
                shares=shares,
                tp=stage.tp,
                dp=stage.dp,
                local_batch=max(replica.local_batch for replica in stage.replicas),
                stages_behind=plan.pp - i,
                num_micro_batches=plan.num_micro_batches,
            )
            for i, (stage, shares) in enumerate(zip(plan.stages, self.shares(plan), strict=True))
        )

    def usable_bytes(self, gpu_type: str) -> float:
        """Memory of a GPU less the headroom."""
        return self.memory_bytes[gpu_type] * (1.0 - self.headroom)

    def fits(self, plan: ParallelPlan) -> bool:
        """Whether every replica fits into the memory of its GPUs."""
        return all(
            memory.total_bytes <= min(self.usable_bytes(replica.gpu_type) for replica in stage.replicas)
            for stage, memory in zip(plan.stages, self.memory(plan), strict=True)
        )

    def shares(self, plan: ParallelPlan) -> tuple[StageShares, ...]:
        """Shares of every stage; the layers of the plan must be those of the profile."""
        bounds = np.cumsum([0, *(stage.num_layers for stage in plan.stages)]).tolist()
        return tuple(stage_shares(self.profile, a, b) for a, b in pairwise(bounds))

    def _stage(self, plan: ParallelPlan, i: int, shares: StageShares) -> StageTime:
        stage = plan.stages[i]
        replicas = [self._replica(replica, stage.tp, shares) for replica in stage.replicas]
        forward, backward, communication, optimizer = (max(column) for column in zip(*replicas, strict=True))
        reduction = self._reduction_s(stage, shares)
        overlap = min(self.coefficients.gpus[replica.gpu_type].overlap for replica in stage.replicas)
        return StageTime(
            forward_s=forward,
            backward_s=backward,
            tensor_communication_s=communication,
            send_s=self._send_s(plan, i) if self.send_receive else 0.0,
            reduction_s=reduction,
            exposed_reduction_s=float(exposed_reduction_s(np.array(backward), np.array(reduction), overlap)),
            optimizer_s=optimizer,
        )

    def _replica(self, replica: Replica, tp: int, shares: StageShares) -> tuple[float, float, float, float]:
        """Forward, backward, communication of both, and optimiser time of one tensor-parallel group."""
        of_type = self.coefficients.gpus[replica.gpu_type]
        computation = of_type.compute_s * replica.local_batch * shares.compute / tp
        communication = 0.0
        if tp > 1 and shares.tensor > 0:
            payload = 2.0 * self.coefficients.sizes.activation_bytes * replica.local_batch
            volume = float(all_reduce_bytes(payload * shares.tensor, tp))
            bandwidth = saturated_bandwidth(
                self.fabric.intra_bytes_per_s(replica.node),
                volume / (2.0 * shares.num_layers),
                self.fabric.saturation_bytes,
            )
            communication = volume / float(bandwidth)
        again = communication * self.profile.backward_all_reduces
        return (
            computation + communication,
            of_type.backward_ratio * computation + again,
            communication + again,
            of_type.optimizer_s * shares.parameters / tp,
        )

    def _reduction_s(self, stage: Stage, shares: StageShares) -> float:
        """Time of the gradient reduction over the replicas of a stage."""
        volume = float(all_reduce_bytes(self.coefficients.sizes.gradient_bytes * shares.parameters, stage.dp))
        nodes = {replica.node for replica in stage.replicas}
        if len(nodes) > 1:
            return volume / self.fabric.group_bytes_per_s(nodes)
        return volume / stage.tp / self.fabric.intra_bytes_per_s(next(iter(nodes)))

    def _send_s(self, plan: ParallelPlan, i: int) -> float:
        """Time to send the largest local activation to the next stage, and its gradient back."""
        if i + 1 == plan.pp:
            return 0.0
        here, there = plan.stages[i], plan.stages[i + 1]
        nodes = {replica.node for replica in (*here.replicas, *there.replicas)}
        largest = max(replica.local_batch for replica in (*here.replicas, *there.replicas))
        payload = self.coefficients.sizes.activation_bytes * largest
        if len(nodes) == 1:
            return 2.0 * payload / self.fabric.intra_bytes_per_s(next(iter(nodes)))
        return 2.0 * payload / self.fabric.group_bytes_per_s(nodes)


def stage_shares(profile: ModelProfile, first: int, last: int) -> StageShares:
    """Shares of the stage of layers [first, last)."""
    prefix = profile.prefix

    def share(name: str) -> float:
        sums = getattr(prefix, name)
        total = sum(getattr(layer, name) for layer in profile.layers)
        return float(sums[last] - sums[first]) * profile.num_layers / total if total > 0 else 0.0

    return StageShares(
        num_layers=last - first,
        compute=share("forward_flops"),
        parameters=share("parameters"),
        tensor=share("tensor_parallel_bytes"),
        partitioned=share("partitioned_activation_bytes"),
        replicated=share("replicated_activation_bytes"),
    )
