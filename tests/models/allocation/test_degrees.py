"""Jobs of one size that say their degrees train with these, under every policy that plans by Sia's configurations."""

from dataclasses import replace

import pytest

from models.allocation.degrees import degree_violations, degree_warnings
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.sia.parameters import SiaParameters
from models.plan import Change, JobAllocation, PlanOutcome, PlanRequest
from models.planning import plan
from models.policy import Parameters
from models.workload import Adaptivity, Job, Parallelism, Snapshot
from tests.models.allocation.horizon.test_trainings import LARGE, racks

JOB = Job(
    id="j",
    transformer=LARGE,
    min_gpus=24,
    max_gpus=24,
    parallelism=Parallelism(tp=4, pp=3, dp=2),
    remaining_iterations=1e3,
)


def planned(job: Job, parameters: Parameters) -> PlanOutcome:
    """On 32 GPUs; plans are checked."""
    return plan(PlanRequest(snapshot=Snapshot(cluster=racks(2, 2), jobs=(job,)), parameters=parameters))


@pytest.mark.parametrize("parameters", [SiaParameters(), HorizonParameters()])
@pytest.mark.parametrize("job", [JOB, replace(JOB, max_gpus=None, adaptivity=Adaptivity.RIGID)])
def test_degrees_are_kept_on_any_number_of_nodes(parameters: Parameters, job: Job) -> None:
    """Three nodes, of which plans without degrees know none."""
    outcome = planned(job, parameters)
    assert outcome.plan is not None
    (got,) = outcome.plan.allocations
    assert got.parallel_plan is not None
    assert got.parallel_plan.notation().startswith("PP3 DP2 TP4 ")
    assert not [issue for issue in outcome.warnings if issue.pointer.endswith("/parallelism")]


@pytest.mark.parametrize("parameters", [SiaParameters(), HorizonParameters()])
def test_degrees_of_a_job_that_may_grow_are_not_kept_and_that_is_said(parameters: Parameters) -> None:
    """As before there were any."""
    outcome = planned(replace(JOB, min_gpus=1, max_gpus=32), parameters)
    assert outcome.plan is not None
    (warning,) = [issue for issue in outcome.warnings if issue.pointer == "/jobs/0/parallelism"]
    assert (
        "it is kept of jobs with a model, no performance, and min_gpus and max_gpus of tp x pp x dp" in warning.detail
    )


def test_degrees_that_the_model_does_not_admit_leave_the_job_out_with_the_reason() -> None:
    """Tensor groups that its heads cannot be divided into; and a batch that three replicas cannot share."""
    for model, degrees, reason, words in (
        (replace(LARGE, num_heads=4), Parallelism(tp=8, pp=3, dp=1), "degrees", "tensor degree 8 does not divide 4"),
        (
            replace(LARGE, hidden_size=3328, num_heads=None),
            Parallelism(tp=8, pp=3, dp=1),
            "degrees",
            "52 attention heads (hidden_size 3328 / 64, as num_heads is not given)",
        ),
        (replace(LARGE, micro_batch=1), Parallelism(tp=8, pp=1, dp=3), "batch", "256 does not divide among 3 replicas"),
    ):
        outcome = planned(replace(JOB, transformer=model, parallelism=degrees), SiaParameters())
        assert outcome.plan is not None
        (left,) = outcome.plan.unplaced
        assert left.reason == reason
        assert reason != "degrees" or left.remedy.startswith("give num_heads where it is missing")
        assert words in left.detail


@pytest.mark.parametrize("parameters", [SiaParameters(), HorizonParameters()])
def test_degrees_that_take_other_gpus_than_the_job_may_have_are_said_to(parameters: Parameters) -> None:
    """Three nodes, for which no plan is made without degrees."""
    outcome = planned(replace(JOB, parallelism=Parallelism(tp=4, pp=2, dp=2)), parameters)
    (warning,) = [issue for issue in outcome.warnings if issue.pointer == "/jobs/0/parallelism"]
    assert warning.detail.endswith("of job 'j' this is 16, min_gpus 24 and max_gpus 24")
    assert outcome.plan is not None
    (left,) = outcome.plan.unplaced
    assert (left.reason, left.counts) == ("no_plan", {"min_gpus": 24, "parallelism_gpus": 16})
    assert left.detail.startswith("its model has no plan on exactly 24 GPUs; ")
    assert left.detail.endswith("of as many GPUs as min_gpus and max_gpus, and its own takes 16")


def test_tensor_groups_that_leave_gpus_of_whole_nodes_over_leave_the_job_out_and_no_other() -> None:
    """Six of eight GPUs a node; the other job is planned."""
    wrong = replace(JOB, transformer=replace(LARGE, num_heads=24, hidden_size=3072))
    wrong = replace(wrong, parallelism=Parallelism(tp=6, pp=4, dp=1))
    snapshot = Snapshot(cluster=racks(2, 2), jobs=(wrong, replace(JOB, id="other", min_gpus=1, max_gpus=8)))
    outcome = plan(PlanRequest(snapshot=snapshot, parameters=SiaParameters()))
    assert outcome.plan is not None
    assert [item.job_id for item in outcome.plan.allocations] == ["other"]
    (left,) = outcome.plan.unplaced
    assert "tensor degree 6 does not divide nodes of 8 GPUs" in left.detail


def test_the_check_sees_other_degrees_and_missing_plans_but_not_what_runs_on() -> None:
    """What runs is kept as it runs; a plan that nobody knew of is none that runs."""
    snapshot = Snapshot(cluster=racks(2, 2), jobs=(JOB,))
    outcome = plan(PlanRequest(snapshot=snapshot, parameters=SiaParameters()))
    assert outcome.plan is not None
    (item,) = outcome.plan.allocations
    asked = replace(JOB, parallelism=Parallelism(tp=2, pp=3, dp=4), current=item.gpus)
    kept = replace(item, change=Change.KEPT)

    def faults(job: Job, given: JobAllocation) -> list[str]:
        changed = replace(outcome.plan, allocations=(given,)) if outcome.plan else None
        assert changed is not None
        return [issue.pointer for issue in degree_violations(replace(snapshot, jobs=(job,)), changed)]

    assert faults(asked, item) == ["/allocations/0/parallel_plan"]
    assert faults(asked, kept) == ["/allocations/0/parallel_plan"]
    assert faults(JOB, replace(item, parallel_plan=None)) == ["/allocations/0/parallel_plan"]
    assert faults(replace(asked, parallel_plan=item.parallel_plan), kept) == []
    assert faults(asked, replace(kept, parallel_plan=None)) == []
    assert faults(JOB, item) == []
    assert not [*degree_warnings(snapshot, "sia")]
