"""What a model costs, layer by layer: the common ground of all planners, whatever the model is.

A profile is a sequence of L layers (transformer blocks, or clustered operators) between an embedding and a head. The
first stage of a plan holds the embedding, the last one the head; both are zero for operator lists. A head that is tied
to the embedding uses its matrix: where first and last stage are not the same, the last one holds a copy.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from models.performance.iteration.kernels import LayerKernels, usual_s
from models.software import FEATURES, Software
from models.transformer import Checkpointing
from stowplan.arrays import FloatVector


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """Costs of one layer without any parallelism; per sample (sequence) unless it says otherwise.

    parameters: weights of the layer. forward_flops: FLOPs of the forward pass.
    memory_traffic_bytes: activations read and written in the forward pass (the weights come once per micro-batch).
    tensor_parallel_bytes: what all tensor-parallel all-reduces of the forward pass carry (2 k_activ for a transformer
    block). boundary_bytes: activation handed to the next layer (k_activ). partitioned_activation_bytes: kept for the
    backward pass, divided by the tensor degree (k_activ-p). replicated_activation_bytes: the same, not divided
    (k_activ-np) but by sequence parallelism. kernels: what the layer computes with, None where only sums are known.
    expert_parameters: those of the weights that are experts. exchanged_bytes: what goes to experts and comes back in
    the forward pass, wherever they are.
    """

    parameters: float = 0.0
    forward_flops: float = 0.0
    memory_traffic_bytes: float = 0.0
    tensor_parallel_bytes: float = 0.0
    boundary_bytes: float = 0.0
    partitioned_activation_bytes: float = 0.0
    replicated_activation_bytes: float = 0.0
    kernels: LayerKernels | None = None
    expert_parameters: float = 0.0
    exchanged_bytes: float = 0.0

    @property
    def compute(self) -> float:
        """What the layer counts in computation beside others: seconds on a usual GPU, else FLOPs."""
        return self.forward_flops if self.kernels is None else usual_s(self.kernels)


@dataclass(frozen=True, kw_only=True)
class ModelProfile:
    """Costs of a model and how it is trained.

    `parameter_bytes`, `gradient_bytes`, `optimizer_bytes`: per parameter, in memory; gradients are reduced over the
    replicas as they are kept. `backward_ratio`: FLOPs of the backward pass over those of the forward pass, 2 plus the
    share of the forward pass that is repeated. `backward_all_reduces`: tensor-parallel traffic of the backward pass
    over that of the forward pass, 1 or 2. `flops_precision`: key of the peak in the GPU catalogue.
    `tensor_units`: what tensor parallelism divides, (name, count): every degree must divide every count.
    `tied_parameters`: of the embedding, used by the head too; 0 where nothing is tied. Counted once in the model.
    `sequence_parallel`: what tensor parallelism replicates is split over its GPUs. `working_partitioned_bytes` and
    `working_replicated_bytes`: activations of the layer that is being repeated, per sample. `software`: what trains.
    `weight_share`: part of the backward pass, without what is repeated, that is of the gradients of weights.
    `sequence_length`: tokens that context parallelism may divide; 0: the model has no sequences. `num_experts`: of a
    layer that has experts. `checkpointing`: what is in the costs of layers; None: layers say themselves what they keep.
    """

    name: str
    layers: tuple[LayerCost, ...]
    embedding: LayerCost
    head: LayerCost
    global_batch: int
    micro_batch: int | None
    zero_stage: int
    flops_precision: str
    parameter_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    backward_ratio: float
    backward_all_reduces: float = 1.0
    tensor_units: tuple[tuple[str, int], ...] = ()
    tied_parameters: float = 0.0
    sequence_parallel: bool = False
    working_partitioned_bytes: float = 0.0
    working_replicated_bytes: float = 0.0
    software: Software = Software.DEEPSPEED
    sequence_length: int = 0
    num_experts: int = 1
    checkpointing: Checkpointing | None = None
    weight_share: float = 0.5

    @property
    def num_layers(self) -> int:
        """L, embedding and head not counted."""
        return len(self.layers)

    @property
    def has_pipelines(self) -> bool:
        """Whether the software runs pipelines at this ZeRO stage."""
        return self.zero_stage <= FEATURES[self.software].pipeline_zero

    def shared(self, cp: int) -> "ModelProfile":
        """Profile where a sample is one of the `cp` parts of a sequence, in what does not scale with `sizes`."""
        return replace(
            self,
            global_batch=self.global_batch * cp,
            working_partitioned_bytes=self.working_partitioned_bytes / cp,
            working_replicated_bytes=self.working_replicated_bytes / cp,
        )

    def admits_context_degree(self, cp: int) -> bool:
        """Whether ring attention divides the sequences: every replica has two parts, one early and one late, so that a
        causal mask leaves all as much to do (Megatron-Core, torchtitan)."""
        can = FEATURES[self.software].context_parallel and self.sequence_length > 0
        return cp == 1 or (can and self.sequence_length % (2 * cp) == 0)

    def admits_expert_degree(self, ep: int) -> bool:
        """Whether replicas may have equal numbers of experts."""
        return ep == 1 or (FEATURES[self.software].expert_parallel and self.num_experts % ep == 0)

    @cached_property
    def prefix(self) -> "ProfilePrefix":
        """Running sums over the layers."""
        return ProfilePrefix.of(self)

    @cached_property
    def kernels(self) -> "tuple[tuple[LayerKernels, float], ...]":
        """Kernels of layers and head, and how many layers have them; empty where some are not known."""
        counts = Counter((*(layer.kernels for layer in self.layers), self.head.kernels))
        known = tuple((kernels, float(count)) for kernels, count in counts.items() if kernels is not None)
        return known if len(known) == len(counts) else ()

    def admits_tensor_degree(self, tp: int) -> bool:
        """Whether the degree divides everything that tensor parallelism divides."""
        return all(count % tp == 0 for _, count in self.tensor_units)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfilePrefix:
    """Sums of costs over layers [0, k), float64 (L + 1,) each; a stage [a, b) costs `sums[b] - sums[a]`.

    The embedding is part of layer 0 and the head of layer L - 1, but for `boundary_bytes`, which is (L,): what layer k
    hands on. `compute`: see `LayerCost`.
    """

    parameters: FloatVector
    forward_flops: FloatVector
    compute: FloatVector
    memory_traffic_bytes: FloatVector
    tensor_parallel_bytes: FloatVector
    partitioned_activation_bytes: FloatVector
    replicated_activation_bytes: FloatVector
    boundary_bytes: FloatVector
    expert_parameters: FloatVector
    exchanged_bytes: FloatVector

    @classmethod
    def of(cls, profile: ModelProfile) -> "ProfilePrefix":
        """Sum up a profile."""
        sums: dict[str, FloatVector] = {}
        for name in cls.__slots__:
            values = np.array([getattr(layer, name) for layer in profile.layers], dtype=np.float64)
            if name == "boundary_bytes":
                sums[name] = values
                continue
            values[0] += getattr(profile.embedding, name)
            values[-1] += getattr(profile.head, name)
            sums[name] = np.concatenate([[0.0], np.cumsum(values)])
        return cls(**sums)
