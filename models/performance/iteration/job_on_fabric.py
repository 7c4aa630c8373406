"""What one job costs on one fabric, whatever its plan: with its degrees, its checkpointing, and on its GPUs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Self

import numpy as np

from models.parallel_plan import ParallelPlan, v_parts
from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients
from models.performance.iteration.exchanges import ring_passes_s
from models.performance.iteration.fabric import Fabric
from models.performance.iteration.formulas import Floats, reduction_volume_bytes, tensor_communication_s
from models.performance.iteration.profile import ModelProfile
from models.performance.iteration.shares import ShareTable, StageShares
from models.pipeline_schedule import PipelineSchedule
from models.transformer import Checkpointing
from models.wording import counted
from stowplan.arrays import FloatArray
from stowplan.errors import InputError


# No slots: the shares are cached in the instance.
@dataclass(frozen=True, kw_only=True)
class JobOnFabric:
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
    retrained: Callable[[Checkpointing], Self] | None = None
    context_parallel: int = 1
    expert_parallel: int = 1

    def on(self, fabric: Fabric) -> Self:
        """The same job on other nodes, which it gets the same shares of bandwidth of."""
        own = self.fabric
        return replace(self, fabric=replace(fabric, intra_share=own.intra_share, inter_share=own.inter_share))

    def at(self, cp: int, ep: int) -> Self:
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
    def _shared(self) -> dict[tuple[int, int], Self]:
        return {}

    def of(self, plan: ParallelPlan) -> Self:
        """The model of plans with the degrees of this one."""
        return self.at(plan.context_parallel, plan.expert_parallel)

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

    def kept_as(self, kind: Checkpointing | None) -> Self:
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
    def _others(self) -> dict[Checkpointing, Self]:
        return {}

    def _by_checkpointing(self, plan: ParallelPlan) -> list[tuple[Self, dict[int, StageShares]]]:
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

    def usable_bytes(self, gpu_type: str) -> float:
        """Memory of a GPU less the headroom."""
        return self.memory_bytes[gpu_type] * (1.0 - self.headroom)
