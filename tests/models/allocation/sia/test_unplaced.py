import numpy as np
import pytest

from models.allocation.sia.extraction import extract_plan
from models.allocation.sia.instance import sia_instance
from models.allocation.sia.parameters import SiaParameters
from models.clock import PhaseClock
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GradientStatistics,
    ThroughputParameters,
    TypeProfile,
)
from models.plan import UnplacedJob
from models.workload import Adaptivity, Job, Snapshot
from tests.models.allocation.sia.instances import plan_of, table
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import Cluster, NodeState

ONE_PER_GPU = table({("a", m): float(m) for m in (1, 2, 4, 8, 16)})


def unplaced(machines: Cluster, *jobs: Job, parameters: SiaParameters | None = None) -> dict[str, UnplacedJob]:
    plan, _ = plan_of(Snapshot(cluster=machines, jobs=jobs), parameters or SiaParameters())
    return {item.job_id: item for item in plan.unplaced}


def test_no_node_of_the_types_it_allows() -> None:
    machines = cluster(node("n0"), node("n1", kind="b", state=NodeState.DOWN))
    (item,) = unplaced(machines, Job(id="j", gpu_types=("b",), performance=ONE_PER_GPU)).values()
    assert item.reason == "gpu_type"
    assert item.remedy == "allow one of ['a']"


def test_every_node_is_down() -> None:
    machines = cluster(node("n0", state=NodeState.DOWN))
    (item,) = unplaced(machines, Job(id="j", performance=ONE_PER_GPU)).values()
    assert item.reason == "gpu_type"
    assert item.remedy == "bring nodes back up"


def test_a_rigid_count_that_is_no_configuration_names_the_nearest() -> None:
    job = Job(id="j", min_gpus=6, adaptivity=Adaptivity.RIGID, performance=ONE_PER_GPU)
    item = unplaced(cluster(node("n0"), node("n1")), job)["j"]
    assert item.reason == "no_configuration"
    assert item.detail == "no valid configuration has exactly 6 GPUs"
    assert item.remedy.endswith("counts: 4, 8")
    assert item.counts == {"min_gpus": 6, "max_configuration_gpus": 16}


def test_bounds_between_two_configurations() -> None:
    item = unplaced(cluster(node("n0")), Job(id="j", min_gpus=5, max_gpus=7, performance=ONE_PER_GPU))["j"]
    assert item.reason == "no_configuration"
    assert item.counts == {"min_gpus": 5, "max_gpus": 7, "max_configuration_gpus": 8}


def test_a_performance_without_goodput_within_the_bounds() -> None:
    job = Job(id="j", min_gpus=4, performance=table({("a", 1): 1.0, ("a", 2): 2.0}))
    item = unplaced(cluster(node("n0")), job)["j"]
    assert item.reason == "no_performance"
    assert item.remedy == "widen its bounds to what it can run on: (1,1,a), (1,2,a)"


def test_a_fitted_model_without_goodput_within_the_bounds() -> None:
    """At least four samples a replica and eight in all feed two replicas, not four."""
    parameters = ThroughputParameters(
        alpha_c=1.0, beta_c=0.0, alpha_r=0.0, beta_r=0.0, alpha_n=0.0, beta_n=0.0, gamma=1.0
    )
    model = GoodputModel(
        batch=BatchRange(initial=8, maximum=8),
        gradient=GradientStatistics(squared_norm=1.0, variance=1.0),
        profiles={"a": TypeProfile(parameters=parameters, min_local_batch=4, max_local_batch=8)},
    )
    item = unplaced(cluster(node("n0")), Job(id="j", min_gpus=4, performance=model))["j"]
    assert item.reason == "no_performance"
    assert item.remedy == "widen its bounds to what it can run on: (1,1,a), (1,2,a)"


def test_more_gpus_than_are_free_even_alone() -> None:
    """Two nodes with 7 free GPUs each: no whole node, so 8 GPUs lack one; (1,8,a) needs a whole node."""
    machines = cluster(node("n0", in_use=(0,)), node("n1", in_use=(0,)))
    item = unplaced(machines, Job(id="j", min_gpus=8, performance=ONE_PER_GPU))["j"]
    assert item.reason == "capacity"
    assert item.counts == {"min_gpus": 8, "short_gpus.a": 8}
    assert item.remedy == "8 more free GPUs of type a, as whole nodes, would let it run as (1,8,a)"


def test_outcompeted_by_heavier_jobs_and_preempted() -> None:
    """n0 [ll..]: the heavy job takes all four GPUs, so the light one loses its two."""
    light = Job(id="light", min_gpus=2, max_gpus=2, performance=ONE_PER_GPU, current=on({"n0": (0, 1)}))
    heavy = Job(id="heavy", min_gpus=4, max_gpus=4, performance=ONE_PER_GPU, weight=9.0)
    item = unplaced(cluster(node("n0", 4)), light, heavy)["light"]
    assert item.reason == "outcompeted"
    assert item.preempted
    assert item.counts == {"min_gpus": 2, "short_gpus.a": 2}


def test_a_penalty_below_the_cost_of_running() -> None:
    job = Job(id="j", weight=2.0, performance=ONE_PER_GPU, max_gpus=4)
    item = unplaced(cluster(node("n0")), job, parameters=SiaParameters(queue_penalty=0.3))["j"]
    assert item.reason == "queue_penalty_too_low"
    assert item.remedy == "raise queue_penalty above 0.5"


def test_room_that_an_early_end_left_unused() -> None:
    snapshot = Snapshot(cluster=cluster(node("n0")), jobs=(Job(id="j", performance=ONE_PER_GPU),))
    plan = extract_plan(sia_instance(snapshot, SiaParameters(), PhaseClock()), np.array([-1]))
    assert plan.unplaced[0].reason == "within_gap"
    assert plan.unplaced[0].counts == {"fitting_configurations": 4}
    assert plan.score[0].value == pytest.approx(1.1)
