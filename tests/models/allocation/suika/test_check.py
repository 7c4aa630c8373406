"""Each rule of the check, broken one at a time."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from models.allocation.suika.formulation import SuikaFormulation
from models.allocation.suika.parameters import SuikaParameters
from models.plan import JobAllocation, Plan, UnplacedJob
from models.workload import Expansion
from tests.models.allocation.suika.real import cluster_of, gpus, job, planned

Breaking = Callable[[JobAllocation], JobAllocation]
BOLD = SuikaParameters(aggressiveness=2.0)


def scene() -> tuple[SuikaFormulation, Plan, float]:
    """a grows on n0000, b has its limit on n0001, c does not fit."""
    jobs = (job("a", dp=2, tp=2, max_gpus=8), job("b", dp=4, tp=2, max_gpus=8), job("c", dp=4, tp=4))
    formulation, result, plan = planned(cluster_of(*jobs), BOLD)
    assert result.objective is not None
    return formulation, plan, result.objective


def codes(formulation: SuikaFormulation, plan: Plan, objective: float) -> set[str]:
    return {issue.code for issue in formulation.violations(plan, objective)}


def with_first(plan: Plan, change: Breaking) -> Plan:
    first, *others = plan.allocations
    return replace(plan, allocations=(change(first), *others))


def _other_benefit(allocation: JobAllocation) -> JobAllocation:
    last = allocation.expansions[-1]
    return replace(allocation, expansions=(*allocation.expansions[:-1], replace(last, benefit=0.001)))


def _listed_twice(allocation: JobAllocation) -> JobAllocation:
    return replace(allocation, expansions=(*allocation.expansions, allocation.expansions[-1]))


def _all_elastic(allocation: JobAllocation) -> JobAllocation:
    return replace(allocation, expansions=(Expansion(gpus=allocation.gpus, benefit=1.0),))


def _other_layers(allocation: JobAllocation) -> JobAllocation:
    plan = allocation.parallel_plan
    assert plan is not None
    stages = tuple(replace(stage, num_layers=stage.num_layers + 1) for stage in plan.stages)
    return replace(allocation, parallel_plan=replace(plan, stages=stages))


def _more_micro_batches(allocation: JobAllocation) -> JobAllocation:
    plan = allocation.parallel_plan
    assert plan is not None
    return replace(allocation, parallel_plan=replace(plan, num_micro_batches=plan.num_micro_batches * 2))


@pytest.mark.parametrize(
    ("breaking", "expected"),
    [
        (_other_benefit, {"below_threshold"}),
        (_listed_twice, {"bad_expansion"}),
        (_all_elastic, {"basic_demand_not_met", "wrong_base"}),
        (_more_micro_batches, {"global_batch"}),
        (_other_layers, {"layers"}),
        (lambda allocation: replace(allocation, parallel_plan=None), {"no_plan"}),
        (lambda allocation: replace(allocation, expected_goodput=1.0), {"wrong_goodput"}),
        (lambda allocation: replace(allocation, gpus=(gpus("n0000", 0, 1),), num_gpus=2), {"plan_not_on_gpus"}),
    ],
)
def test_a_broken_allocation_is_found(breaking: Breaking, expected: set[str]) -> None:
    formulation, plan, objective = scene()
    assert codes(formulation, plan, objective) == set()
    assert expected <= codes(formulation, with_first(plan, breaking), objective)


def test_numbers_of_the_score_are_checked() -> None:
    formulation, plan, objective = scene()
    assert codes(formulation, plan, objective + 1.0) == {"wrong_objective"}
    first, *others = plan.score
    assert codes(formulation, replace(plan, score=(replace(first, value=0.0), *others)), objective) == {"wrong_score"}
    assert codes(formulation, replace(plan, score=tuple(others)), objective) == {"score_terms"}


def test_every_job_is_covered_once() -> None:
    formulation, plan, objective = scene()
    assert "job_not_covered_once" in codes(formulation, replace(plan, unplaced=()), objective)
    stranger = UnplacedJob(job_id="x", reason="", detail="", counts={}, remedy="", preempted=False)
    assert "unknown_job" in codes(formulation, replace(plan, unplaced=(*plan.unplaced, stranger)), objective)


def test_a_job_that_fits_where_scale_outs_are_is_not_left_waiting() -> None:
    """The same answer for a smaller c: it would fit where a has grown to."""
    formulation, plan, objective = scene()
    (refused,) = formulation.decision.refused
    (start,) = refused.plans
    (stage,) = start.plan.stages
    smaller = replace(start, plan=replace(start.plan, stages=(replace(stage, replicas=stage.replicas[:1]),)))
    decision = replace(formulation.decision, refused=(replace(refused, plans=(smaller,)),))
    assert len(plan.allocations[0].expansions) > 0
    formulation.decision = decision
    assert codes(formulation, plan, objective) == {"left_waiting"}


def test_a_plan_on_somebody_elses_gpus_is_found() -> None:
    formulation, plan, objective = scene()
    first, second = plan.allocations
    doubled = replace(plan, allocations=(first, replace(second, gpus=first.gpus, parallel_plan=first.parallel_plan)))
    assert "gpu_taken_twice" in codes(formulation, doubled, objective)


def test_spreading_over_parts_of_nodes_is_allowed() -> None:
    """Sia's node shapes are not Suika's: a job may have parts of several nodes."""
    parts = (gpus("n0000", 0, 1), gpus("n0001", 0, 1))
    blocked = (
        job("b0", dp=6, max_gpus=6, preemptible=False, current=(gpus("n0000", *range(2, 8)),)),
        job("b1", dp=6, max_gpus=6, preemptible=False, current=(gpus("n0001", *range(2, 8)),)),
    )
    _, _, plan = planned(cluster_of(*blocked, job("a", dp=2, tp=2)))
    assert next(item for item in plan.allocations if item.job_id == "a").gpus == parts
