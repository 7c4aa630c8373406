"""A small model on small nodes, with numbers that a person can follow.

    node "0": gpus 0 1 2 3     node "1": gpus 0 1 2 3     ...

Every layer: 1 s of forward computation per sample and GPU, backward twice that, 8 bytes of tensor traffic, 12 bytes
of weights, gradients and optimiser states together. Inside a node 100 bytes/s, between nodes 10 bytes/s.
"""

from collections.abc import Sequence

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients, SizeCoefficients
from models.performance.iteration.fabric import Fabric, Host
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.profile import LayerCost, ModelProfile

KIND = "x"


def profile(
    flops: Sequence[float] = (1.0,) * 4,
    *,
    global_batch: int = 8,
    micro_batch: int | None = None,
    zero_stage: int = 0,
    heads: int = 4,
    head_flops: float = 0.0,
    tied_parameters: float = 0.0,
) -> ModelProfile:
    layers = tuple(
        LayerCost(
            parameters=f,
            forward_flops=f,
            memory_traffic_bytes=f,
            tensor_parallel_bytes=8.0,
            boundary_bytes=4.0,
            partitioned_activation_bytes=3.0,
            replicated_activation_bytes=1.0,
        )
        for f in flops
    )
    return ModelProfile(
        name="toy",
        layers=layers,
        embedding=LayerCost(),
        head=LayerCost(forward_flops=head_flops, memory_traffic_bytes=head_flops),
        global_batch=global_batch,
        micro_batch=micro_batch,
        zero_stage=zero_stage,
        flops_precision="bf16",
        parameter_bytes=2.0,
        gradient_bytes=2.0,
        optimizer_bytes=8.0,
        backward_ratio=2.0,
        tensor_units=(("attention heads", heads),),
        tied_parameters=tied_parameters,
    )


def performance_model(
    of: ModelProfile | None = None,
    *,
    num_nodes: int = 4,
    memory_bytes: float = 1000.0,
    overlap: float = 2.0,
    intra_bytes_per_s: float = 100.0,
    inter_bytes_per_s: float = 10.0,
    send_receive: bool = False,
) -> PerformanceModel:
    of = of or profile()
    mean = sum(layer.parameters for layer in of.layers) / of.num_layers
    return PerformanceModel(
        profile=of,
        coefficients=JobCoefficients(
            gpus={KIND: GpuCoefficients(compute_s=1.0, backward_ratio=2.0, optimizer_s=0.5, overlap=overlap)},
            sizes=SizeCoefficients(
                activation_bytes=4.0,
                gradient_bytes=2.0 * mean,
                parameter_bytes=2.0 * mean,
                optimizer_bytes=8.0 * mean,
                partitioned_activation_bytes=3.0,
                replicated_activation_bytes=1.0,
            ),
        ),
        fabric=Fabric(
            hosts={
                str(k): Host(gpu_type=KIND, intra_bytes_per_s=intra_bytes_per_s, inter_bytes_per_s=inter_bytes_per_s)
                for k in range(num_nodes)
            },
            saturation_bytes=64.0,
        ),
        memory_bytes={KIND: memory_bytes},
        send_receive=send_receive,
    )


def plan(
    pp: int, dp: int, tp: int, *, num_micro_batches: int = 2, layers: int | tuple[int, ...] = 4, gpus_per_node: int = 4
) -> ParallelPlan:
    gpus = tuple((str(k // gpus_per_node), k % gpus_per_node) for k in range(pp * dp * tp))
    return symmetric_plan(
        num_layers=layers,
        pp=pp,
        dp=dp,
        tp=tp,
        global_batch=8,
        num_micro_batches=num_micro_batches,
        gpu_type=KIND,
        gpus=gpus,
    )
