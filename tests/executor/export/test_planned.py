"""Jobs of plans of all policies: what is known of each, and where its ranks are."""

from dataclasses import replace

import pytest

from executor.export.job import Layout, job_of
from models.plan import AheadPlacement, Change, JobAllocation, Plan, PretrainingPlacement, SpreadPair
from models.workload import NodeGpus, Parallelism
from stowplan.errors import InputError
from tests.executor.export.jobs import LLAMA, plan_of

DEGREES = Parallelism(tp=2, pp=2, dp=2)
# Two stages, each on a node of four GPUs: rank = (stage * 2 + replica) * 2 + shard.
PLACEMENT = PretrainingPlacement(
    job_id="big",
    scheduling_unit="pp",
    alpha=0.5,
    beta=0.5,
    affinity_source="given",
    cells=(("x", "c"),),
    minipods=(("m1", "m0"),),
    hosts=("x", "c"),
    minipod_spread=SpreadPair(dp=1, pp=2),
    distance=SpreadPair(dp=0, pp=1),
    num_minipods_used=2,
    max_unit_spread=2,
    objective_eq4=1.0,
    objective_eq2=1.0,
    parallelism=DEGREES,
)
WHOLE_NODES = tuple((node, gpu) for node in "xc" for gpu in range(4))


def allocation(*parts: tuple[str, tuple[int, ...]], **more: object) -> JobAllocation:
    gpus = tuple(NodeGpus(node=node, gpus=indices) for node, indices in parts)
    common = {"job_id": "big", "gpu_type": "h100", "num_gpus": sum(len(part.gpus) for part in gpus)}
    return JobAllocation(**{**common, "gpus": gpus, "change": Change.STARTED, **more})  # type: ignore[arg-type]


def plan(*allocations: JobAllocation, **more: object) -> Plan:
    return Plan(**{"allocations": allocations, "unplaced": (), "score": (), **more})  # type: ignore[arg-type]


def test_a_placement_by_arnold() -> None:
    placed = plan(allocation(("x", (0, 1, 2, 3)), ("c", (0, 1, 2, 3))), pretraining=PLACEMENT)
    job = job_of(placed, "big", model=replace(LLAMA, micro_batch=2))
    assert job.gpus == WHOLE_NODES
    assert job.layout("x") == Layout(pp=2, dp=2, tp=2, micro_batch=2, num_micro_batches=4)
    # Plans of earlier versions do not say the degrees; the request does.
    old = replace(placed, pretraining=replace(PLACEMENT, parallelism=None))
    assert job_of(old, "big", parallelism=DEGREES).layout("x") == Layout(pp=2, dp=2, tp=2)


def test_a_placement_ahead() -> None:
    ahead = AheadPlacement(
        placement=PLACEMENT,
        parallelism=DEGREES,
        gpu_type="h100",
        start_s=60.0,
        end_s=None,
        nodes=(),
        expected_evictions=0.0,
        idle_s=0.0,
        other_starts=(),
    )
    job = job_of(plan(ahead=(ahead,)), "big")
    assert (job.gpus, job.layout("x")) == (WHOLE_NODES, Layout(pp=2, dp=2, tp=2))


def test_a_3d_plan_of_a_policy() -> None:
    parallel = plan_of(layers=(5, 3))
    placed = plan(allocation(("a0", (0, 1, 2, 3)), ("a1", (0, 1, 2, 3)), parallel_plan=parallel))
    job = job_of(placed, "big", model=LLAMA)
    assert (job.gpus, job.model) == (parallel.gpus, LLAMA)
    assert job.layout("x").part_layers == (5, 3)


def test_a_goodput_job_is_data_parallel() -> None:
    sia = allocation(("a", (0, 3)), ("b", (1,)), batch_size=24, local_batch_size=4, accumulation_steps=2)
    job = job_of(plan(sia), "big")
    assert job.gpus == (("a", 0), ("a", 3), ("b", 1))
    assert job.layout("x") == Layout(pp=1, dp=3, tp=1, micro_batch=4, num_micro_batches=2)
    # 3 x 4 x 2 is more than 22: with equal shares it is 3 x 3 x 2.
    smaller = job_of(plan(replace(sia, batch_size=22)), "big").layout("x")
    assert smaller == Layout(pp=1, dp=3, tp=1, micro_batch=3, num_micro_batches=2)
    assert job_of(plan(replace(sia, batch_size=5)), "big").layout("x").global_batch is None


def test_a_job_of_a_queue_has_gpus_alone() -> None:
    job = job_of(plan(allocation(("a", (0, 1)))), "big")
    with pytest.raises(InputError, match="2 GPUs and says nothing of degrees"):
        job.layout("x")
    assert job_of(plan(allocation(("a", (0, 1)))), "big", parallelism=Parallelism(tp=2, pp=1, dp=1)).degrees is not None
    # Degrees of another number of GPUs are not those of this plan.
    assert job_of(plan(allocation(("a", (0, 1)))), "big", parallelism=DEGREES).degrees is None


def test_no_such_job() -> None:
    with pytest.raises(InputError, match=r"no GPUs for job 'x'; it has some for \['big'\]"):
        job_of(plan(allocation(("a", (0,)))), "x")
