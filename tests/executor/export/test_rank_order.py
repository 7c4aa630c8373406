"""The groups that a framework makes of its ranks are those of the plan: same GPUs in every group."""

import pytest

from models.parallel_plan import Gpu, ParallelPlan
from tests.executor.export.jobs import job, megatron_groups, mesh_groups, plan_of

PLANS = (
    plan_of(pp=2, dp=3, tp=2, num_micro_batches=2, global_batch=12),
    plan_of(pp=4, dp=1, tp=4, gpus_per_node=8),
    plan_of(pp=1, dp=8, tp=1, layers=(8,)),
    plan_of(pp=4, dp=2, tp=1, virtual_stages=2, num_micro_batches=4),
)


def groups(plan: ParallelPlan, axis: str) -> list[list[Gpu]]:
    """GPUs of the plan's own groups."""
    stages = [[[(r.node, gpu) for gpu in r.gpus] for r in stage.replicas] for stage in plan.stages]
    if axis == "tp":
        return [replica for stage in stages for replica in stage]
    if axis == "dp":
        return [[replica[k] for replica in stage] for stage in stages for k in range(len(stage[0]))]
    return [[stage[j][k] for stage in stages] for j in range(len(stages[0])) for k in range(len(stages[0][0]))]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.notation())
@pytest.mark.parametrize("axis", ["tp", "dp", "pp"])
def test_groups_are_those_of_the_plan(plan: ParallelPlan, axis: str) -> None:
    exported = job(plan)
    layout = exported.layout("a framework")
    sizes = {"tp": layout.tp, "dp": layout.dp, "pp": layout.pp, "cp": 1, "ep": 1}
    mesh = {**sizes, "dp_replicate": 1, "dp_shard": layout.dp}
    topology = {"pipe": layout.pp, "data": layout.dp, "model": layout.tp}
    found = {
        "Megatron-LM": megatron_groups("tp-cp-ep-dp-pp", sizes, axis),
        "torchtitan": mesh_groups(
            ("pp", "dp_replicate", "dp_shard", "cp", "tp"), mesh, "dp_shard" if axis == "dp" else axis
        ),
        "DeepSpeed": mesh_groups(
            ("pipe", "data", "model"), topology, {"pp": "pipe", "dp": "data", "tp": "model"}[axis]
        ),
    }
    for framework, ranks in found.items():
        placed = sorted([exported.gpus[rank] for rank in group] for group in ranks)
        assert placed == sorted(groups(plan, axis)), framework


def test_another_order_of_megatron_has_other_groups() -> None:
    # What would be wrong with --use-tp-pp-dp-mapping.
    sizes = {"tp": 2, "dp": 3, "pp": 2, "cp": 1, "ep": 1}
    assert megatron_groups("tp-cp-ep-pp-dp", sizes, "pp") != megatron_groups("tp-cp-ep-dp-pp", sizes, "pp")
