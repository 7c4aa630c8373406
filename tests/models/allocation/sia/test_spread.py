"""Goodput counts the bandwidth that jobs have between nodes: at best in the objective, where they are in the plan.

Steps of the jobs here take T_grad = 1 s and, across nodes, T_sync = 1 s over the share of the bandwidth, one after the
other: 2 s with all of it, 5 s with a quarter, 11 s with a tenth. A step is a sample per GPU.
"""

from dataclasses import replace

import numpy as np
import pytest

from models.allocation.sia.formulation import SiaFormulation, formulate_sia
from models.allocation.sia.goodput_check import goodput_violations
from models.allocation.sia.parameters import SiaParameters
from models.allocation.spread_check import SpreadAudit, spread_violations
from models.clock import PhaseClock
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GradientStatistics,
    Performance,
    ThroughputParameters,
    TypeProfile,
)
from models.plan import Change, JobAllocation, Plan, PlanOutcome, PlanRequest
from models.planning import plan as planned
from models.workload import Job, NodeGpus, Snapshot
from stowplan.errors import Issue
from tests.growth import work
from tests.models.allocation.sia.instances import solve, table
from tests.models.placement.scenes import cluster, node
from topology.cluster import Cluster, Tier

PARAMETERS = ThroughputParameters(alpha_c=1.0, beta_c=0.0, alpha_r=0.0, beta_r=0.0, alpha_n=1.0, beta_n=0.0, gamma=1.0)


def trained(num_gpus: int) -> GoodputModel:
    """A sample per GPU, whatever the number of steps."""
    return GoodputModel(
        batch=BatchRange(initial=num_gpus, maximum=num_gpus),
        gradient=GradientStatistics(squared_norm=1.0, variance=1.0),
        profiles={"a": TypeProfile(parameters=PARAMETERS, max_local_batch=1)},
    )


def fixed(name: str, num_gpus: int, performance: Performance | None = None, **rest: object) -> Job:
    job = Job(id=name, min_gpus=num_gpus, max_gpus=num_gpus, performance=performance or trained(num_gpus))
    return replace(job, **rest)  # type: ignore[arg-type]  # fields of a test case


def pods(core: float, *sizes: int, num_gpus: int = 8, pod: float = 1.0) -> Cluster:
    """Nodes p0n0, p0n1, ... in pods of so many nodes, with a share of the bandwidth in a pod and in the core."""
    nodes = [node(f"p{k}n{i}", num_gpus, path=(f"p{k}",)) for k, size in enumerate(sizes) for i in range(size)]
    return replace(
        cluster(*nodes, tiers=("pod",)),
        tiers=(Tier(name="pod", bandwidth_fraction=pod),),
        core_bandwidth_fraction=core,
    )


def whole(*names: str, num_gpus: int = 8) -> tuple[NodeGpus, ...]:
    return tuple(NodeGpus(node=name, gpus=tuple(range(num_gpus))) for name in names)


def outcome_of(made: Cluster, *jobs: Job) -> tuple[PlanOutcome, dict[str, JobAllocation]]:
    outcome = planned(PlanRequest(snapshot=Snapshot(cluster=made, jobs=jobs), parameters=SiaParameters()))
    assert outcome.plan is not None
    return outcome, {item.job_id: item for item in outcome.plan.allocations}


@pytest.mark.parametrize(("core", "samples_per_s"), [(1.0, 512 / 2), (0.25, 512 / 5), (0.1, 512 / 11)])
def test_512_gpus_over_three_pods_by_hand(core: float, samples_per_s: float) -> None:
    """64 nodes of 8 fit into no two pods of 22: the best that they can have is the core, so nothing is lost by it."""
    outcome, given = outcome_of(pods(core, 22, 22, 22), fixed("x", 512))
    assert given["x"].expected_goodput == pytest.approx(samples_per_s)
    assert outcome.warnings == ()


def test_inside_a_pod_the_core_costs_nothing() -> None:
    _, given = outcome_of(pods(0.1, 22, 22, 22), fixed("x", 128))
    assert given["x"].expected_goodput == pytest.approx(128 / 2)
    assert len({part.node[:2] for part in given["x"].gpus}) == 1


def test_a_pinned_job_of_unknown_goodput_is_left_alone() -> None:
    """It sits across the pods where two nodes of one would do, and nobody knows how fast it is."""
    unknown = table({("a", 8): 1.0})
    pinned = fixed("x", 16, unknown, preemptible=False, current=whole("p0n0", "p1n0"))
    outcome, given = outcome_of(pods(0.1, 2, 2), pinned)
    assert (given["x"].change, given["x"].expected_goodput, outcome.warnings) == (Change.KEPT, None, ())


def test_a_job_is_not_given_more_pods_than_do_it_good() -> None:
    """64 samples, all worth the same, one at a time: a node of 4 GPUs does 4 a second; 8 GPUs, a pod, 64 in
    7 + 2 s; 16 of both pods 64 in 3 + 2 s, but in 3 + 11 s with a tenth of the bandwidth."""
    noisy = GradientStatistics(squared_norm=0.0, variance=1.0)
    job = Job(id="x", performance=replace(trained(4), batch=BatchRange(initial=4, maximum=64), gradient=noisy))
    for core, num_gpus in ((1.0, 16), (0.1, 8)):
        _, given = outcome_of(pods(core, 2, 2, num_gpus=4), job)
        assert given["x"].num_gpus == num_gpus


def test_a_placement_that_costs_speed_is_warned_of() -> None:
    """Two nodes of a pod are in use in each pod: x gets one of each, with a quarter of the bandwidth. The objective
    still is that of its configuration, 16 / 2; the plan says 16 / 5."""
    made = pods(0.25, 3, 3)
    taken = {"p0n0", "p0n1", "p1n0", "p1n1"}
    in_use = tuple(replace(item, gpus_in_use=tuple(range(8)) if item.id in taken else ()) for item in made.nodes)
    free, crowded = (outcome_of(some, fixed("x", 16)) for some in (made, replace(made, nodes=in_use)))
    assert free[0].objective == crowded[0].objective
    assert free[1]["x"].expected_goodput == pytest.approx(8.0)
    assert free[0].warnings == ()
    assert crowded[1]["x"].expected_goodput == pytest.approx(3.2)
    (warning,) = crowded[0].warnings
    assert (warning.code, warning.pointer) == ("slower_where_it_is", "/jobs/0")
    assert "0.25 of the inter-node bandwidth" in warning.detail
    assert "(2,16,a) can have 1 on this cluster, so that it is 2.5 times slower" in warning.detail


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_job_that_stays_apart_is_told_as_it_is(preemptible: bool) -> None:
    """It keeps its GPUs, as few jobs as possible move; with a quarter of the bandwidth it reaches 16 / 5."""
    running = fixed("x", 16, current=whole("p0n0", "p1n0"), preemptible=preemptible)
    outcome, given = outcome_of(pods(0.25, 3, 3), running)
    assert given["x"].change is Change.KEPT
    assert given["x"].expected_goodput == pytest.approx(3.2)
    assert [issue.code for issue in outcome.warnings] == ["slower_where_it_is"]


def test_a_table_knows_nothing_of_bandwidth_and_the_plan_says_so() -> None:
    running = fixed("x", 16, table({("a", 16): 7.0}), current=whole("p0n0", "p1n0"))
    outcome, given = outcome_of(pods(0.25, 3, 3), running)
    assert given["x"].expected_goodput == 7.0
    (warning,) = outcome.warnings
    assert warning.code == "slower_where_it_is"
    assert "of which its table knows nothing" in warning.detail


def test_a_batch_is_chosen_for_the_bandwidth_that_there_is() -> None:
    """Where steps wait longer for each other, more samples in each are worth it."""
    elastic = replace(
        trained(16),
        batch=BatchRange(initial=16, maximum=512),
        profiles={"a": TypeProfile(parameters=replace(PARAMETERS, beta_c=0.1), max_local_batch=64)},
    )
    running = fixed("x", 16, elastic, current=whole("p0n0", "p1n0"))
    batches = []
    for core in (1.0, 0.25, 0.01):
        _, given = outcome_of(pods(core, 3, 3), running)
        batches.append(given["x"].batch_size or 0)
    assert batches == sorted(set(batches))


@pytest.mark.parametrize("core", [0.9, 0.5, 0.1])
def test_a_slower_tier_never_predicts_faster(core: float) -> None:
    jobs = (fixed("x", 32), fixed("y", 24), fixed("z", 8), fixed("w", 16))
    fast = outcome_of(pods(1.0, 4, 4, 2), *jobs)[1]
    slow = outcome_of(pods(core, 4, 4, 2), *jobs)[1]
    for name, item in slow.items():
        assert (item.expected_goodput or 0) <= (fast[name].expected_goodput or 0)
    slower = outcome_of(pods(core, 4, 4, 2, pod=0.9), *jobs)[1]
    assert (slower["x"].expected_goodput or 0) < (fast["x"].expected_goodput or 0)


def test_tiers_that_cost_nothing_change_nothing() -> None:
    """To the last bit, and without any tier too."""
    jobs = (fixed("x", 32), fixed("y", 16), Job(id="z", performance=trained(8), current=whole("p1n0")))
    tiered = pods(1.0, 4, 4)
    flat = replace(tiered, tiers=(), nodes=tuple(replace(item, path=()) for item in tiered.nodes))
    (one, first), (other, second) = (outcome_of(made, *jobs) for made in (tiered, flat))
    assert one.objective == other.objective
    assert {k: v.expected_goodput for k, v in first.items()} == {k: v.expected_goodput for k, v in second.items()}
    assert one.warnings == other.warnings == ()


def crowded() -> tuple[SiaFormulation, Plan]:
    """x on one node of each pod, y alone."""
    jobs = (fixed("x", 16, current=whole("p0n0", "p1n0")), fixed("y", 4))
    model = formulate_sia(Snapshot(cluster=pods(0.25, 3, 3), jobs=jobs), SiaParameters(), PhaseClock())
    result = solve(model)
    assert result.incumbent is not None
    return model, model.extract(result.incumbent, PhaseClock())


def found(model: SiaFormulation, plan: Plan) -> list[Issue]:
    it = model.instance
    audit = SpreadAudit(it.snapshot.cluster)
    return [
        *spread_violations(it.configurations, plan, audit),
        *goodput_violations(it.snapshot, it.configurations, it.matrix, plan, audit),
    ]


def test_the_check_computes_predictions_again() -> None:
    """The goodput of the configuration is not that of the placement; another batch is another goodput."""
    model, plan = crowded()
    assert found(model, plan) == []
    x, y = plan.allocations
    for changed in (replace(x, expected_goodput=8.0), replace(x, batch_size=12), replace(x, accumulation_steps=2)):
        (issue,) = found(model, replace(plan, allocations=(changed, y)))
        assert (issue.code, issue.pointer) == ("wrong_goodput", "/allocations/0/expected_goodput")
    moved = replace(x, gpus=whole("p0n0", "p0n1"))
    assert [issue.code for issue in found(model, replace(plan, allocations=(moved, y)))] == ["wrong_goodput"]


def test_the_check_computes_the_objectives_goodput_again() -> None:
    model, plan = crowded()
    it = model.instance
    slow = replace(it.configurations, bandwidth_fraction=np.where(it.configurations.num_nodes == 2, 0.25, 1.0))
    model.instance = replace(it, configurations=slow)
    assert [(issue.code, issue.pointer) for issue in found(model, plan)] == [
        ("wrong_bandwidth_fraction", "/allocations/0")
    ]
    matrix = replace(it.matrix, goodput=1.01 * it.matrix.goodput)
    model.instance = replace(it, matrix=matrix)
    assert [(issue.code, issue.pointer) for issue in found(model, plan)] == [
        ("wrong_goodput", "/allocations/0"),
        ("wrong_goodput", "/allocations/1"),
    ]


def test_the_work_of_a_plan_grows_with_its_size() -> None:
    """Half of the jobs over two pods each, in a cluster of as many pods."""

    def cost(num_pods: int) -> int:
        made = pods(0.25, *([4] * num_pods))
        jobs = [fixed(f"x{k}", 16, current=whole(f"p{k}n0", f"p{(k + 1) % num_pods}n1")) for k in range(num_pods)]
        snapshot = Snapshot(cluster=made, jobs=tuple(jobs))
        model = formulate_sia(snapshot, SiaParameters(), PhaseClock())
        start = model.warm_start
        assert start is not None

        def answer() -> None:
            plan = model.extract(start, PhaseClock())
            assert model.violations(plan, model.problem.value(start)) == []
            assert len(model.warnings) == num_pods

        return work(answer)

    cost(2)
    assert cost(40) <= 2.3 * cost(20)
