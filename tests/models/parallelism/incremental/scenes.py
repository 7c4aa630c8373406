"""Jobs of the catalogue on H100 nodes, and arbitrary small jobs for property tests.

node "0": 8 x H100      node "1": 8 x H100     ...      one switch
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from models.catalogue import find_model
from models.parallel_plan import Gpu, ParallelPlan, Replica, Stage, symmetric_plan
from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients, SizeCoefficients
from models.performance.iteration.fabric import Fabric, Host
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.profile import LayerCost, ModelProfile
from topology.gpu_catalogue import find_product, gpu_type_of

H100 = gpu_type_of(find_product("h100"), "bf16")


def job(
    name: str = "llama2-7b",
    *,
    num_nodes: int = 2,
    gpus_per_node: int = 8,
    global_batch: int = 64,
    micro_batch: int | None = None,
    zero_stage: int | None = None,
) -> PerformanceModel:
    model = find_model(name, global_batch=global_batch, micro_batch=micro_batch, zero_stage=zero_stage)
    found = virtual_model(model, H100, gpus_per_node, num_nodes)
    # As in the paper: stages send nothing, and kernels are as fast for few samples as for many.
    return replace(found, send_receive=False, coefficients=replace(found.coefficients, curves={}))


def symmetric(
    model: PerformanceModel, pp: int, dp: int, tp: int, num_micro_batches: int, gpus: Sequence[Gpu]
) -> ParallelPlan:
    return symmetric_plan(
        num_layers=model.profile.num_layers,
        pp=pp,
        dp=dp,
        tp=tp,
        global_batch=model.profile.global_batch,
        num_micro_batches=num_micro_batches,
        gpu_type=model.fabric.host(gpus[0][0]).gpu_type,
        gpus=tuple(gpus),
    )


def gpus_of(first: int, last: int, gpus_per_node: int = 8) -> list[Gpu]:
    """GPUs [first, last), counted node by node."""
    return [(str(k // gpus_per_node), k % gpus_per_node) for k in range(first, last)]


def per_node(plan: ParallelPlan, stage: int) -> Counter[str]:
    return Counter(node for node, _ in plan_gpus(plan, stage))


def plan_gpus(plan: ParallelPlan, stage: int) -> list[Gpu]:
    return [(replica.node, gpu) for replica in plan.stages[stage].replicas for gpu in replica.gpus]


@st.composite
def layer_costs(draw: st.DrawFn, least: float = 0.5) -> LayerCost:
    cost = st.floats(least, 4.0)
    return LayerCost(
        parameters=draw(cost),
        forward_flops=draw(cost),
        tensor_parallel_bytes=draw(cost),
        boundary_bytes=1.0,
        partitioned_activation_bytes=draw(cost),
        replicated_activation_bytes=draw(cost),
    )


@st.composite
def models(draw: st.DrawFn, num_types: int = 1) -> PerformanceModel:
    """A job of 3 to 6 layers, equal or not, on up to 4 nodes of 1 to `num_types` GPU types in two racks."""
    count = draw(st.integers(3, 6))
    equal = draw(st.booleans())
    layers = (draw(layer_costs()),) * count if equal else tuple(draw(layer_costs()) for _ in range(count))
    ends = (draw(layer_costs(0.0)), draw(layer_costs(0.0))) if equal else (LayerCost(), LayerCost())
    profile = ModelProfile(
        name="any",
        layers=layers,
        embedding=ends[0],
        head=ends[1],
        global_batch=draw(st.sampled_from([4, 6, 8, 12])),
        micro_batch=None,
        zero_stage=draw(st.sampled_from([0, 1])),
        flops_precision="bf16",
        parameter_bytes=2.0,
        gradient_bytes=2.0,
        optimizer_bytes=8.0,
        backward_ratio=2.0,
        backward_all_reduces=draw(st.sampled_from([1.0, 2.0])),
        tensor_units=(("heads", 4),),
        tied_parameters=draw(st.sampled_from([0.0, 3.0])),
    )
    names = [f"type {k}" for k in range(draw(st.integers(1, num_types)))]
    speeds = st.floats(0.5, 2.0)
    return PerformanceModel(
        profile=profile,
        coefficients=JobCoefficients(
            gpus={
                name: GpuCoefficients(
                    compute_s=draw(speeds),
                    backward_ratio=draw(speeds),
                    optimizer_s=draw(speeds),
                    overlap=draw(st.floats(1.0, 4.0)),
                )
                for name in names
            },
            sizes=SizeCoefficients(
                activation_bytes=draw(st.floats(4.0, 100.0)),
                gradient_bytes=4.0,
                parameter_bytes=4.0,
                optimizer_bytes=16.0,
                partitioned_activation_bytes=draw(speeds),
                replicated_activation_bytes=draw(speeds),
            ),
        ),
        fabric=Fabric(
            hosts={
                f"node {k}": Host(
                    gpu_type=names[k % len(names)],
                    intra_bytes_per_s=draw(st.floats(50.0, 100.0)) if k < len(names) else 80.0,
                    inter_bytes_per_s=draw(st.floats(10.0, 40.0)),
                    path=(f"rack {k // 2}",),
                )
                for k in range(4)
            },
            fractions=(0.5, 1.0),
            saturation_bytes=256.0,
        ),
        memory_bytes={name: draw(st.sampled_from([60.0, 150.0, 1000.0])) for name in names},
    )


@st.composite
def plans(draw: st.DrawFn, model: PerformanceModel) -> ParallelPlan:
    """One or two stages on nodes 0 and 1 with four GPUs each, one stage per node."""
    profile = model.profile
    pp = draw(st.integers(1, 2))
    divisors = [n for n in range(1, profile.global_batch + 1) if profile.global_batch % n == 0]
    num_micro_batches = draw(st.sampled_from(divisors))
    cut = draw(st.integers(1, profile.num_layers - 1))
    stages = []
    for s in range(pp):
        tp = draw(st.sampled_from([1, 2]))
        dp = draw(st.integers(1, 2))
        micro_batch = profile.global_batch // num_micro_batches
        assume(micro_batch >= dp)
        stages.append(
            Stage(
                num_layers=profile.num_layers if pp == 1 else (cut, profile.num_layers - cut)[s],
                replicas=tuple(
                    Replica(
                        node=f"node {s}",
                        gpu_type=model.fabric.host(f"node {s}").gpu_type,
                        gpus=tuple(range(j * tp, (j + 1) * tp)),
                        local_batch=micro_batch - (dp - 1) if j == 0 else 1,
                    )
                    for j in range(dp)
                ),
            )
        )
    return ParallelPlan(stages=tuple(stages), num_micro_batches=num_micro_batches)
