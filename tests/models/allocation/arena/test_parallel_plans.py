"""Jobs that say what they train: the planner's throughputs, and the 3D plan that comes with the allocation."""

from dataclasses import replace

import pytest

from models.allocation.arena.parameters import ArenaParameters
from models.allocation.parallel_plan_check import parallel_plan_violations
from models.catalogue import find_model
from models.parallel_plan import symmetric_plan
from models.parallelism.adaptive import adaptive_plans
from models.performance.iteration.modelling import performance_model
from models.plan import Change
from models.transformer import Transformer
from models.workload import Job, NodeGpus, Snapshot
from tests.models.allocation.arena.scenes import HEURISTIC, ILP, formulation_of, given, plan_of, table
from topology.cluster import Cluster, Node
from topology.gpu_catalogue import find_product, gpu_type_of

H100 = gpu_type_of(find_product("h100"), "bf16")
MACHINES = Cluster(gpu_types=(H100,), nodes=tuple(Node(id=f"n{k}", gpu_type="h100", num_gpus=8) for k in range(4)))


def llama() -> Transformer:
    model = find_model("llama2-7b", global_batch=64)
    assert isinstance(model, Transformer)
    return model


LLAMA = llama()
BEST = adaptive_plans(LLAMA, MACHINES, {"h100": (1, 2, 4, 8, 16, 32)}).best


@pytest.mark.parametrize("parameters", [ILP, HEURISTIC])
def test_every_job_gets_the_plan_that_the_planner_found_for_its_block(parameters: ArenaParameters) -> None:
    jobs = tuple(Job(id=f"j{k}", transformer=LLAMA, max_gpus=16) for k in range(3))
    plan, _ = plan_of(Snapshot(cluster=MACHINES, jobs=jobs), parameters)
    assert sum(count for _, count in given(plan).values()) == 32
    for item in plan.allocations:
        expected = BEST["h100", item.num_gpus]
        assert item.expected_goodput == pytest.approx(expected.throughput)
        assert item.batch_size == 64
        assert item.parallel_plan is not None
        assert item.parallel_plan.notation() == expected.plan.notation()
        assert set(item.parallel_plan.gpus) == {(part.node, gpu) for part in item.gpus for gpu in part.gpus}


def test_a_model_that_fits_no_small_block_is_offered_the_large_ones() -> None:
    """The optimiser states of 7B parameters alone are more than a GPU of 80 GB holds."""
    formulation = formulation_of(Snapshot(cluster=MACHINES, jobs=(Job(id="j", transformer=LLAMA),)), ILP)
    offered = formulation.instance.configurations.num_gpus[formulation.instance.pair_configurations]
    assert offered.tolist() == sorted(count for _, count in BEST)
    assert offered.min() > 1


def test_a_table_rules_over_the_model_and_the_plan_comes_along() -> None:
    job = Job(id="j", transformer=LLAMA, performance=table({("h100", 8): 3.0}))
    plan, _ = plan_of(Snapshot(cluster=MACHINES, jobs=(job,)), ILP)
    (item,) = plan.allocations
    assert item.expected_goodput == 3.0
    assert item.parallel_plan is not None
    assert item.parallel_plan.notation() == BEST["h100", 8].plan.notation()


def test_a_job_that_stays_keeps_the_plan_that_it_runs() -> None:
    """It runs a poor plan; a restart would take the whole horizon."""
    gpus = tuple(NodeGpus(node=name, gpus=tuple(range(8))) for name in ("n0", "n1"))
    slower = symmetric_plan(
        num_layers=32,
        pp=4,
        dp=1,
        tp=4,
        global_batch=64,
        num_micro_batches=8,
        gpu_type="h100",
        gpus=tuple((part.node, gpu) for part in gpus for gpu in part.gpus),
    )
    job = Job(
        id="j",
        transformer=LLAMA,
        min_gpus=16,
        max_gpus=16,
        current=gpus,
        parallel_plan=slower,
        restart_cost_s=3600.0,
    )
    plan, result = plan_of(Snapshot(cluster=MACHINES, jobs=(job,)), ILP)
    (item,) = plan.allocations
    assert (item.change, item.parallel_plan) == (Change.KEPT, slower)
    assert item.expected_goodput == pytest.approx(performance_model(LLAMA, MACHINES).throughput(slower))
    assert result.objective == pytest.approx(1.0)


def test_plans_on_other_gpus_and_illegal_plans_are_noticed() -> None:
    jobs = tuple(Job(id=f"j{k}", transformer=LLAMA, min_gpus=8, max_gpus=8) for k in range(2))
    snapshot = Snapshot(cluster=MACHINES, jobs=jobs)
    plan, _ = plan_of(snapshot, ILP)
    first, second = plan.allocations
    swapped = replace(plan, allocations=(replace(first, parallel_plan=second.parallel_plan), second))
    assert "plan_not_on_gpus" in {issue.code for issue in parallel_plan_violations(snapshot, swapped)}
    assert first.parallel_plan is not None
    stages = first.parallel_plan.stages
    shorter = replace(first.parallel_plan, stages=(replace(stages[0], num_layers=1), *stages[1:]))
    broken = replace(plan, allocations=(replace(first, parallel_plan=shorter), second))
    found = parallel_plan_violations(snapshot, broken)
    assert [(issue.code, issue.pointer) for issue in found] == [("layers", "/allocations/0/parallel_plan/stages")]
