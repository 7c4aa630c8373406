"""A model of equal layers on small nodes, with numbers that a person can follow, and drawn plans on them.

    minipod p: leaf k: a (x), b (x)   leaf l: c (y)        minipod q: leaf k: d (x), e (y)

Bandwidth between nodes 10 bytes/s (x), 30 bytes/s (y), inside them 32 and 64 bytes/s per GPU; half of the bandwidth is
left between leaves, 0.83 x 0.5 between minipods.
"""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from models.parallel_plan import ParallelPlan, Replica, Stage
from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients, SizeCoefficients
from models.performance.iteration.fabric import Fabric, Host
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.profile import LayerCost, ModelProfile
from models.software import Software

NUM_LAYERS = 6
PATHS = {"a": ("p", "k"), "b": ("p", "k"), "c": ("p", "l"), "d": ("q", "k"), "e": ("q", "k")}
TYPES = {"a": "x", "b": "x", "c": "y", "d": "x", "e": "y"}
SIZES = SizeCoefficients(
    activation_bytes=8.0,
    gradient_bytes=30.0,
    parameter_bytes=10.0,
    optimizer_bytes=40.0,
    partitioned_activation_bytes=6.0,
    replicated_activation_bytes=1.0,
)
GPUS = {
    "x": GpuCoefficients(compute_s=1.0, backward_ratio=2.0, optimizer_s=0.5, overlap=2.0),
    "y": GpuCoefficients(compute_s=0.5, backward_ratio=3.0, optimizer_s=0.1, overlap=1.0),
}


def profile(
    num_layers: int = NUM_LAYERS, *, zero_stage: int = 0, head: LayerCost | None = None, tied_parameters: float = 0.0
) -> ModelProfile:
    """Equal layers whose white-box sizes are `SIZES`, under a software that sends while it computes."""
    layer = LayerCost(
        parameters=10.0,
        forward_flops=1.0,
        tensor_parallel_bytes=16.0,
        boundary_bytes=8.0,
        partitioned_activation_bytes=6.0,
        replicated_activation_bytes=1.0,
    )
    return ModelProfile(
        name="toy",
        layers=(layer,) * num_layers,
        embedding=LayerCost(),
        head=head or LayerCost(),
        global_batch=12,
        micro_batch=None,
        zero_stage=zero_stage,
        software=Software.MEGATRON_CORE,
        flops_precision="bf16",
        parameter_bytes=1.0,
        gradient_bytes=3.0,
        optimizer_bytes=4.0,
        backward_ratio=2.0,
        tied_parameters=tied_parameters,
    )


def fabric(*, faster: float = 1.0, minipods: bool = True) -> Fabric:
    """The nodes above, with 256 bytes to fill a link inside a node."""
    rates = {"x": (32.0, 10.0), "y": (64.0, 30.0)}
    return Fabric(
        hosts={
            node: Host(
                gpu_type=TYPES[node],
                intra_bytes_per_s=rates[TYPES[node]][0] * faster,
                inter_bytes_per_s=rates[TYPES[node]][1] * faster,
                path=path,
            )
            for node, path in PATHS.items()
        },
        fractions=(0.83 * 0.5, 0.5, 1.0),
        saturation_bytes=256.0,
        minipod_depth=1 if minipods else None,
    )


def model(of: ModelProfile | None = None, *, on: Fabric | None = None, **changes: Any) -> PerformanceModel:
    """The job on the nodes above."""
    plain = PerformanceModel(
        profile=of or profile(),
        coefficients=JobCoefficients(gpus=GPUS, sizes=SIZES),
        fabric=on or fabric(),
        memory_bytes={"x": 1000.0, "y": 1000.0},
    )
    return replace(plain, **changes) if changes else plain


def plan(*stages: tuple[int, int, dict[str, list[int]]], num_micro_batches: int = 3) -> ParallelPlan:
    """Plan of stages (layers, tensor degree, node -> local batch of each of its replicas)."""
    used = dict.fromkeys(PATHS, 0)
    built = []
    for num_layers, tp, nodes in stages:
        replicas = []
        for node, batches in nodes.items():
            for batch in batches:
                gpus = tuple(range(used[node], used[node] + tp))
                used[node] += tp
                replicas.append(Replica(node=node, gpu_type=TYPES[node], gpus=gpus, local_batch=batch))
        built.append(Stage(num_layers=num_layers, replicas=tuple(replicas)))
    return ParallelPlan(stages=tuple(built), num_micro_batches=num_micro_batches)


@st.composite
def plans(draw: st.DrawFn, *, num_layers: int = NUM_LAYERS, nodes: str = "abcde") -> ParallelPlan:
    """Any plan of `num_layers` layers: degrees, batches, nodes and types differ as they like."""
    pp = draw(st.integers(1, 3))
    cuts = sorted(draw(st.lists(st.integers(1, num_layers - 1), min_size=pp - 1, max_size=pp - 1, unique=True)))
    layers = [b - a for a, b in zip([0, *cuts], [*cuts, num_layers], strict=True)]
    micro_batch = draw(st.integers(3, 6))
    stages = []
    for num in layers:
        dp = draw(st.integers(1, 3))
        bounds = draw(st.lists(st.integers(1, micro_batch - 1), min_size=dp - 1, max_size=dp - 1, unique=True))
        ends = [*sorted(bounds), micro_batch]
        where: dict[str, list[int]] = {}
        for first, last in zip([0, *ends[:-1]], ends, strict=True):
            where.setdefault(draw(st.sampled_from(nodes)), []).append(last - first)
        stages.append((num, draw(st.sampled_from([1, 2, 4])), where))
    return plan(*stages, num_micro_batches=draw(st.integers(1, 8)))
