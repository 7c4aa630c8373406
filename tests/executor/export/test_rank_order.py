"""The groups that a framework makes of its ranks are those of the plan: same GPUs in every group."""

import pytest

from models.parallel_plan import Gpu, ParallelPlan
from tests.executor.export.jobs import job, megatron_groups, mesh_groups, plan_of

PLANS = (
    plan_of(pp=2, dp=3, tp=2, num_micro_batches=2, global_batch=12),
    plan_of(pp=4, dp=1, tp=4, gpus_per_node=8),
    plan_of(pp=1, dp=8, tp=1, layers=(8,)),
    plan_of(pp=4, dp=2, tp=1, virtual_stages=2, num_micro_batches=4),
    plan_of(pp=2, dp=2, tp=2, cp=2, ep=4, num_micro_batches=4),
    plan_of(pp=1, dp=3, tp=1, cp=2, ep=2, num_micro_batches=2, layers=(8,), global_batch=12),
)


def groups(plan: ParallelPlan, axis: str) -> list[list[Gpu]]:
    """GPUs of the plan's own groups; context and expert parallelism are of consecutive replicas."""
    stages = [[[(r.node, gpu) for gpu in r.gpus] for r in stage.replicas] for stage in plan.stages]
    shards, count, cp = range(len(stages[0][0])), len(stages[0]), plan.context_parallel
    if axis == "tp":
        return [replica for stage in stages for replica in stage]
    if axis == "pp":
        return [[stage[j][k] for stage in stages] for j in range(count) for k in shards]
    if axis == "dp":
        return [[replica[k] for replica in stage[part::cp]] for stage in stages for part in range(cp) for k in shards]
    size = cp if axis == "cp" else plan.expert_parallel
    return [[r[k] for r in stage[j : j + size]] for stage in stages for j in range(0, count, size) for k in shards]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.notation())
@pytest.mark.parametrize("axis", ["tp", "cp", "dp", "pp", "ep"])
def test_groups_are_those_of_the_plan(plan: ParallelPlan, axis: str) -> None:
    exported = job(plan)
    layout = exported.layout("a framework")
    tp, cp, ep, dp, pp = layout.tp, layout.cp, layout.ep, layout.dp, layout.pp
    # Experts have groups of their own, whose replicas are all that there are.
    dense = {"tp": tp, "cp": cp, "ep": 1, "dp": dp, "pp": pp}
    experts = {"tp": tp, "cp": 1, "ep": ep, "dp": dp * cp // ep, "pp": pp}
    mesh = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    sparse = ("pp", "dp_replicate", "efsdp", "ep", "etp")
    found = {
        "Megatron-LM": megatron_groups("tp-cp-ep-dp-pp", experts if axis == "ep" else dense, axis),
        "torchtitan": mesh_groups(sparse, {**experts, "dp_replicate": 1, "efsdp": dp * cp // ep, "etp": tp}, "ep")
        if axis == "ep"
        else mesh_groups(mesh, {**dense, "dp_replicate": 1, "dp_shard": dp}, "dp_shard" if axis == "dp" else axis),
    }
    if cp == ep == 1:
        sizes, names = {"pipe": pp, "data": dp, "model": tp}, {"pp": "pipe", "dp": "data", "tp": "model"}
        if axis in names:
            found["DeepSpeed"] = mesh_groups(("pipe", "data", "model"), sizes, names[axis])
    for framework, ranks in found.items():
        placed = sorted([exported.gpus[rank] for rank in group] for group in ranks)
        assert placed == sorted(groups(plan, axis)), framework


def test_another_order_of_megatron_has_other_groups() -> None:
    # What would be wrong with --use-tp-pp-dp-mapping.
    sizes = {"tp": 2, "dp": 3, "pp": 2, "cp": 1, "ep": 1}
    assert megatron_groups("tp-cp-ep-pp-dp", sizes, "pp") != megatron_groups("tp-cp-ep-dp-pp", sizes, "pp")
